"""Selection: complete on small fleets, and the choice of regions equal to Karmada's enumeration."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from federation.model.placement import SpreadConstraint, SpreadField
from federation.model.reason_codes import ReasonCode
from federation.model.reasons import Amount, clauses_of
from federation.scheduler.fleet import Column
from federation.scheduler.selection.spread import Need, Region, Shortlist, choose_regions, select

NAMES = {
    SpreadField.REGION: ("r0", "r1", "r2", "r3"),
    SpreadField.ZONE: ("z0", "z1", "z2", "z3", "z4"),
    SpreadField.PROVIDER: ("p0", "p1", "p2"),
}


@st.composite
def constraints(draw: st.DrawFn) -> tuple[SpreadConstraint, ...]:
    fields = draw(st.lists(st.sampled_from(list(SpreadField)), min_size=1, max_size=4, unique=True))
    chosen = []
    for field in fields:
        least = draw(st.integers(0, 3))
        most = draw(st.none() | st.integers(max(least, 1), 5))
        chosen.append(SpreadConstraint(by=field, min_groups=least, max_groups=most))
    return tuple(chosen)


@st.composite
def shortlists(draw: st.DrawFn) -> Shortlist:
    """Up to eight clusters in candidate order; some are in two zones."""
    count = draw(st.integers(1, 8))
    ranked = sorted(
        draw(
            st.lists(
                st.tuples(st.sampled_from([0, 100]), st.integers(0, 12)),
                min_size=count,
                max_size=count,
            )
        ),
        reverse=True,
    )
    groups: dict[SpreadField, Column[tuple[str, ...]]] = {}
    for field, names in NAMES.items():
        most = 2 if field is SpreadField.ZONE else 1
        sizes = [draw(st.integers(1, most)) for _ in range(count)]
        groups[field] = Column.of(
            tuple(sorted(draw(st.permutations(names))[:size])) for size in sizes
        )
    return Shortlist(
        score_k=np.array([score for score, _ in ranked], dtype=np.int64),
        capacity_k=np.array([capacity for _, capacity in ranked], dtype=np.int64),
        groups=groups,
    )


def keeps(
    shortlist: Shortlist, wanted: Sequence[SpreadConstraint], positions: Sequence[int]
) -> bool:
    for constraint in wanted:
        if constraint.by is SpreadField.CLUSTER:
            used = len(positions)
        else:
            column = shortlist.groups[constraint.by]
            used = len({name for k in positions for name in column.values[column.code_c[k]]})
        if used < max(constraint.min_groups, 1):
            return False
        if constraint.max_groups is not None and used > constraint.max_groups:
            return False
    return True


@settings(max_examples=150, deadline=None)
@given(shortlists(), constraints(), st.integers(0, 40), st.booleans())
def test_selection_is_right_and_complete(
    shortlist: Shortlist, wanted: tuple[SpreadConstraint, ...], replicas: int, heeds: bool
) -> None:
    need = Need(replicas=replicas, heeds_capacity=heeds)
    selection = select(shortlist, wanted, need)
    every = range(len(shortlist))
    choices = [
        positions
        for size in range(1, len(shortlist) + 1)
        for positions in combinations(every, size)
        if keeps(shortlist, wanted, positions)
    ]
    best = max((int(shortlist.capacity_k[list(p)].sum()) for p in choices), default=-1)
    if not choices:
        assert selection.shortage
        assert not selection.lacks_capacity
    elif best < need.total:
        assert selection.lacks_capacity
        (shortage, *_) = clauses_of(selection.shortage)
        bounded = shortage.code is ReasonCode.SPREAD_HOPELESS
        held, _, total = shortage.parameters
        assert isinstance(held, Amount)
        assert total == Amount(need.total)
        named = held.number
        assert best <= named < need.total if bounded else named == best
    else:
        assert not selection.shortage
        chosen = selection.order_k.tolist()
        assert len(set(chosen)) == len(chosen) > 0
        assert keeps(shortlist, wanted, chosen)
        assert shortlist.capacity_k[chosen].sum() >= need.total


@settings(max_examples=80, deadline=None)
@given(shortlists(), constraints(), st.integers(0, 40))
def test_partial_selection_holds_as_much_as_any(
    shortlist: Shortlist, wanted: tuple[SpreadConstraint, ...], replicas: int
) -> None:
    need = Need(replicas=replicas, heeds_capacity=True, partial=True)
    selection = select(shortlist, wanted, need)
    every = range(len(shortlist))
    held = [
        int(shortlist.capacity_k[list(positions)].sum())
        for size in range(1, len(shortlist) + 1)
        for positions in combinations(every, size)
        if keeps(shortlist, wanted, positions)
    ]
    assert bool(held) is not bool(selection.shortage)
    if held:
        assert shortlist.capacity_k[selection.order_k].sum() >= min(max(held), replicas)


def enumerated(
    regions: Sequence[Region], least: int, most: int, least_clusters: int
) -> tuple[Region, ...]:
    """Karmada's rule as it is told: every combination, depth first."""
    walk = sorted(regions, key=lambda r: (r.clusters, -r.score, r.name))
    paths: list[list[Region]] = []

    def extend(start: int, path: list[Region]) -> None:
        if least <= len(path) <= most and sum(r.clusters for r in path) >= least_clusters:
            paths.append(path)
            return
        if len(path) < most:
            for position in range(start, len(walk)):
                extend(position + 1, [*path, walk[position]])

    extend(0, [])
    paths.sort(key=lambda path: (-sum(r.score for r in path), -sum(r.clusters for r in path)))
    ranked = [sorted(path, key=lambda r: (-r.score, r.name)) for path in paths]
    best = ranked[0] if ranked else []
    for path in ranked[1:]:
        if len(path) < len(best) and best[: len(path)] == path:
            best = path
    return tuple(best)


SCORES = st.one_of(st.sampled_from([0, 1000, 2000, 2050]), st.integers(0, 9000), st.just(2**50))


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 5), SCORES), min_size=1, max_size=7),
    st.integers(1, 4),
    st.integers(0, 3),
    st.integers(0, 14),
)
def test_choice_of_regions_equals_the_enumeration(
    shapes: list[tuple[int, int]], least: int, more: int, least_clusters: int
) -> None:
    regions = [
        Region(name=f"r{number}", clusters=clusters, score=score)
        for number, (clusters, score) in enumerate(shapes)
    ]
    chosen = choose_regions(
        regions, min_regions=least, max_regions=least + more, min_clusters=least_clusters
    )
    assert chosen == enumerated(regions, least, least + more, least_clusters)
