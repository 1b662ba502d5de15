"""What holds for every fleet: arrays agree with the obvious loop, and more room is never worse."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from federation.capacity.fleet_reports import FleetCapacity
from federation.capacity.summary_estimates import estimate_replicas, estimate_shapes
from federation.model.cluster import (
    CapacityReport,
    Cluster,
    ClusterState,
    NodeSummary,
    ResourceSummary,
)
from federation.model.estimate import MAX_REPLICAS, EstimateOptions, ModelRule, Source
from federation.model.grade_counts import count_grades, grade_of_nodes
from federation.model.grades import DEFAULT_MODEL, ResourceModel, minimums, model_hash
from federation.model.resources import MAX_AMOUNT
from federation.model.workload import ReplicaRequirements

NAMES = ("cpu", "memory", "pods", "nvidia.com/gpu")
MODELS = (
    DEFAULT_MODEL,
    ResourceModel(grades=DEFAULT_MODEL.grades[:3]),
    ResourceModel(
        grades=tuple(replace(grade, ranges=grade.ranges[:1]) for grade in DEFAULT_MODEL.grades)
    ),
    ResourceModel(),
)

bounds = sorted(set(minimums(DEFAULT_MODEL)["cpu"] + minimums(DEFAULT_MODEL)["memory"]))
sizes = (
    st.sampled_from(bounds)
    | st.integers(0, 200_000)
    | st.integers(0, 2**41)
    | st.integers(0, MAX_AMOUNT)
)
amounts = st.dictionaries(st.sampled_from(NAMES), sizes)
counts = st.dictionaries(st.integers(0, 10), st.integers(0, 5000) | sizes)


@st.composite
def cluster_states(draw: st.DrawFn) -> ClusterState:
    model = draw(st.sampled_from(MODELS))
    cluster = Cluster(name="member", model=model, modeling_enabled=draw(st.booleans()))
    if draw(st.integers(0, 9)) == 0:
        return ClusterState(cluster=cluster)
    graded_under = draw(st.sampled_from([model, model, model, DEFAULT_MODEL]))
    report = CapacityReport(
        epoch=1,
        sequence=1,
        snapshot_time=0.0,
        summary=ResourceSummary(
            allocatable=draw(amounts), allocated=draw(amounts), allocating=draw(amounts)
        ),
        nodes=NodeSummary(),
        grade_counts=draw(counts),
        model_hash=model_hash(graded_under),
    )
    return ClusterState(cluster=cluster, report=report)


fleets = st.lists(cluster_states(), min_size=1, max_size=6)
rules = st.sampled_from(ModelRule)
levels = st.sampled_from([Source.SUMMARY, Source.MODELS, Source.EXACT])


def obvious(
    state: ClusterState, request: Mapping[str, int], rule: ModelRule, highest: Source
) -> tuple[int, Source]:
    """The rules as the documentation tells them, for one cluster."""
    if state.report is None:
        return 0, Source.NONE
    wanted = {name: amount for name, amount in request.items() if amount > 0}
    summary = state.report.summary
    free = {
        name: max(
            0,
            amount - summary.allocated.get(name, 0) - summary.allocating.get(name, 0),
        )
        for name, amount in summary.allocatable.items()
    }
    most = min(free.get("pods", 0), MAX_REPLICAS)
    model = state.cluster.model
    can_grade = (
        highest >= Source.MODELS
        and state.cluster.modeling_enabled
        and model.grades
        and state.report.grade_counts
        and state.report.model_hash == model_hash(model)
        and set(wanted) <= set(model.resources)
    )
    if not can_grade:
        fits = [free.get(name, 0) // amount for name, amount in wanted.items()]
        return min([most, *fits]), Source.SUMMARY
    if not wanted:
        return most, Source.MODELS
    total = 0
    for position, grade in enumerate(model.grades):
        count = state.report.grade_counts.get(grade.grade, 0)
        total += count * one_node(model, position, wanted, rule)
    return min(total, most), Source.MODELS


def one_node(
    model: ResourceModel, position: int, wanted: Mapping[str, int], rule: ModelRule
) -> int:
    starts = minimums(model)
    fit = min(starts[name][position] // amount for name, amount in wanted.items())
    if rule is ModelRule.SIMULATED:
        return min(fit, 110)
    if rule is ModelRule.BOUNDARY:
        return fit if all(starts[name][position] >= wanted[name] for name in wanted) else 0
    is_usable = all(
        position == len(model.grades) - 1 or starts[name][position + 1] > amount
        for name, amount in wanted.items()
    )
    return max(1, fit) if is_usable else 0


@given(states=fleets, requests=st.lists(amounts, max_size=4), rule=rules, highest=levels)
def test_arrays_agree_with_the_obvious_loop(
    states: list[ClusterState], requests: list[dict[str, int]], rule: ModelRule, highest: Source
) -> None:
    together = estimate_shapes(
        FleetCapacity.of(states),
        [ReplicaRequirements(request=request) for request in requests],
        EstimateOptions(model_rule=rule, highest=highest),
    )
    for request, estimates in zip(requests, together, strict=True):
        expected = [obvious(state, request, rule, highest) for state in states]
        answers = zip(estimates.replicas_c.tolist(), estimates.source_c.tolist(), strict=True)
        assert list(answers) == expected


@given(
    states=fleets,
    request=amounts,
    rule=rules,
    name=st.sampled_from(NAMES),
    more=st.integers(1, 2**40),
)
def test_more_room_never_lowers_an_estimate(
    states: list[ClusterState], request: dict[str, int], rule: ModelRule, name: str, more: int
) -> None:
    def roomier(state: ClusterState) -> ClusterState:
        if state.report is None:
            return state
        allocatable = dict(state.report.summary.allocatable)
        allocatable[name] = allocatable.get(name, 0) + more
        summary = replace(state.report.summary, allocatable=allocatable)
        return replace(state, report=replace(state.report, summary=summary))

    requirements = ReplicaRequirements(request=request)
    options = EstimateOptions(model_rule=rule)
    before = estimate_replicas(FleetCapacity.of(states), requirements, options)
    after = estimate_replicas(FleetCapacity.of(map(roomier, states)), requirements, options)
    assert (after.replicas_c >= before.replicas_c).all()


free_amounts = st.integers(-10, 2**42) | st.integers(-(2**62), 2**62)


@given(nodes=st.lists(st.tuples(free_amounts, free_amounts), max_size=20))
def test_node_grades_agree_with_the_obvious_loop(nodes: list[tuple[int, int]]) -> None:
    expected = []
    for free in nodes:
        positions = []
        for amount, name in zip(free, DEFAULT_MODEL.resources, strict=True):
            holding = [
                position
                for position, grade in enumerate(DEFAULT_MODEL.grades)
                for each in grade.ranges
                if each.name == name and each.min <= amount < each.max
            ]
            positions += holding or [-1]
        expected.append(min(positions))
    free_rn = np.array(nodes, dtype=np.int64).reshape(-1, 2).T
    assert grade_of_nodes(DEFAULT_MODEL, free_rn).tolist() == expected
    assert sum(count_grades(DEFAULT_MODEL, free_rn).values()) == len(nodes) - expected.count(-1)
