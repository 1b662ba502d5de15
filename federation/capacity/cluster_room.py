"""The room in one cluster: one report's cells, with all that is outstanding packed into them.

Pure and immutable. Must not decide who gets room: ``federation.capacity.reserve`` asks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from federation.capacity.assignments import (
    Assignment,
    Held,
    holdings_of,
    outstanding_alike,
    runs_alike,
)
from federation.capacity.cells import Residues, View, cells_left, residues_of
from federation.capacity.packing import Packing, pack, room_by_segment
from federation.capacity.strict_bounds import (
    contender,
    contenders,
    strict_promises_hold,
    with_contender,
)
from federation.model.arrays import BoolArray
from federation.model.estimate import MAX_REPLICAS
from federation.model.placement import Certificate
from federation.model.pools.bounds import per_replica
from federation.model.pools.matching import Match, pool_match
from federation.model.pools.values import Pools
from federation.model.reservations import Outstanding, PromiseCertificate
from federation.model.workload import NodeClaim, ReplicaRequirements


class ReportId(NamedTuple):
    """Which report of a cluster."""

    epoch: int
    sequence: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Room:
    """``pools`` as ``report`` has them, and what outstanding replicas leave of their cells.

    ``follows_claims``: a placer of ours puts the cluster's pods where its agent plans them.
    ``left`` are the cells in two views: as they are when what is ``held`` goes where it fits
    best, and when it goes where most is free.
    """

    report: ReportId
    pools: Pools
    follows_claims: bool
    left: Residues
    held: Held = field(default_factory=Held)

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

        What is alike is packed as one. Where some finds no room, the largest go first: another
        order may know better.
        """
        empty = cls(
            report=report, pools=pools, follows_claims=follows_claims, left=residues_of(pools)
        )
        alike = outstanding_alike(outstanding)
        room = empty._with_groups(alike)
        if not room.overcommitted:
            return room
        largest_first = sorted(alike, key=lambda each: -_share(pools, each[0]))
        other = empty._with_groups(largest_first)
        return min(room, other, key=lambda each: sum(h.unplaced for h in each.overcommitted))

    def with_all(self, outstanding: Iterable[Outstanding]) -> Room:
        """With more outstanding, one after the other."""
        return self._with_groups([each] for each in outstanding)

    def holding(self, outstanding: tuple[Outstanding, ...]) -> Room:
        """With this outstanding and no other, which mostly is what it had and more."""
        had = self.outstanding
        if outstanding[: len(had)] == had:
            made = self._with_groups(runs_alike(outstanding[len(had) :]))
            if not made.overcommitted:
                return made
        return Room.of(self.report, self.pools, outstanding, follows_claims=self.follows_claims)

    def with_one(self, outstanding: Outstanding) -> Room:
        """With this outstanding as well; as much as fits where not all of it does."""
        return self._with_groups([[outstanding]])

    def without(self, binding: str) -> Room:
        """As if the binding had nothing outstanding."""
        if not self.held.has(binding):
            return self
        kept = [each for each in self.outstanding if each.binding != binding]
        return Room.of(self.report, self.pools, kept, follows_claims=self.follows_claims)

    @property
    def filled(self) -> Pools:
        """The pools with the cells that best fit leaves."""
        return replace(self.pools, cells=cells_left(self.left, View.FILLED, self.pools.cells))

    @property
    def spread(self) -> Pools:
        """The pools with the cells that spreading leaves."""
        return replace(self.pools, cells=cells_left(self.left, View.SPREAD, self.pools.cells))

    @property
    def holdings(self) -> tuple[Assignment, ...]:
        """Everything outstanding. All steps, in order, pack it into the report's minimums."""
        return self.held.every

    def holdings_of(self, binding: str) -> tuple[Assignment, ...]:
        """What one binding holds."""
        if not self.held.has(binding):
            return ()
        return tuple(each for each in self.held.every if each.outstanding.binding == binding)

    @property
    def outstanding(self) -> tuple[Outstanding, ...]:
        return tuple(each.outstanding for each in self.held.every)

    @property
    def overcommitted(self) -> tuple[Assignment, ...]:
        """What finds no room any more; unproven promises never showed that they had any."""
        if not self.held.is_overcommitted:
            return ()
        return tuple(each for each in self.held.every if each.is_broken)

    @property
    def holds_strict(self) -> bool:
        """Whether something strict is outstanding, which later promises must leave its room."""
        return self.held.is_strict

    def can_tell(self, requirements: ReplicaRequirements) -> bool:
        """Whether the pools carry what the node claim names; else nothing can be packed."""
        return Match.UNKNOWN not in self._verdicts(requirements.node_claim)

    def most(
        self, requirements: ReplicaRequirements, certificate: PromiseCertificate, limit: int
    ) -> int:
        """The most replicas, up to ``limit``, that can be promised beside what is outstanding."""
        if self.held.is_overcommitted or not self.can_tell(requirements):
            return 0
        suiting_p = self._suiting(requirements.node_claim, Match.YES)
        filled, spread = room_by_segment(self.left, requirements.request, suiting_p).tolist()
        most: int = min(limit, filled, MAX_REPLICAS)
        if certificate is PromiseCertificate.CAREFUL:
            most = min(most, spread)
        is_strict = certificate is PromiseCertificate.STRICT
        if is_strict or self.holds_strict:
            most = self._strict_most(requirements, certificate, most)
        return most

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

    def _with_groups(self, groups: Iterable[Sequence[Outstanding]]) -> Room:
        """With more outstanding, group after group; those of a group differ in nothing but whose
        they are and how many.
        """
        left = self.left
        more: list[Assignment] = []
        for group in groups:
            packing = self._packed(left, group)
            left = packing.left
            placed = int(packing.placed_s[View.FILLED])
            more += holdings_of(group, placed, packing.takes, self.pools.cells.resources)
        return replace(self, left=left, held=self.held.with_more(more))

    def _packed(self, left: Residues, alike: Sequence[Outstanding]) -> Packing:
        claim = alike[0].requirements.node_claim
        # What is unproven may land wherever nothing says that it cannot: others had better not
        # count on that.
        is_unproven = alike[0].certificate is PromiseCertificate.UNPROVEN
        suiting_p = self._suiting(claim, Match.UNKNOWN if is_unproven else Match.YES)
        replicas = sum(each.to_pack for each in alike)
        return pack(left, alike[0].requirements.request, np.array([replicas]), suiting_p)

    def _suiting(self, claim: NodeClaim | None, least: Match) -> BoolArray:
        return np.array([verdict >= least for verdict in self._verdicts(claim)] or [False])

    def _verdicts(self, claim: NodeClaim | None) -> list[Match]:
        return [pool_match(pool, self.pools.label_keys, claim) for pool in self.pools.pools]


def certificate_for(
    asked: Certificate | None, room: Room | None, requirements: ReplicaRequirements
) -> PromiseCertificate:
    """What a promise in a cluster will be worth if there is room; careful where nothing was asked.

    Without a placer of ours nobody would follow a plan, so what is asked for then is careful too.
    """
    told = room is not None and room.can_tell(requirements)
    return worth(asked, told=told, planned=room is not None and room.follows_claims)


def worth(asked: Certificate | None, *, told: bool, planned: bool) -> PromiseCertificate:
    """``certificate_for`` where it is known whether the cells can tell, and plans are followed."""
    if not told:
        return PromiseCertificate.UNPROVEN
    if asked is Certificate.STRICT:
        return PromiseCertificate.STRICT
    if asked is Certificate.CAREFUL or not planned:
        return PromiseCertificate.CAREFUL
    return PromiseCertificate.PLANNED


def _share(pools: Pools, outstanding: Outstanding) -> float:
    """The largest share of a resource of the cluster that one replica takes."""
    demanded = per_replica(outstanding.requirements.request)
    total_r = (pools.cells.min_rk.astype(np.float64) * pools.cells.count_k).sum(axis=1)
    totals = dict(zip(pools.cells.resources, total_r.tolist(), strict=True))
    shares = [amount / max(totals.get(name, 0.0), 1.0) for name, amount in demanded.items()]
    return float(max(shares))
