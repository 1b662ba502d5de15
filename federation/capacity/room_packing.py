"""What is outstanding, packed into what is left of clusters: all of them in the same steps.

Pure. The only way into cells for what is outstanding, in one cluster as in thousands. Must not
decide who gets room, nor in which order things are packed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from federation.capacity.assignments import Assignment, holdings_of, places_alike
from federation.capacity.cells import VIEWS, Residues, View, apart, gathered, only
from federation.capacity.packing import Packing, packed_each_in_place
from federation.capacity.pool_kinds import PoolKinds
from federation.capacity.wants import Want
from federation.model.pools.matching import Match
from federation.model.reservations import Outstanding


@dataclass(slots=True, kw_only=True, eq=False)
class PackedCells:
    """What is left in clusters (by place) while they are packed; ``moved`` are those that outgrew
    the table, with the table they are in instead and their place there.
    """

    residues: Residues
    moved: dict[int, tuple[Residues, int]] = field(default_factory=dict)

    def gathered(self, places: Sequence[int]) -> tuple[list[int], Residues]:
        """Some of the clusters in a table of their own, and in which order they are there."""
        if len(places) == len(self.residues) and not self.moved:
            return list(places), apart(self.residues)
        here = [place for place in places if place not in self.moved]
        away = [place for place in places if place in self.moved]
        sources: list[tuple[Residues, list[int]]] = [(self.residues, here)] if here else []
        for place in away:
            residues, cluster = self.moved[place]
            sources.append((residues, [cluster]))
        return [*here, *away], gathered(sources)

    def only(self, place: int) -> Residues:
        """One of the clusters by itself."""
        return only(*self.moved.get(place, (self.residues, place)))

    def put(self, places: Sequence[int], left: Residues) -> None:
        """What is left in some clusters now: written over what was, where there are others."""
        if len(places) == len(self.residues) and not self.moved:
            self.residues = left
            return
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


def pack_groups(
    cells: PackedCells,
    groups: Sequence[Sequence[Sequence[Outstanding]]],
    kinds: PoolKinds,
    resources: Sequence[tuple[str, ...]],
) -> list[list[Assignment]]:
    """Pack the first group of every cluster in one step, then the second, and so on; how, by
    cluster.

    Those of a group differ in nothing but whose they are and how many. ``resources`` are those of
    each cluster's cells.
    """
    assignments: list[list[Assignment]] = [[] for _ in groups]
    turn = 0
    while waiting := [place for place, each in enumerate(groups) if turn < len(each)]:
        order, residues = cells.gathered(waiting)
        asked = [groups[place][turn] for place in order]
        packing = _packed(residues, asked, kinds)
        cells.put(order, packing.left)
        placed_c = packing.placed_s[View.FILLED :: VIEWS].tolist()
        for cluster, place in enumerate(order):
            assignments[place] += holdings_of(
                asked[cluster], placed_c[cluster], packing.takes, resources[place], cluster
            )
        turn += 1
    return assignments


def _packed(
    residues: Residues, asked: Sequence[Sequence[Outstanding]], kinds: PoolKinds
) -> Packing:
    """One group packed into each cluster."""
    wants: list[Want] = []
    want_c = np.zeros(len(asked), dtype=np.int64)
    firsts = [group[0] for group in asked]
    for alike in places_alike(firsts):
        want_c[alike] = len(wants)
        wants.append(_want(firsts[alike[0]], kinds))
    replicas_c = np.array([sum(each.to_pack for each in group) for group in asked], dtype=np.int64)
    return packed_each_in_place(residues, wants, want_c, replicas_c)


def _want(outstanding: Outstanding, kinds: PoolKinds) -> Want:
    requirements = outstanding.requirements
    verdict_p = kinds.verdicts(requirements.node_claim)
    # What no nodes were seen for may land wherever nothing says that it cannot: others had better
    # not count on that.
    least = Match.YES if outstanding.certificate.is_packed else Match.UNKNOWN
    return Want(requirements.request, None if verdict_p is None else verdict_p >= least)
