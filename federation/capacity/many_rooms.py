"""The rooms of many clusters at once: what is outstanding in them, packed in the same steps.

Pure. Must not decide who gets room, and packs nothing in another way than a single room would.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from federation.capacity.assignments import Assignment, Held, holdings_of, places_alike, runs_alike
from federation.capacity.cells import (
    VIEWS,
    Residues,
    View,
    gathered,
    residues_of_many,
    with_kinds,
)
from federation.capacity.cluster_room import ReportId, Room
from federation.capacity.packing import Packing, packed_in_place
from federation.capacity.pool_kinds import PoolKinds
from federation.model.pools.matching import Match
from federation.model.pools.values import Pools
from federation.model.reservations import Outstanding, PromiseCertificate


class UnpackedRoom(NamedTuple):
    """What a room is made of; what is outstanding is packed in its order."""

    report: ReportId
    pools: Pools
    follows_claims: bool
    outstanding: tuple[Outstanding, ...]

    def packed(self) -> Room:
        """The room by itself; in another order where that leaves less without room."""
        bare = Room.of(self.report, self.pools, follows_claims=self.follows_claims)
        return bare.holding(self.outstanding)

    def reordered(self) -> Room:
        """The room by itself, packed in the order that leaves the least without room."""
        return Room.of(
            self.report, self.pools, self.outstanding, follows_claims=self.follows_claims
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PackedRooms:
    """What is held in each of the rooms, and what is left in all of them in their order.

    Of those at the places in ``moved`` what is left is in a table of their own instead.
    """

    held: Sequence[Held]
    residues: Residues
    moved: Sequence[int]
    moved_residues: Residues


@dataclass(slots=True, kw_only=True, eq=False)
class _Table:
    """What is left in clusters while they are packed; ``moved`` are those that outgrew it."""

    residues: Residues
    moved: dict[int, tuple[Residues, int]] = field(default_factory=dict)

    def gathered(self, places: Sequence[int]) -> tuple[list[int], Residues]:
        """Some of the clusters in a table of their own, and in which order they are there."""
        here = [place for place in places if place not in self.moved]
        away = [place for place in places if place in self.moved]
        sources: list[tuple[Residues, list[int]]] = [(self.residues, here)] if here else []
        for place in away:
            residues, cluster = self.moved[place]
            sources.append((residues, [cluster]))
        return [*here, *away], gathered(sources)

    def put(self, places: Sequence[int], left: Residues) -> None:
        """What is left in some clusters now."""
        into = self.residues
        segment_s = (np.array(places)[:, np.newaxis] * VIEWS + np.arange(VIEWS)).ravel()
        fits_s = into.capacity_s[segment_s] == left.capacity_s
        fits_s = fits_s.reshape(-1, VIEWS).all(axis=1).repeat(VIEWS)
        from_k = np.flatnonzero(fits_s.repeat(left.capacity_s))
        shift_s = into.first_s[segment_s] - left.first_s[:-1]
        into_k = from_k + shift_s.repeat(left.capacity_s)[from_k]
        into.table_xk[:, into_k] = left.table_xk[:, from_k]
        into.used_s[segment_s[fits_s]] = left.used_s[fits_s]
        for cluster, (place, fits) in enumerate(zip(places, fits_s[::VIEWS].tolist(), strict=True)):
            self.moved.pop(place, None)
            if not fits:
                self.moved[place] = left, cluster


def packed_rooms(every: Sequence[UnpackedRoom], kinds: PoolKinds) -> PackedRooms:
    """The rooms of some clusters, whose pools are all among the kinds."""
    bare = residues_of_many([each.pools.cells for each in every])
    table = _Table(residues=with_kinds(bare, [kinds.of(each.pools) for each in every]))
    held = [Held().with_more(each) if each else Held() for each in _holdings(every, table, kinds)]
    for place, each in enumerate(held):
        if each.is_overcommitted:
            room = every[place].reordered()
            held[place] = room.held
            table.moved[place] = with_kinds(room.left, [kinds.of(room.pools)]), 0
    moved, residues = table.gathered(list(table.moved)) if table.moved else ([], table.residues)
    return PackedRooms(held=held, residues=table.residues, moved=moved, moved_residues=residues)


def _holdings(
    every: Sequence[UnpackedRoom], table: _Table, kinds: PoolKinds
) -> list[list[Assignment]]:
    """How everything is packed: the first run of every cluster, then the second, and so on."""
    holdings: list[list[Assignment]] = [[] for _ in every]
    runs = [runs_alike(each.outstanding) for each in every]
    turn = 0
    while waiting := [place for place, each in enumerate(runs) if turn < len(each)]:
        for alike in places_alike([runs[place][turn][0] for place in waiting]):
            order, residues = table.gathered([waiting[each] for each in alike])
            asked = [runs[place][turn] for place in order]
            packing = _packed(residues, asked, kinds)
            table.put(order, packing.left)
            placed_c = packing.placed_s[View.FILLED :: VIEWS].tolist()
            for cluster, place in enumerate(order):
                resources = every[place].pools.cells.resources
                holdings[place] += holdings_of(
                    asked[cluster], placed_c[cluster], packing.takes, resources, cluster
                )
        turn += 1
    return holdings


def _packed(
    residues: Residues, asked: Sequence[Sequence[Outstanding]], kinds: PoolKinds
) -> Packing:
    """One run packed into each cluster, all of the same shape and claim."""
    like = asked[0][0]
    verdict_p = kinds.verdicts(like.requirements.node_claim)
    # What is unproven may land wherever nothing says that it cannot.
    is_unproven = like.certificate is PromiseCertificate.UNPROVEN
    least = Match.UNKNOWN if is_unproven else Match.YES
    suiting_p = None if verdict_p is None else verdict_p >= least
    replicas_c = np.array([sum(each.to_pack for each in run) for run in asked], dtype=np.int64)
    return packed_in_place(residues, like.requirements.request, replicas_c, suiting_p)
