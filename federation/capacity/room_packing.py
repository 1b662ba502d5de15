"""What is outstanding, packed into what is left of clusters: all of them in the same steps.

Pure. The only way into cells for what is outstanding, in one cluster as in thousands. Must not
decide who gets room, nor in which order things are packed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from federation.capacity.assignments import Alike, Assignment, holdings_of
from federation.capacity.cells import PIECES, VIEWS, Residues, View, apart, gathered, head, only
from federation.capacity.packing import packed_each_in_place
from federation.capacity.pool_kinds import PoolKinds
from federation.capacity.wants import Want, WantedByCluster, Wants
from federation.model.arrays import IntArray
from federation.model.pools.matching import Match
from federation.model.reservations import Outstanding


@dataclass(slots=True, kw_only=True, eq=False)
class PackedCells:
    """What is left in clusters (by place) while they are packed; ``moved`` are those that outgrew
    the table, with the table they are in instead and their place there.
    """

    residues: Residues
    moved: dict[int, tuple[Residues, int]] = field(default_factory=dict)

    def gathered(self, places: Sequence[int]) -> Residues:
        """Some of the clusters, in this order, in a table of their own."""
        if not self.moved and list(places) == list(range(len(self.residues))):
            return apart(self.residues)
        sources: list[tuple[Residues, list[int]]] = []
        for place in places:
            residues, cluster = self.moved.get(place, (self.residues, place))
            if sources and sources[-1][0] is residues:
                sources[-1][1].append(cluster)
            else:
                sources.append((residues, [cluster]))
        return gathered(sources)

    def only(self, place: int) -> Residues:
        """One of the clusters by itself."""
        return only(*self.moved.get(place, (self.residues, place)))

    def put(self, places: Sequence[int], left: Residues, first: int) -> None:
        """What is left now in some clusters, which stand in ``left`` from ``first`` on: written
        over what was, where there are others.
        """
        if not self.moved and list(places) == list(range(len(self.residues))):
            self.residues = left
            return
        into = self.residues
        segment_s = (np.array(places)[:, np.newaxis] * VIEWS + np.arange(VIEWS)).ravel()
        mine = slice(VIEWS * first, VIEWS * (first + len(places)))
        capacity_s, first_s = left.capacity_s[mine], left.first_s[:-1][mine]
        fits_s = into.capacity_s[segment_s] == capacity_s
        fits_s = fits_s.reshape(-1, VIEWS).all(axis=1).repeat(VIEWS)
        from_k = np.flatnonzero(fits_s.repeat(capacity_s)) + first_s[0]
        shift_s = into.first_s[segment_s] - first_s
        into_k = from_k + shift_s[fits_s].repeat(capacity_s[fits_s])
        into.table_xk[:, into_k] = left.table_xk.take(from_k, axis=1)
        into.used_s[segment_s[fits_s]] = left.used_s[mine][fits_s]
        for place, fits in zip(places, fits_s[::VIEWS].tolist(), strict=True):
            self.moved.pop(place, None)
            if not fits:
                self.moved[place] = left, first
            first += 1


def pack_groups(
    cells: PackedCells,
    groups: Sequence[Sequence[Sequence[Outstanding]]],
    kinds: PoolKinds,
    resources: Sequence[tuple[str, ...]],
    alike: Alike | None = None,
) -> list[list[Assignment]]:
    """Pack the first group of every cluster in one step, then the second, and so on; how, by
    cluster.

    Those of a group differ in nothing but whose they are and how many. ``resources`` are those of
    each cluster's cells; ``alike`` knows the numbers of what was grouped by them. It costs least
    where those come first that have the most groups: whoever has no more then stands behind all
    that go on.
    """
    assignments: list[list[Assignment]] = [[] for _ in groups]
    wanted = [place for place, each in enumerate(groups) if each]
    if not wanted:
        return assignments
    order = sorted(wanted, key=lambda place: -len(groups[place]))
    residues = cells.gathered(order)
    turns = _Turns.of(
        [groups[place] for place in order], kinds, residues.resources, alike or Alike()
    )
    turn = 0
    while True:
        packing = packed_each_in_place(residues, *turns.at(turn, len(order)))
        placed_c = packing.placed_s[View.FILLED :: VIEWS].tolist()
        for cluster, place in enumerate(order):
            assignments[place] += holdings_of(
                groups[place][turn], placed_c[cluster], packing.takes, resources[place], cluster
            )
        turn += 1
        going_on = sum(len(groups[place]) > turn for place in order)
        residues = packing.left
        if going_on < len(order):
            cells.put(order[going_on:], residues, going_on)
        if not going_on:
            return assignments
        if going_on < len(order):
            order, residues = order[:going_on], head(residues, going_on)
        if (residues.capacity_s - residues.used_s < PIECES).any():
            residues = gathered([(residues, range(going_on))])


class _Turns(NamedTuple):
    """What is packed into clusters, whose groups begin at ``first_c`` of all groups (axis g)."""

    wants: Wants
    first_c: IntArray
    want_g: IntArray
    replicas_g: IntArray

    @classmethod
    def of(
        cls,
        groups: Sequence[Sequence[Sequence[Outstanding]]],
        kinds: PoolKinds,
        resources: Sequence[str],
        alike: Alike,
    ) -> _Turns:
        numbers = [alike.number(group[0]) for every in groups for group in every]
        replicas = [
            group[0].to_pack if len(group) == 1 else sum(each.to_pack for each in group)
            for every in groups
            for group in every
        ]
        first_c = np.zeros(len(groups), dtype=np.int64)
        np.cumsum([len(every) for every in groups[:-1]], out=first_c[1:])
        # Others may have asked for far more.
        used_u, want_g = np.unique(np.array(numbers, dtype=np.int64), return_inverse=True)
        wants = [_want(alike.firsts[number], kinds) for number in used_u.tolist()]
        return cls(
            wants=Wants.of(resources, wants),
            first_c=first_c,
            want_g=want_g,
            replicas_g=np.array(replicas, dtype=np.int64),
        )

    def at(self, turn: int, clusters: int) -> tuple[WantedByCluster, IntArray]:
        """What comes next in so many of the first clusters."""
        group_c = self.first_c[:clusters] + turn
        return self.wants.by_cluster(self.want_g[group_c]), self.replicas_g[group_c]


def _want(outstanding: Outstanding, kinds: PoolKinds) -> Want:
    requirements = outstanding.requirements
    verdict_p = kinds.verdicts(requirements.node_claim)
    # What no nodes were seen for may land wherever nothing says that it cannot: others had better
    # not count on that.
    least = Match.YES if outstanding.certificate.is_packed else Match.UNKNOWN
    return Want(requirements.request, None if verdict_p is None else verdict_p >= least)
