"""Selection of clusters under spread constraints, as in Karmada where that keeps all of them.

Must not divide. If Karmada's choice breaks a constraint or cannot hold the replicas,
``selection.search`` is used.
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
from federation.scheduler.selection.search import (
    UNLIMITED,
    Level,
    SearchProblem,
    SearchResult,
    search,
)

# The rule of a selection that keeps the prior clusters.
KEPT: Final = "kept"
# A replica more in a region outweighs any mean score (0 to 100) of its clusters, as in Karmada.
_REPLICA_WORTH = 1000


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Shortlist:
    """The feasible clusters in candidate order, best first (axis k).

    ``capacity_k`` is what each can hold, prior replicas included. ``groups`` has a column for every
    field of a constraint except ``cluster``: the groups of each cluster. A cluster in several zones
    has several, one without the property has none.
    """

    score_k: IntArray
    capacity_k: IntArray
    groups: Mapping[SpreadField, Column[tuple[str, ...]]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.score_k)


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """The capacity that the selected clusters must have together: ``replicas``, if capacity is
    heeded.

    Duplicated replicas are needed in every cluster: then capacity only ranks regions. ``partial``
    accepts a selection that holds fewer.
    """

    replicas: int
    heeds_capacity: bool
    partial: bool = False

    @property
    def total(self) -> int:
        """Return the capacity that the selection must have."""
        return self.replicas if self.heeds_capacity else 0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Selection:
    """The chosen positions of the shortlist in the order of choice.

    ``shortage`` says why none was chosen, empty otherwise. ``lacks_capacity`` tells a lack of
    capacity from constraints that no choice can keep.
    """

    order_k: IntArray
    rule: str
    group_scores: dict[str, int] = field(default_factory=dict)
    proven: bool = True
    shortage: Reason = NO_REASON
    lacks_capacity: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bounds:
    """Minimum and maximum groups of one field."""

    least: int
    most: int


_NO_BOUNDS = _Bounds(least=1, most=UNLIMITED)


def select(shortlist: Shortlist, constraints: Sequence[SpreadConstraint], need: Need) -> Selection:
    """Choose clusters so that every constraint holds; all of them without a constraint."""
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
    """Return an existing choice as the selection; None if it has more groups than a constraint
    allows.
    """
    for constraint in constraints:
        limit = constraint.max_groups
        if limit is not None and _count(shortlist, constraint.by, choice_k) > limit:
            return None
    return Selection(order_k=choice_k, rule=KEPT)


def _by_cluster(shortlist: Shortlist, bounds: _Bounds, need: Need) -> IntArray:
    """Choose the best ``bounds.most`` clusters, and swap in larger ones while they hold too little.

    Swaps begin with the last cluster. A cluster that is swapped out takes the other one's place in
    the order of the rest.
    """
    count = min(len(shortlist), bounds.most)
    chosen = list(range(count))
    capacity_k = shortlist.capacity_k
    held = int(capacity_k[:count].sum())
    if held >= need.total:
        return np.array(chosen, dtype=np.int64)
    rest_k = np.arange(count, len(shortlist))
    # At most ``count`` swaps: the largest clusters, in order among equals, as a heap.
    rest_k = rest_k[np.lexsort((rest_k, -capacity_k[rest_k]))[:count]]
    largest = [(-int(capacity_k[k]), int(k), int(k)) for k in rest_k]
    for turn in range(count - 1, -1, -1):
        if held >= need.total or not largest:
            break
        out = chosen[turn]
        out_capacity = int(capacity_k[out])
        room, place, cluster = largest[0]
        if -room > out_capacity:
            heapq.heapreplace(largest, (-out_capacity, place, out))
            chosen[turn] = cluster
            held += -room - out_capacity
    return np.array(chosen, dtype=np.int64)


def _by_region(
    shortlist: Shortlist, bounds: Mapping[SpreadField, _Bounds], need: Need
) -> tuple[IntArray, dict[str, int]]:
    """Choose regions, then the best cluster of each, then the best of the others in these
    regions.
    """
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
        min_regions=region_bounds.least,
        max_regions=region_bounds.most,
        min_clusters=cluster_bounds.least,
    )
    first_r = members.first_of(region.name for region in chosen)
    eligible_k = members.mask_of((region.name for region in chosen), len(shortlist))
    eligible_k[first_r] = False
    (further_k,) = np.nonzero(eligible_k)
    further_k = further_k[: max(cluster_bounds.most - len(first_r), 0)]
    return np.concatenate((first_r, further_k)), {region.name: region.score for region in regions}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Members:
    """The shortlist by group (axis m), in candidate order within a group.

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
        """Return the best cluster of each of these groups."""
        return self.position_m[self.start_g[[self.names.index(name) for name in names]]]

    def mask_of(self, names: Iterable[str], count: int) -> BoolArray:
        """Return which of ``count`` shortlisted clusters are in these groups."""
        mask_k = np.zeros(count, np.bool_)
        for name in names:
            group = self.names.index(name)
            start, size = int(self.start_g[group]), int(self.size_g[group])
            mask_k[self.position_m[start : start + size]] = True
        return mask_k


def _scores_by_capacity(
    shortlist: Shortlist, members: _Members, per_region: int, enough: int
) -> IntArray:
    """Return the score of each region: its part of the replicas, then the mean score of its
    clusters.

    A region is walked in candidate order until ``enough`` clusters hold ``per_region`` replicas.
    The formula is ``min(held, per_region) * 1000 + mean score``.
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
    """Return the score of each region: ``clusters that hold all replicas * 1000 + mean score``."""
    fits_m = (shortlist.capacity_k[members.position_m] >= replicas).astype(np.int64)
    fits_g = np.add.reduceat(fits_m, members.start_g)
    scored_m = fits_m * shortlist.score_k[members.position_m]
    mean_g: IntArray = np.add.reduceat(scored_m, members.start_g) // np.maximum(fits_g, 1)
    return fits_g * _REPLICA_WORTH + mean_g


def _keeps(shortlist: Shortlist, bounds: Mapping[SpreadField, _Bounds], choice: IntArray) -> bool:
    """Return whether a choice keeps every constraint."""
    return all(
        bound.least <= _count(shortlist, by, choice) <= bound.most for by, bound in bounds.items()
    )


def _hopeless(shortlist: Shortlist, bounds: Mapping[SpreadField, _Bounds], need: Need) -> Reason:
    """Return why no search is needed: the largest clusters anywhere do not hold the replicas.

    NO_REASON if they do.
    """
    max_clusters = bounds.get(SpreadField.CLUSTER, _NO_BOUNDS).most
    held = int(np.sort(shortlist.capacity_k)[::-1][:max_clusters].sum())
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
    """Search a choice that keeps every constraint, placements first, or return why there is
    none.
    """
    nothing = np.array([], dtype=np.int64)
    refused = Selection(order_k=nothing, rule="search")
    everything = np.arange(len(shortlist))
    clusters = bounds.get(SpreadField.CLUSTER, _NO_BOUNDS)
    unkept = Reason.of(ReasonCode.SPREAD_UNKEPT, _wishes(bounds))
    for by, bound in bounds.items():
        groups = _count(shortlist, by, everything)
        if groups < bound.least:
            amounts = Amount(groups), Amount(bound.least)
            shortage = Reason.of(ReasonCode.TOO_FEW_GROUPS, Word(by.value), *amounts)
            return replace(refused, shortage=shortage)
        if by is not SpreadField.CLUSTER:
            # Too few clusters for so many groups: this is no lack of capacity.
            per_cluster = max(map(len, shortlist.groups[by].values))
            if clusters.most * per_cluster < bound.least:
                return replace(refused, shortage=unkept)
    held_k = np.minimum(shortlist.capacity_k, need.total)
    *preferred, plain_k = _objectives(shortlist, need)
    for value_k in preferred:
        result = search(_problem(shortlist, bounds, value_k))
        if len(result.choice_k) and int(held_k[result.choice_k].sum()) >= need.total:
            return replace(refused, order_k=result.choice_k, proven=result.proven)
    result = search(_problem(shortlist, bounds, plain_k))
    refused = replace(refused, proven=result.proven)
    if not len(result.choice_k):
        return replace(refused, shortage=joined(unkept, _doubt(result)))
    held = int(held_k[result.choice_k].sum())
    if held >= need.total or need.partial:
        return replace(refused, order_k=result.choice_k)
    shortage = joined(_too_small(ReasonCode.SPREAD_TOO_SMALL, held, need, bounds), _doubt(result))
    return replace(refused, shortage=shortage, lacks_capacity=True)


def _doubt(result: SearchResult) -> Reason:
    return NO_REASON if result.proven else Reason(ReasonCode.SEARCH_CUT_SHORT)


def _too_small(
    code: ReasonCode, held: int, need: Need, bounds: Mapping[SpreadField, _Bounds]
) -> Reason:
    return Reason.of(code, Amount(held), _wishes(bounds), Amount(need.total))


def _wishes(bounds: Mapping[SpreadField, _Bounds]) -> Parameter:
    """Return the constraints: field, minimum, and maximum or 0 without one."""
    return tuple(
        (
            Word(by.value),
            Amount(bound.least),
            Amount(0 if bound.most == UNLIMITED else bound.most),
        )
        for by, bound in bounds.items()
    )


def _objectives(shortlist: Shortlist, need: Need) -> tuple[IntArray, ...]:
    """Return the values to maximise, in turn, until a choice holds the replicas.

    Scores come first (mostly locality) with capacity second, then capacity alone.
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
    """A region with candidates: their number, and its score."""

    name: str
    clusters: int
    score: int


def choose_regions(
    regions: Sequence[Region], *, min_regions: int, max_regions: int, min_clusters: int
) -> tuple[Region, ...]:
    """Choose ``min_regions`` to ``max_regions`` regions that have at least ``min_clusters``
    clusters.

    The result is by descending score; it is empty if no combination has enough clusters.
    """
    walk = sorted(regions, key=lambda region: (region.clusters, -region.score, region.name))
    max_regions = min(max_regions, len(walk))
    if (
        min_regions > max_regions
        or sum(region.clusters for region in walk[len(walk) - max_regions :]) < min_clusters
    ):
        return ()
    if sum(region.clusters for region in walk[:min_regions]) >= min_clusters:
        chosen = _best_of_size(walk, min_regions)
    else:
        chosen = _best_combination(walk, min_regions, max_regions, min_clusters)
    ranked = sorted(chosen, key=lambda region: (-region.score, region.name))
    counted = 0
    for length, region in enumerate(ranked, start=1):
        counted += region.clusters
        if length >= min_regions and counted >= min_clusters:
            return tuple(ranked[:length])
    return tuple(ranked)


def _best_of_size(walk: Sequence[Region], size: int) -> Sequence[Region]:
    """Return the best ``size`` regions; any ``size`` regions have enough clusters here."""
    return sorted(walk, key=lambda region: (-region.score, -region.clusters, region.name))[:size]


def _best_combination(
    walk: Sequence[Region], min_regions: int, max_regions: int, min_clusters: int
) -> Sequence[Region]:
    """Choose by a dynamic programme over (regions taken, clusters taken), from the last region on.

    Of equally good combinations the one with the earlier regions is chosen.
    """
    taken_i = _worth_taking(walk, min_regions, max_regions, min_clusters)
    chosen: list[Region] = []
    clusters = 0
    for region, taken in zip(walk, taken_i, strict=True):
        if len(chosen) >= min_regions and clusters >= min_clusters:
            break
        if taken[len(chosen), clusters]:
            chosen.append(region)
            clusters = min(clusters + region.clusters, min_clusters)
    return chosen


def _worth_taking(
    walk: Sequence[Region], min_regions: int, max_regions: int, min_clusters: int
) -> list[BoolArray]:
    """Return whether taking a region is best, by (regions taken before, clusters taken before)."""
    # One number per combination, score before clusters; Python's integers beyond 64 bits.
    scale = sum(region.clusters for region in walk) + 1
    lowest = min(region.score for region in walk)
    worths = [(region.score - lowest + 1) * scale + region.clusters for region in walk]
    base = (lowest - 1) * scale
    dtype: Any = np.int64
    if (max(worths) + abs(base)) * (max_regions + 1) >= _SAFE:
        dtype = object
    never = -(2 * (max(worths) + abs(base)) * (max_regions + 1)) - 1
    best_rc: npt.NDArray[Any] = np.full((max_regions + 1, min_clusters + 1), never, dtype=dtype)
    # The common base adds ``base * regions taken``: it is added at the end of the programme.
    ends_r = np.array([base * count for count in range(min_regions, max_regions + 1)], dtype=dtype)
    best_rc[min_regions:, min_clusters] = ends_r
    taken_i: list[BoolArray] = []
    with_rc = np.empty_like(best_rc[1:])
    for region, worth in zip(reversed(walk), reversed(worths), strict=True):
        full = max(min_clusters - region.clusters, 0)
        with_rc[:, :full] = best_rc[1:, region.clusters : region.clusters + full]
        with_rc[:, full:] = best_rc[1:, min_clusters:]
        with_rc += worth
        taken_i.append(with_rc >= best_rc[:-1])
        np.maximum(best_rc[:-1], with_rc, out=best_rc[:-1])
        best_rc[min_regions:, min_clusters] = ends_r
    taken_i.reverse()
    return taken_i
