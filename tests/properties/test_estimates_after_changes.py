"""Estimates made of what changed are those that are worked out anew, and say the same later."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from federation.capacity.deductions import Deductions
from federation.capacity.fleet_cells import FleetCells
from federation.capacity.fleet_reports import FleetCapacity
from federation.model.cluster import ClusterState
from federation.model.estimate import MAX_REPLICAS, EstimateOptions, Estimates, ModelRule, Source
from federation.model.pools.values import Pools
from federation.model.positions import Moves
from federation.model.reservations import Outstanding
from federation.model.workload import ReplicaRequirements
from federation.services.fleet.known_estimates import KnownEstimates
from tests.properties.test_estimates_beside_promises import drawn_cells, pools_of, shapes
from tests.properties.test_model_estimates import amounts, cluster_states, obvious, one_node, rules

CLUSTERS = 4
EXACT_BELOW = 2**53
Promised = tuple[Outstanding, ...]


class World(NamedTuple):
    """A state of a fleet; its cells are made of those of the state before."""

    states: list[ClusterState]
    pools: list[Pools | None]
    promised: list[Promised]
    cells: FleetCells


promises = st.lists(
    st.builds(
        lambda requirements, in_cells, bound: Outstanding(
            binding="x",
            requirements=requirements,
            in_cells=in_cells,
            in_summary=max(0, in_cells - bound),
        ),
        requirements=shapes,
        in_cells=st.integers(1, 6),
        bound=st.integers(0, 3),
    ),
    max_size=4,
).map(tuple)
reports = st.one_of(st.none(), drawn_cells.map(pools_of))
positions = st.integers(0, CLUSTERS - 1)
changes = st.lists(
    st.one_of(
        st.tuples(st.just("state"), positions, cluster_states()),
        st.tuples(st.just("pools"), positions, reports),
        st.tuples(st.just("promises"), positions, promises),
        st.tuples(st.just("cluster"), positions, cluster_states()),
    ),
    max_size=8,
)


def changed(world: World, kind: str, position: int, newer: object) -> World:
    states, pools, promised = list(world.states), list(world.pools), list(world.promised)
    place = position % len(states)
    match kind, newer:
        case "state", ClusterState():
            states[place] = newer
        case "promises", tuple():
            promised[place] = newer
        case "cluster", ClusterState() if len(states) == CLUSTERS:
            # One more stands before some of the others, so that those move.
            states.insert(place, newer)
            pools.insert(place, None)
            promised.insert(place, ())
            moved = world.cells.after(Moves(added=[place]))
            return World(states, pools, promised, moved)
        case "cluster", _:
            del states[place], pools[place], promised[place]
            return World(states, pools, promised, world.cells.after(Moves(removed=[place])))
        case _, (Pools() | None):
            pools[place] = newer
            cells = world.cells.with_clusters({place: newer})
            return World(states, pools, promised, cells)
    return World(states, pools, promised, world.cells)


def estimates(
    known: KnownEstimates,
    capacity: FleetCapacity,
    world: World,
    asked: Sequence[ReplicaRequirements],
    options: EstimateOptions,
) -> list[Estimates]:
    outstanding = {c: each for c, each in enumerate(world.promised) if each}
    return known.estimates_of_each(capacity, world.cells, asked, options, outstanding)


def anew(
    capacity: FleetCapacity,
    world: World,
    asked: Sequence[ReplicaRequirements],
    options: EstimateOptions,
) -> list[Estimates]:
    fresh = world._replace(cells=FleetCells.of(world.pools))
    return estimates(KnownEstimates(), capacity, fresh, asked, options)


def as_lists(estimates: Sequence[Estimates]) -> list[tuple[object, ...]]:
    return [
        (
            each.replicas_c.tolist(),
            each.source_c.tolist(),
            each.bound_c.tolist(),
            None if each.upper_c is None else each.upper_c.tolist(),
            each.reasons,
        )
        for each in estimates
    ]


@settings(deadline=None)
@given(
    states=st.lists(cluster_states(), min_size=CLUSTERS, max_size=CLUSTERS),
    pools=st.lists(reports, min_size=CLUSTERS, max_size=CLUSTERS),
    promised=st.lists(promises, min_size=CLUSTERS, max_size=CLUSTERS),
    steps=changes,
    asked=st.lists(shapes, min_size=1, max_size=3),
    rule=rules,
    highest=st.sampled_from([Source.SUMMARY, Source.MODELS, Source.POOLS]),
)
def test_what_changed_is_worked_out_as_all_of_it_would_be(
    states: list[ClusterState],
    pools: list[Pools | None],
    promised: list[Promised],
    steps: list[tuple[str, int, object]],
    asked: list[ReplicaRequirements],
    rule: ModelRule,
    highest: Source,
) -> None:
    options = EstimateOptions(model_rule=rule, highest=highest)
    known, world = KnownEstimates(), World(states, pools, promised, FleetCells.of(pools))
    capacity = FleetCapacity.of(states)
    before = [as_lists(estimates(known, capacity, world, asked, options))]
    fleets = [(capacity, world)]
    for step in steps:
        world = changed(world, *step)
        same_size = len(world.states) == len(capacity)
        newer = {
            c: each
            for c, each in enumerate(world.states)
            if same_size and each is not capacity.states[c]
        }
        capacity = capacity.with_clusters(newer) if same_size else FleetCapacity.of(world.states)
        fleets.append((capacity, world))
        before.append(as_lists(estimates(known, capacity, world, asked, options)))
    for (each, then), found in zip(fleets, before, strict=True):
        assert found == as_lists(anew(each, then, asked, options))
        # Who still reads an older state of the fleet is answered by that one.
        assert found == as_lists(estimates(known, each, then, asked, options))


@given(
    states=st.lists(cluster_states(), min_size=1, max_size=3),
    promised=promises,
    asked=amounts.filter(lambda request: any(request.values())),
    rule=st.sampled_from([ModelRule.DOCUMENTED, ModelRule.BOUNDARY]),
)
def test_grade_counts_lose_what_each_promised_replica_displaces_at_most(
    states: list[ClusterState], promised: Promised, asked: dict[str, int], rule: ModelRule
) -> None:
    bound = tuple(each._replace(in_summary=0) for each in promised)
    found = Deductions.of(FleetCapacity.of(states), dict.fromkeys(range(len(states)), bound))
    estimates = found.estimates(
        ReplicaRequirements(request=asked), EstimateOptions(model_rule=rule)
    )
    wanted = {name: amount for name, amount in asked.items() if amount}
    lost = sum(
        each.in_cells
        * max(-(-each.requirements.request.get(name, 0) // wanted[name]) for name in wanted)
        for each in promised
    )
    for position, state in enumerate(states):
        if estimates.source_c[position] != Source.MODELS or state.report is None:
            continue
        whole = sum(
            min(state.report.grade_counts.get(grade.grade, 0), MAX_REPLICAS)
            * min(one_node(state.cluster.model, place, wanted, rule), MAX_REPLICAS)
            for place, grade in enumerate(state.cluster.model.grades)
        )
        most, _ = obvious(state, {}, rule, Source.MODELS)
        # Beyond that floats are not exact, and no cluster is that large.
        if whole < EXACT_BELOW:
            assert estimates.replicas_c[position] == min(max(0, whole - lost), most)
