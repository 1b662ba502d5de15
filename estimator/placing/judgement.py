"""One pod against the cluster as it is: which nodes it may have, how good they are, and why not.

Room that was promised to other bindings counts as taken; room promised to pods like this one is
open to it. Pure, whole-array. Must not know who asks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from estimator.binpack.arrays import NodeArrays
from estimator.binpack.fit import insufficient, unresolvable
from estimator.binpack.profile import ScoringProfile
from estimator.binpack.strategy import ScoreArray, Strategy
from estimator.cluster.claims import Claim
from estimator.estimation.filter import feasible_n
from estimator.nodes import Pod
from estimator.placing.incoming import IncomingPod
from estimator.placing.place import arrays_beside
from estimator.snapshot import Snapshot
from federation.model.arrays import BoolArray
from federation.model.resources import PODS

RULED_OUT: Final = "ruled out by selector, affinity or taints"
# As many as 64 bits hold beside the first; a pod with more is told of these.
_NAMED_RESOURCES: Final = 60


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Judgement:
    """A pod and the nodes beside others' claims.

    ``own_n`` marks nodes with room claimed for such pods, ``fits_n`` those that the pod may have
    now, ``never_n`` those that no leaving pod could open to it. ``short`` holds, per resource, the
    nodes with too little of it free.
    """

    pod: IncomingPod
    arrays: NodeArrays
    strategy: Strategy
    feasible_n: BoolArray
    own_n: BoolArray
    short: Mapping[str, BoolArray]
    fits_n: BoolArray
    never_n: BoolArray

    @classmethod
    def of(
        cls,
        pod: IncomingPod,
        snapshot: Snapshot,
        positions: Mapping[str, int],
        claims: tuple[Sequence[Claim], Sequence[Claim]],
        strategy: Strategy,
    ) -> Judgement:
        """``positions`` are the nodes' rows by name; ``claims`` those of such pods, and others."""
        own, others = claims
        own_n = np.zeros(len(snapshot), dtype=np.bool_)
        own_n[[positions[claim.node] for claim in own if claim.node in positions]] = True
        arrays = arrays_beside(others, snapshot, positions)
        feasible = feasible_n(snapshot.table, pod.node_claim)
        short = _filtered(strategy, insufficient(arrays, pod.request))
        never = _filtered(strategy, unresolvable(arrays, pod.request))
        return cls(
            pod=pod,
            arrays=arrays,
            strategy=strategy,
            feasible_n=feasible,
            own_n=own_n,
            short=short,
            fits_n=~np.logical_or.reduce([~feasible, *short.values()]),
            never_n=np.logical_or.reduce([~feasible, *never.values()]),
        )

    def scores(self) -> ScoreArray:
        """Every node's score, whether or not it fits."""
        return self.strategy.score(self.arrays, self.pod.request)

    def best_row(self) -> int | None:
        """The node for the pod: where room was promised to it, else where it scores highest.

        Equals go to the first node by name. None when the pod fits nowhere.
        """
        promised_n = self.fits_n & self.own_n
        open_n = promised_n if promised_n.any() else self.fits_n
        if not open_n.any():
            return None
        score_n = self.scores().astype(np.float64)
        return int(np.argmax(np.where(open_n, score_n, -np.inf)))

    def reasons(self) -> list[str]:
        """What keeps the pod from every node; empty where nothing does."""
        named = list(self.short)[:_NAMED_RESOURCES]
        code_n = (~self.feasible_n).astype(np.int64)
        for bit, name in enumerate(named, start=1):
            code_n |= self.short[name].astype(np.int64) << bit
        codes = code_n.tolist()
        # Thousands of nodes fail for few different reasons.
        texts = {code: _reason(code, named) for code in set(codes)}
        return [texts[code] for code in codes]

    def why_nowhere(self) -> str:
        """What keeps the pod from all nodes, counted."""
        reasons = []
        ruled_out = int((~self.feasible_n).sum())
        if ruled_out:
            reasons.append(f"{ruled_out} {RULED_OUT}")
        for name, short_n in self.short.items():
            short = int((short_n & self.feasible_n).sum())
            if short:
                reasons.append(f"{short} short of {name}")
        found = f"{int(self.fits_n.sum())} of {self.arrays.size} nodes fit"
        return f"{found}: {', '.join(reasons)}" if reasons else found

    def fits_without(self, row: int, leaving: Iterable[Pod]) -> bool:
        """Whether the pod fits the node once these have left it."""
        if not self.feasible_n[row]:
            return False
        gone = list(leaving)
        return all(
            amount <= self._free(name, row) + _freed(name, gone)
            for name, amount in self.pod.request.amounts.items()
            if amount > 0 and not _overlooks(self.strategy, name)
        )

    def _free(self, resource: str, row: int) -> int:
        allocatable_n = self.arrays.allocatable_n(resource)
        return int(allocatable_n[row] - self.arrays.requested_n(resource)[row])


class Positions:
    """Rows of nodes by name, made anew only when a node has changed."""

    def __init__(self) -> None:
        self._snapshot: Snapshot | None = None
        self._rows: dict[str, int] = {}

    def of(self, snapshot: Snapshot) -> Mapping[str, int]:
        if self._snapshot is None or self._snapshot.table is not snapshot.table:
            self._rows = {node.name: row for row, node in enumerate(snapshot.table.nodes)}
            self._snapshot = snapshot
        return self._rows


def _reason(code: int, named: Sequence[str]) -> str:
    reasons = [RULED_OUT] if code & 1 else []
    lacking = [name for bit, name in enumerate(named, start=1) if code >> bit & 1]
    if lacking:
        reasons.append(f"short of {', '.join(lacking)}")
    return "; ".join(reasons)


def _freed(resource: str, gone: Sequence[Pod]) -> int:
    if resource == PODS:
        return len(gone)
    return sum(pod.request.get(resource, 0) for pod in gone)


def _filtered(strategy: Strategy, short: Mapping[str, BoolArray]) -> dict[str, BoolArray]:
    return {name: short_n for name, short_n in short.items() if not _overlooks(strategy, name)}


def _overlooks(strategy: Strategy, resource: str) -> bool:
    """Whether the profile's filter takes no notice of a shortage."""
    return isinstance(strategy, ScoringProfile) and strategy.ignores(resource)
