"""Selecting clusters under spread constraints, as Karmada does where that keeps every constraint.

Must not divide. Where Karmada's choice breaks a constraint or cannot hold the replicas, the
search (spread_search) takes over.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from federation.model.arrays import BoolArray, IntArray
from federation.model.placement import SpreadConstraint, SpreadField
from federation.model.reason_codes import ReasonCode
from federation.model.reasons import NO_REASON, Amount, Parameter, Reason, Word, joined
from federation.scheduler.fleet import Column
from federation.scheduler.selection.search import UNLIMITED, Found, Level, SearchProblem, search

# The rule of a selection that is as it was.
KEPT: Final = "kept"
# A replica that a region can hold outweighs any mean score of its clusters.
_REPLICA_WORTH = 1000


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Shortlist:
    """The feasible clusters in candidate order, axis k, best first.

    ``capacity_k`` is what each can hold, its own replicas included. ``groups`` gives, by spread
    field, the groups of each cluster (several for a cluster in several zones, none where unset);
    it has a column for every field that a constraint names, but for ``cluster``.
    """

    score_k: IntArray
    capacity_k: IntArray
    groups: Mapping[SpreadField, Column[tuple[str, ...]]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.score_k)


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """What the selected clusters must hold together: ``replicas``, if capacity is heeded.

    Duplicated replicas are needed in every cluster: capacity only ranks regions then.
    ``partial`` accepts a selection that holds fewer.
    """

    replicas: int
    heeds_capacity: bool
    partial: bool = False

    @property
    def total(self) -> int:
        """The capacity that the selection must have."""
        return self.replicas if self.heeds_capacity else 0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Selection:
    """The chosen positions of the shortlist in the order chosen.

    ``shortage`` says why nothing was chosen, empty when something was; ``lacks_capacity`` tells a
    lack of room from constraints that no choice can keep.
    """

    order_k: IntArray
    rule: str
    group_scores: dict[str, int] = field(default_factory=dict)
    proven: bool = True
    shortage: Reason = NO_REASON
    lacks_capacity: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bounds:
    """Least and most groups of one field."""

    least: int
    most: int


_NO_BOUNDS = _Bounds(least=1, most=UNLIMITED)


def select(shortlist: Shortlist, constraints: Sequence[SpreadConstraint], need: Need) -> Selection:
    """Choose clusters so that every constraint holds; all of them where there is none."""
    everything = np.arange(len(shortlist))
    if not constraints:
        return Selection(order_k=everything, rule="all")
    bounds = {
        constraint.by: _Bounds(
            least=max(constraint.min_groups, 1),
            most=UNLIMITED if constraint.max_groups is None else constraint.max_groups,
        )
        for constraint in constraints
    }
    group_scores: dict[str, int] = {}
    if SpreadField.REGION in bounds:
        rule = "region"
        choice, group_scores = _by_region(shortlist, bounds, need)
    elif SpreadField.CLUSTER in bounds:
        rule = "cluster"
        choice = _by_cluster(shortlist, bounds[SpreadField.CLUSTER], need)
    else:
        rule, choice = "all", everything
    selection = Selection(order_k=choice, rule=rule, group_scores=group_scores)
    if _keeps(shortlist, bounds, choice):
        if int(shortlist.capacity_k[choice].sum()) >= need.total:
            return selection
        shortage = _hopeless(shortlist, bounds, need)
        if shortage:
            nothing = selection.order_k[:0]
            return replace(selection, order_k=nothing, shortage=shortage, lacks_capacity=True)
    return replace(_searched(shortlist, bounds, need), group_scores=group_scores)


def keep(
    shortlist: Shortlist, constraints: Sequence[SpreadConstraint], choice_k: IntArray
) -> Selection | None:
    """The choice as it is; None where it has more groups than a constraint allows."""
    limited = (each for each in constraints if each.max_groups is not None)
    if any(_count(shortlist, each.by, choice_k) > (each.max_groups or 0) for each in limited):
        return None
    return Selection(order_k=choice_k, rule=KEPT)


def _by_cluster(shortlist: Shortlist, bounds: _Bounds, need: Need) -> IntArray:
    """The best ``most`` clusters; while they are too small, from the last, swap in the roomiest.

    A swapped-out cluster takes the place of the other in the order of the rest.
    """
    count = min(len(shortlist), bounds.most)
    chosen = list(range(count))
    capacity_k = shortlist.capacity_k
    held = int(capacity_k[:count].sum())
    if held >= need.total:
        return np.array(chosen, dtype=np.int64)
    rest_k = np.arange(count, len(shortlist))
    # No more than ``count`` swaps: the roomiest that many, first in order among equals.
    rest_k = rest_k[np.lexsort((rest_k, -capacity_k[rest_k]))[:count]]
    roomiest = [(-int(capacity_k[k]), int(k), int(k)) for k in rest_k]
    for turn in range(count - 1, -1, -1):
        if held >= need.total or not roomiest:
            break
        out = chosen[turn]
        out_capacity = int(capacity_k[out])
        room, place, cluster = roomiest[0]
        if -room > out_capacity:
            heapq.heapreplace(roomiest, (-out_capacity, place, out))
            chosen[turn] = cluster
            held += -room - out_capacity
    return np.array(chosen, dtype=np.int64)


def _by_region(
    shortlist: Shortlist, bounds: Mapping[SpreadField, _Bounds], need: Need
) -> tuple[IntArray, dict[str, int]]:
    """Choose regions, then the best cluster of each, then the best of what remains in them."""
    region_bounds = bounds[SpreadField.REGION]
    cluster_bounds = bounds.get(SpreadField.CLUSTER, _NO_BOUNDS)
    members = _Members.of(shortlist.groups[SpreadField.REGION])
    if not members.names:
        return members.position_m, {}
    if need.heeds_capacity:
        per_region = -(-need.replicas // max(region_bounds.least, 1))
        enough = max(cluster_bounds.least, region_bounds.least)
        score_g = _scores_by_capacity(shortlist, members, per_region, enough)
    else:
        score_g = _scores_by_count(shortlist, members, need.replicas)
    regions = [
        Region(name=name, clusters=clusters, score=score)
        for name, clusters, score in zip(
            members.names, members.size_g.tolist(), score_g.tolist(), strict=True
        )
    ]
    chosen = choose_regions(
        regions,
        least=region_bounds.least,
        most=region_bounds.most,
        least_clusters=cluster_bounds.least,
    )
    first_r = members.first_of(region.name for region in chosen)
    eligible_k = members.mask_of((region.name for region in chosen), len(shortlist))
    eligible_k[first_r] = False
    (others,) = np.nonzero(eligible_k)
    others = others[: max(cluster_bounds.most - len(first_r), 0)]
    return np.concatenate((first_r, others)), {region.name: region.score for region in regions}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Members:
    """The shortlist group by group (axis m), in candidate order within a group.

    Groups (axis g) are by ascending name; clusters without a group are left out.
    """

    names: tuple[str, ...]
    position_m: IntArray
    start_g: IntArray
    size_g: IntArray

    @classmethod
    def of(cls, column: Column[tuple[str, ...]]) -> _Members:
        names = sorted({name for value in column.values for name in value})
        rank_of = {name: rank for rank, name in enumerate(names)}
        ranks = [rank_of[value[0]] if value else len(names) for value in column.values]
        rank_k = np.array(ranks, dtype=np.int64)[column.code_c]
        order = np.argsort(rank_k, kind="stable")
        counts = np.bincount(rank_k, minlength=len(names) + 1)[: len(names)]
        (present,) = np.nonzero(counts)
        size_g = counts[present]
        return cls(
            names=tuple(names[rank] for rank in present.tolist()),
            position_m=order[: int(size_g.sum())],
            start_g=np.cumsum(size_g) - size_g,
            size_g=size_g,
        )

    def first_of(self, names: Iterable[str]) -> IntArray:
        """The best cluster of each of these groups."""
        return self.position_m[self.start_g[[self.names.index(name) for name in names]]]

    def mask_of(self, names: Iterable[str], count: int) -> BoolArray:
        """Which of ``count`` shortlisted clusters are in these groups."""
        mask_k = np.zeros(count, np.bool_)
        for name in names:
            group = self.names.index(name)
            start, size = int(self.start_g[group]), int(self.size_g[group])
            mask_k[self.position_m[start : start + size]] = True
        return mask_k


def _scores_by_capacity(
    shortlist: Shortlist, members: _Members, per_region: int, enough: int
) -> IntArray:
    """Replicas a region can take of its part, and the mean score of the clusters that takes.

    A region is walked in candidate order until ``enough`` clusters hold ``per_region`` replicas.
    """
    capacity_m = shortlist.capacity_k[members.position_m]
    score_m = shortlist.score_k[members.position_m]
    start_g, size_g = members.start_g, members.size_g
    held_m, scored_m = np.cumsum(capacity_m), np.cumsum(score_m)
    before_g = held_m[start_g] - capacity_m[start_g]
    scored_before_g = scored_m[start_g] - score_m[start_g]
    position_m = np.arange(len(capacity_m))
    walked_m = position_m - np.repeat(start_g, size_g) + 1
    reached_m = (walked_m >= enough) & (held_m - np.repeat(before_g, size_g) >= per_region)
    stop_m = np.where(reached_m, position_m, len(position_m))
    stop_g = np.minimum(np.minimum.reduceat(stop_m, start_g), start_g + size_g - 1)
    held_g: IntArray = np.minimum(held_m[stop_g] - before_g, per_region)
    mean_g: IntArray = (scored_m[stop_g] - scored_before_g) // (stop_g - start_g + 1)
    return held_g * _REPLICA_WORTH + mean_g


def _scores_by_count(shortlist: Shortlist, members: _Members, replicas: int) -> IntArray:
    """Clusters of a region that hold all replicas, and their mean score."""
    fits_m = (shortlist.capacity_k[members.position_m] >= replicas).astype(np.int64)
    fits_g = np.add.reduceat(fits_m, members.start_g)
    scored_m = fits_m * shortlist.score_k[members.position_m]
    mean_g: IntArray = np.add.reduceat(scored_m, members.start_g) // np.maximum(fits_g, 1)
    return fits_g * _REPLICA_WORTH + mean_g


def _keeps(shortlist: Shortlist, bounds: Mapping[SpreadField, _Bounds], choice: IntArray) -> bool:
    """Whether a choice keeps every constraint."""
    return all(
        bound.least <= _count(shortlist, by, choice) <= bound.most for by, bound in bounds.items()
    )


def _hopeless(shortlist: Shortlist, bounds: Mapping[SpreadField, _Bounds], need: Need) -> Reason:
    """Why no search is needed: even the roomiest clusters anywhere do not hold the replicas."""
    most = bounds.get(SpreadField.CLUSTER, _NO_BOUNDS).most
    held = int(np.sort(shortlist.capacity_k)[::-1][:most].sum())
    if held >= need.total or need.partial:
        return NO_REASON
    return _too_small(ReasonCode.SPREAD_HOPELESS, held, need, bounds)


def _count(shortlist: Shortlist, by: SpreadField, choice: IntArray) -> int:
    if by is SpreadField.CLUSTER:
        return len(choice)
    column = shortlist.groups[by]
    codes = np.unique(column.code_c[choice]).tolist()
    return len({name for code in codes for name in column.values[code]})


def _searched(shortlist: Shortlist, bounds: Mapping[SpreadField, _Bounds], need: Need) -> Selection:
    """Any choice that keeps every constraint, one that keeps placements first, or why none."""
    nothing = np.array([], dtype=np.int64)
    refused = Selection(order_k=nothing, rule="search")
    everything = np.arange(len(shortlist))
    clusters = bounds.get(SpreadField.CLUSTER, _NO_BOUNDS)
    unkept = Reason.of(ReasonCode.SPREAD_UNKEPT, _wishes(bounds))
    for by, bound in bounds.items():
        there = _count(shortlist, by, everything)
        if there < bound.least:
            amounts = Amount(there), Amount(bound.least)
            shortage = Reason.of(ReasonCode.TOO_FEW_GROUPS, Word(by.value), *amounts)
            return replace(refused, shortage=shortage)
        if by is not SpreadField.CLUSTER:
            # What so few clusters cannot cover is not a lack of capacity.
            per_cluster = max(map(len, shortlist.groups[by].values))
            if clusters.most * per_cluster < bound.least:
                return replace(refused, shortage=unkept)
    held_k = np.minimum(shortlist.capacity_k, need.total)
    *preferred, plain_k = _objectives(shortlist, need)
    for value_k in preferred:
        found = search(_problem(shortlist, bounds, value_k))
        if len(found.choice_k) and int(held_k[found.choice_k].sum()) >= need.total:
            return replace(refused, order_k=found.choice_k, proven=found.proven)
    found = search(_problem(shortlist, bounds, plain_k))
    refused = replace(refused, proven=found.proven)
    if not len(found.choice_k):
        return replace(refused, shortage=joined(unkept, _doubt(found)))
    held = int(held_k[found.choice_k].sum())
    if held >= need.total or need.partial:
        return replace(refused, order_k=found.choice_k)
    shortage = joined(_too_small(ReasonCode.SPREAD_TOO_SMALL, held, need, bounds), _doubt(found))
    return replace(refused, shortage=shortage, lacks_capacity=True)


def _doubt(found: Found) -> Reason:
    return NO_REASON if found.proven else Reason(ReasonCode.SEARCH_CUT_SHORT)


def _too_small(
    code: ReasonCode, held: int, need: Need, bounds: Mapping[SpreadField, _Bounds]
) -> Reason:
    return Reason.of(code, Amount(held), _wishes(bounds), Amount(need.total))


def _wishes(bounds: Mapping[SpreadField, _Bounds]) -> Parameter:
    """The constraints: each with its field, its minimum, and its maximum or 0 without one."""
    return tuple(
        (
            Word(by.value),
            Amount(bound.least),
            Amount(0 if bound.most == UNLIMITED else bound.most),
        )
        for by, bound in bounds.items()
    )


def _objectives(shortlist: Shortlist, need: Need) -> tuple[IntArray, ...]:
    """What to make as large as possible, in turn, until a choice holds the replicas.

    Scores first (locality above all) with capacity second, then capacity alone.
    """
    if not need.heeds_capacity:
        fits_k = (shortlist.capacity_k >= need.replicas).astype(np.int64)
        return (fits_k * _REPLICA_WORTH + shortlist.score_k + 1,)
    held_k = np.minimum(shortlist.capacity_k, need.replicas)
    return (held_k + shortlist.score_k * need.replicas, held_k)


def _problem(
    shortlist: Shortlist, bounds: Mapping[SpreadField, _Bounds], value_k: IntArray
) -> SearchProblem:
    clusters = bounds.get(SpreadField.CLUSTER, _NO_BOUNDS)
    levels = tuple(
        Level(groups=shortlist.groups[by], least=bound.least, most=bound.most)
        for by, bound in bounds.items()
        if by is not SpreadField.CLUSTER
    )
    return SearchProblem(value_k=value_k, levels=levels, least=clusters.least, most=clusters.most)


_SAFE = 2**61


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """A region with candidates: how many, and what it scores."""

    name: str
    clusters: int
    score: int


def choose_regions(
    regions: Sequence[Region], *, least: int, most: int, least_clusters: int
) -> tuple[Region, ...]:
    """Between ``least`` and ``most`` regions with at least ``least_clusters`` clusters.

    Best score first. Empty when no combination has enough clusters.
    """
    walk = sorted(regions, key=lambda region: (region.clusters, -region.score, region.name))
    most = min(most, len(walk))
    if least > most or sum(region.clusters for region in walk[len(walk) - most :]) < least_clusters:
        return ()
    if sum(region.clusters for region in walk[:least]) >= least_clusters:
        chosen = _best_of_size(walk, least)
    else:
        chosen = _best_combination(walk, least, most, least_clusters)
    ranked = sorted(chosen, key=lambda region: (-region.score, region.name))
    counted = 0
    for length, region in enumerate(ranked, start=1):
        counted += region.clusters
        if length >= least and counted >= least_clusters:
            return tuple(ranked[:length])
    return tuple(ranked)


def _best_of_size(walk: Sequence[Region], size: int) -> Sequence[Region]:
    """Any ``size`` regions have enough clusters: the best ones are the best combination."""
    return sorted(walk, key=lambda region: (-region.score, -region.clusters, region.name))[:size]


def _best_combination(
    walk: Sequence[Region], least: int, most: int, least_clusters: int
) -> Sequence[Region]:
    """Dynamic programme over (regions taken, clusters taken), from the last region to the first.

    Of equally good combinations the walk finds that one first which takes the earlier regions.
    """
    taken_i = _worth_taking(walk, least, most, least_clusters)
    chosen: list[Region] = []
    clusters = 0
    for region, taken in zip(walk, taken_i, strict=True):
        if len(chosen) >= least and clusters >= least_clusters:
            break
        if taken[len(chosen), clusters]:
            chosen.append(region)
            clusters = min(clusters + region.clusters, least_clusters)
    return chosen


def _worth_taking(
    walk: Sequence[Region], least: int, most: int, least_clusters: int
) -> list[BoolArray]:
    """Per region and (regions taken before, clusters taken before): whether taking it is best."""
    # One number per combination, score before clusters; beyond 64 bits in Python's integers.
    scale = sum(region.clusters for region in walk) + 1
    lowest = min(region.score for region in walk)
    worths = [(region.score - lowest + 1) * scale + region.clusters for region in walk]
    base = (lowest - 1) * scale
    dtype: Any = np.int64
    if (max(worths) + abs(base)) * (most + 1) >= _SAFE:
        dtype = object
    never = -(2 * (max(worths) + abs(base)) * (most + 1)) - 1
    best_rc: npt.NDArray[Any] = np.full((most + 1, least_clusters + 1), never, dtype=dtype)
    # What the common base adds depends on the number of regions taken alone: owed at the end.
    ends_r = np.array([base * count for count in range(least, most + 1)], dtype=dtype)
    best_rc[least:, least_clusters] = ends_r
    taken_i: list[BoolArray] = []
    with_rc = np.empty_like(best_rc[1:])
    for region, worth in zip(reversed(walk), reversed(worths), strict=True):
        full = max(least_clusters - region.clusters, 0)
        with_rc[:, :full] = best_rc[1:, region.clusters : region.clusters + full]
        with_rc[:, full:] = best_rc[1:, least_clusters:]
        with_rc += worth
        taken_i.append(with_rc >= best_rc[:-1])
        np.maximum(best_rc[:-1], with_rc, out=best_rc[:-1])
        best_rc[least:, least_clusters] = ends_r
    taken_i.reverse()
    return taken_i
