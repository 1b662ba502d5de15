"""The room in one cluster: one report's cells, with all that is outstanding packed into them.

Pure and immutable. Must not decide who gets room: ``federation.scheduler.reserve`` asks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np

from federation.model.estimate import MAX_REPLICAS
from federation.model.pools.bounds import fit_k, per_replica
from federation.model.pools.matching import Verdict, pool_verdict
from federation.model.pools.packing import pack, pack_demands, suiting_pools
from federation.model.pools.values import BoolArray, Cells, Pools
from federation.model.reservations import Outstanding, PromiseCertificate
from federation.model.workload import ReplicaRequirements
from federation.scheduler.losses import contender, contenders, strict_promises_hold, with_contender
from federation.scheduler.spreading import spread

# Every packing splits a cell or two: beyond this equal ones are worth looking for.
_CELLS_TO_COALESCE: Final = 64


class ReportId(NamedTuple):
    """Which report of a cluster."""

    epoch: int
    sequence: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PackingStep:
    """``replicas`` on each of ``nodes`` nodes that surely have ``free``, in the pool at ``pool``.

    ``free`` is in the order of the cells' resources, after all earlier steps.
    """

    pool: int
    free: tuple[int, ...]
    nodes: int
    replicas: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """Something outstanding, how it is packed, and how many replicas found no room."""

    outstanding: Outstanding
    steps: tuple[PackingStep, ...]
    unplaced: int = 0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Room:
    """``pools`` as ``report`` has them, and what outstanding replicas leave of their cells.

    ``filled`` is left when they go where they fit best, ``spread`` when they go where most is
    free. ``follows_claims``: a placer of ours puts the cluster's pods where its agent plans them.
    The steps of all ``holdings``, in order, are a packing of them into the report's minimums.
    """

    report: ReportId
    pools: Pools
    follows_claims: bool
    filled: Pools
    spread: Pools
    holdings: tuple[Holding, ...] = ()

    @classmethod
    def of(
        cls,
        report: ReportId,
        pools: Pools,
        outstanding: Sequence[Outstanding] = (),
        *,
        follows_claims: bool = False,
    ) -> Room:
        """The room that a report's cells have beside what is outstanding, packed in its order.

        Where some of it finds none, the largest go first: another order may know better.
        """
        empty = cls(
            report=report,
            pools=pools,
            follows_claims=follows_claims,
            filled=pools,
            spread=pools,
        )
        room = empty.with_all(outstanding)
        if not room.overcommitted:
            return room
        largest_first = sorted(outstanding, key=lambda each: -_share(pools.cells, each))
        other = empty.with_all(largest_first)
        return min(room, other, key=lambda each: sum(h.unplaced for h in each.overcommitted))

    def with_all(self, outstanding: Iterable[Outstanding]) -> Room:
        """With more outstanding, one after the other."""
        room = self
        for each in outstanding:
            room = room.with_one(each)
        return room

    def with_one(self, outstanding: Outstanding) -> Room:
        """With this outstanding as well; as much as fits where not all of it does."""
        request = outstanding.requirements.request
        suiting_p = self._suiting(outstanding)
        packing = pack(self.filled.cells, suiting_p, request, outstanding.to_pack)
        spreading = spread(self.spread.cells, suiting_p, request, outstanding.to_pack)
        cells = self.filled.cells
        steps = tuple(
            PackingStep(
                pool=int(cells.pool_k[take.cell]),
                free=tuple(cells.min_rk[:, take.cell].tolist()),
                nodes=take.nodes,
                replicas=take.replicas,
            )
            for take in packing.takes
        )
        holding = Holding(
            outstanding=outstanding,
            steps=steps,
            unplaced=outstanding.to_pack - packing.placed,
        )
        most = len(self.pools.cells) + _CELLS_TO_COALESCE
        return replace(
            self,
            filled=_with_cells(self.filled, packing.left, most),
            spread=_with_cells(self.spread, spreading.left, most),
            holdings=(*self.holdings, holding),
        )

    def without(self, binding: str) -> Room:
        """As if the binding had nothing outstanding."""
        kept = [each for each in self.outstanding if each.binding != binding]
        if len(kept) == len(self.holdings):
            return self
        return Room.of(self.report, self.pools, kept, follows_claims=self.follows_claims)

    @property
    def outstanding(self) -> tuple[Outstanding, ...]:
        return tuple(each.outstanding for each in self.holdings)

    @property
    def overcommitted(self) -> tuple[Holding, ...]:
        """What finds no room any more; unproven promises never showed that they had any."""
        return tuple(
            each
            for each in self.holdings
            if each.unplaced and each.outstanding.certificate is not PromiseCertificate.UNPROVEN
        )

    def can_tell(self, requirements: ReplicaRequirements) -> bool:
        """Whether the pools carry what the node claim names; else nothing can be packed."""
        return all(
            pool_verdict(pool, self.pools.label_keys, requirements.node_claim)
            is not Verdict.UNKNOWN
            for pool in self.pools.pools
        )

    def most(
        self, requirements: ReplicaRequirements, certificate: PromiseCertificate, limit: int
    ) -> int:
        """The most replicas, up to ``limit``, that can be promised beside what is outstanding."""
        if self.overcommitted or not self.can_tell(requirements):
            return 0
        most = min(limit, _fits(self.filled, requirements))
        if certificate is PromiseCertificate.CAREFUL:
            most = min(most, _fits(self.spread, requirements))
        is_strict = certificate is PromiseCertificate.STRICT
        if is_strict or self.holds_strict:
            most = self._strict_most(requirements, certificate, most)
        return most

    @property
    def holds_strict(self) -> bool:
        """Whether something strict is outstanding, which later promises must leave its room."""
        return any(
            each.outstanding.certificate is PromiseCertificate.STRICT for each in self.holdings
        )

    def _strict_most(
        self, requirements: ReplicaRequirements, certificate: PromiseCertificate, limit: int
    ) -> int:
        others = contenders(self.pools, self.outstanding)
        more = contender(
            self.pools,
            Outstanding(binding="", requirements=requirements, certificate=certificate, in_cells=0),
        )

        def holds(replicas: int) -> bool:
            every = with_contender(others, replace(more, replicas=replicas))
            return strict_promises_hold(self.pools, every)

        # Most clusters have either no room for one, or room for all.
        if limit == 0 or not holds(1):
            return 0
        if holds(limit):
            return limit
        low, high = 1, limit - 1
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if holds(middle) else (low, middle - 1)
        return low

    def _suiting(self, outstanding: Outstanding) -> BoolArray:
        claim = outstanding.requirements.node_claim
        if outstanding.certificate is not PromiseCertificate.UNPROVEN:
            return suiting_pools(self.pools, claim)
        # It may land wherever nothing says that it cannot: others had better not count on that.
        verdicts = [pool_verdict(pool, self.pools.label_keys, claim) for pool in self.pools.pools]
        return np.array([verdict is not Verdict.NO for verdict in verdicts], dtype=np.bool_)


def _fits(pools: Pools, requirements: ReplicaRequirements) -> int:
    """Replicas that the minimums of the cells hold."""
    cells = pools.cells
    suiting_p = suiting_pools(pools, requirements.node_claim)
    fits_k = fit_k(cells, per_replica(requirements.request)) * cells.count_k
    return min(int(fits_k[suiting_p[cells.pool_k]].sum()), MAX_REPLICAS)


def _with_cells(pools: Pools, cells: Cells, most: int) -> Pools:
    changed = replace(pools, cells=cells)
    return changed if len(cells) <= most else pack_demands(changed, ()).pools


def _share(cells: Cells, outstanding: Outstanding) -> float:
    """The largest share of a resource of the cluster that one replica takes."""
    demanded = per_replica(outstanding.requirements.request)
    total_r = (cells.min_rk.astype(np.float64) * cells.count_k).sum(axis=1)
    totals = dict(zip(cells.resources, total_r.tolist(), strict=True))
    shares = [amount / max(totals.get(name, 0.0), 1.0) for name, amount in demanded.items()]
    return float(max(shares))
