"""Pods that an extender let on nodes and that are not seen there yet.

kube-scheduler says neither which of the nodes it chose nor when it gave up, so that such a pod
counts on each of its nodes until kube-scheduler asks for it again or the assumption ends.
Must not judge who is let on which node, nor decide when an assumption ends: ``assumptions`` does.
Times are in Unix seconds and passed in.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from estimator.cluster.assumptions import Assumptions
from estimator.cluster.claims import Claim
from estimator.snapshot import NodeTable
from federation.model.arrays import BoolArray, IntArray
from federation.model.errors import Unavailable
from federation.model.resources import MAX_AMOUNT, PODS
from federation.model.shapes import ReservationKey

# kube-scheduler binds fifty a second and judges many more: a burst of so many may be on its way.
MAX_PODS: Final = 10_000
_MOST_COUNTED: Final = MAX_AMOUNT // (2 * MAX_PODS)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Assumed:
    """A pod, its amounts with the pod slot, and its nodes as bits.

    ``key`` is the promise whose claims the nodes were kept for.
    """

    key: ReservationKey | None
    amounts: Mapping[str, int]
    nodes: npt.NDArray[np.uint8]


class AssumedPods:
    """Who was let on which nodes of one cluster, each for as long as its assumption lasts."""

    def __init__(self, assumptions: Assumptions | None = None) -> None:
        self._assumptions = Assumptions() if assumptions is None else assumptions
        self._pods: dict[str, _Assumed] = {}
        self._table = NodeTable.of(())
        self._sums: dict[str, IntArray] = {}

    def __len__(self) -> int:
        return len(self._pods)

    def promises(self) -> set[ReservationKey]:
        """Those whose pods are on their way to nodes that were kept for them."""
        return {each.key for each in self._pods.values() if each.key is not None}

    def assume(
        self,
        uid: str,
        request: Mapping[str, int],
        node_n: BoolArray,
        table: NodeTable,
        now: float,
        key: ReservationKey | None = None,
        *,
        is_prepared: bool = False,
        version: int = 0,
    ) -> None:
        """The pod may be on any of these nodes from now on, and is no longer where it was let.

        A pod that was deleted takes nothing. ``request`` is without the pod slot; ``is_prepared``
        and ``version`` are as in ``Assumptions.begin``. Raises Unavailable when too many are on
        their way.
        """
        self.drop(uid)
        if not node_n.any():
            return
        if len(self._pods) >= MAX_PODS:
            self._assumptions.expire(now)
        if len(self._pods) >= MAX_PODS:
            raise Unavailable(f"{MAX_PODS} pods were let on nodes and are not seen there yet")
        if not self._assumptions.begin(
            uid, now, self._uncount, is_prepared=is_prepared, version=version
        ):
            return
        self._arrange(table)
        amounts = {name: min(amount, _MOST_COUNTED) for name, amount in request.items()}
        assumed = _Assumed(
            key=key,
            amounts={**amounts, PODS: 1},
            nodes=np.packbits(node_n),
        )
        self._pods[uid] = assumed
        self._count(assumed, np.flatnonzero(node_n), +1)

    def drop(self, uid: str) -> None:
        """The pod is on no node but by what else is known of it."""
        if uid in self._pods:
            self._assumptions.end(uid)

    def beside(self, claims: Iterable[Claim], table: NodeTable) -> dict[str, IntArray]:
        """What assumed pods take of every node beyond these claims, by resource.

        A promise's pods on nodes that are claimed for it are in its claims as long as those last.
        """
        self._arrange(table)
        sums = dict(self._sums)
        for (_, row), amounts in self._beyond(claims).items():
            for name, amount in amounts.items():
                column = sums.get(name)
                added = column.copy() if column is not None else np.zeros(len(table), np.int64)
                added[row] += amount
                sums[name] = added
        return sums

    def _beyond(self, claims: Iterable[Claim]) -> dict[tuple[ReservationKey, int], dict[str, int]]:
        """By promise and node: what pods on their way to claimed nodes take beyond the claims."""
        taken: dict[tuple[ReservationKey, int], dict[str, int]] = {}
        for assumed in self._pods.values():
            if assumed.key is None:
                continue
            for row in self._rows(assumed).tolist():
                _add(taken.setdefault((assumed.key, row), {}), assumed.amounts, +1)
        if not taken:
            return taken
        rows = {self._table.nodes[row].name: row for _, row in taken}
        for claim in claims:
            key, row = claim.promise, rows.get(claim.node)
            found = taken.get((key, row)) if key is not None and row is not None else None
            if found is not None:
                _add(found, claim.taken, -1)
        return {
            place: {name: amount for name, amount in amounts.items() if amount > 0}
            for place, amounts in taken.items()
        }

    def _uncount(self, uid: str) -> None:
        assumed = self._pods.pop(uid)
        self._count(assumed, self._rows(assumed), -1)

    def _count(self, assumed: _Assumed, rows: npt.NDArray[np.int64], sign: int) -> None:
        if assumed.key is not None:
            return
        for name, amount in assumed.amounts.items():
            column = self._sums.get(name)
            if column is None:
                column = self._sums[name] = np.zeros(len(self._table), dtype=np.int64)
            column[rows] += sign * amount

    def _rows(self, assumed: _Assumed) -> npt.NDArray[np.int64]:
        return np.flatnonzero(np.unpackbits(assumed.nodes, count=len(self._table)))

    def _arrange(self, table: NodeTable) -> None:
        """Make these the nodes; what was on others is there no more."""
        before, self._table = self._table, table
        if before is table or [node.name for node in before.nodes] == [
            node.name for node in table.nodes
        ]:
            return
        rows = {node.name: row for row, node in enumerate(before.nodes)}
        old_row_n = np.array([rows.get(node.name, len(rows)) for node in table.nodes], np.int64)
        self._sums = {}
        for uid, assumed in self._pods.items():
            bits = np.append(np.unpackbits(assumed.nodes, count=len(before)), 0)
            moved = _Assumed(
                key=assumed.key,
                amounts=assumed.amounts,
                nodes=np.packbits(bits[old_row_n]),
            )
            self._pods[uid] = moved
            self._count(moved, self._rows(moved), +1)


def _add(total: dict[str, int], amounts: Mapping[str, int], times: int) -> None:
    for name, amount in amounts.items():
        total[name] = total.get(name, 0) + times * amount
