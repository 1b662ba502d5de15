"""Estimates from summaries and grade counts: the documented cases, fallbacks and their reasons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from federation.capacity.fleet_reports import FleetCapacity
from federation.capacity.summary_estimates import (
    NUMBERS_AT_ONCE,
    estimate_replicas,
    estimate_shapes,
)
from federation.model.cluster import (
    CapacityReport,
    Cluster,
    ClusterState,
    NodeSummary,
    ResourceSummary,
)
from federation.model.estimate import (
    CANNOT_SEE_NODES,
    MAX_REPLICAS,
    Bound,
    EstimateOptions,
    Estimates,
    ModelRule,
    Source,
)
from federation.model.grades import DEFAULT_MODEL, ResourceModel, model_hash
from federation.model.resources import MAX_AMOUNT
from federation.model.workload import (
    NodeClaim,
    ReplicaRequirements,
    Toleration,
    TolerationOperator,
)

GIB = 1 << 30
AMPLE = {"cpu": 10**9, "memory": 10**15, "pods": 10_000}


def report(
    allocatable: Mapping[str, int],
    allocated: Mapping[str, int] | None = None,
    grade_counts: Mapping[int, int] | None = None,
    model: ResourceModel = DEFAULT_MODEL,
) -> CapacityReport:
    return CapacityReport(
        epoch=1,
        sequence=1,
        snapshot_time=0.0,
        summary=ResourceSummary(allocatable=allocatable, allocated=allocated or {}),
        nodes=NodeSummary(),
        grade_counts=grade_counts or {},
        model_hash=model_hash(model),
    )


def graded(name: str, counts: Mapping[int, int]) -> ClusterState:
    return ClusterState(cluster=Cluster(name=name), report=report(AMPLE, grade_counts=counts))


MEMBERS = [
    graded("member1", {2: 1, 3: 6}),
    graded("member2", {2: 4, 3: 4}),
    graded("member3", {6: 1}),
]


def estimate(
    states: Sequence[ClusterState],
    request: Mapping[str, int],
    rule: ModelRule = ModelRule.DOCUMENTED,
    highest: Source = Source.EXACT,
    *,
    modeling_enabled: bool = True,
) -> Estimates:
    return estimate_replicas(
        FleetCapacity.of(states, modeling_enabled=modeling_enabled),
        ReplicaRequirements(request=request),
        EstimateOptions(model_rule=rule, highest=highest),
    )


@pytest.mark.parametrize(
    ("rule", "cpu_millis", "memory_gibibytes", "replicas"),
    [
        (ModelRule.DOCUMENTED, 3000, 20, [7, 8, 10]),
        (ModelRule.DOCUMENTED, 3000, 60, [6, 4, 4]),
        (ModelRule.DOCUMENTED, 5000, 60, [6, 4, 4]),
        (ModelRule.DOCUMENTED, 2000, 16, [13, 12, 16]),
        (ModelRule.SIMULATED, 3000, 20, [6, 4, 10]),
        (ModelRule.SIMULATED, 3000, 60, [0, 0, 4]),
        (ModelRule.BOUNDARY, 3000, 20, [6, 4, 10]),
        (ModelRule.BOUNDARY, 3000, 60, [0, 0, 4]),
    ],
)
def test_the_documented_cases(
    rule: ModelRule, cpu_millis: int, memory_gibibytes: int, replicas: list[int]
) -> None:
    estimates = estimate(MEMBERS, {"cpu": cpu_millis, "memory": memory_gibibytes * GIB}, rule)
    assert estimates.replicas_c.tolist() == replicas
    assert estimates.source_c.tolist() == [Source.MODELS] * 3
    assert estimates.bound_c.tolist() == [Bound.NONE] * 3
    assert estimates.reasons == {}


def test_a_grade_holds_a_request_of_exactly_its_minimum() -> None:
    counts = {1: 100, 2: 1}
    assert estimate([graded("a", counts)], {"cpu": 2000}).replicas_c.tolist() == [1]
    assert estimate([graded("a", counts)], {"cpu": 1999}).replicas_c.tolist() == [101]


def test_pod_slots_of_a_simulated_node_are_110() -> None:
    small = {"cpu": 10, "memory": 16 << 20}
    assert estimate(MEMBERS[:1], small, ModelRule.SIMULATED).replicas_c.tolist() == [7 * 110]
    assert estimate(MEMBERS[:1], small, ModelRule.DOCUMENTED).replicas_c.tolist() == [2600]


def test_the_documented_summaries() -> None:
    states = [
        ClusterState(cluster=Cluster(name=name), report=report(allocatable, allocated))
        for name, allocatable, allocated in (
            ("a", {"cpu": 4000, "pods": 100}, {"cpu": 950}),
            ("b", {"cpu": 4000, "pods": 100}, {"cpu": 2000}),
            ("c", {"cpu": 4000, "pods": 100}, {"cpu": 0, "pods": 100}),
        )
    ]
    estimates = estimate(states, {"cpu": 500})
    assert estimates.replicas_c.tolist() == [6, 4, 0]
    assert estimates.source_c.tolist() == [Source.SUMMARY] * 3


@pytest.mark.parametrize("rule", list(ModelRule))
@pytest.mark.parametrize("request_of", [{}, {"cpu": 0}, {"cpu": 0, "nvidia.com/gpu": 0}])
def test_asking_for_nothing_takes_every_pod_slot(
    rule: ModelRule, request_of: dict[str, int]
) -> None:
    states = [graded("a", {0: 0}), graded("b", {3: 1})]
    assert estimate(states, request_of, rule).replicas_c.tolist() == [10_000, 10_000]
    by_summary = estimate(states, request_of, rule, Source.SUMMARY)
    assert by_summary.replicas_c.tolist() == [10_000, 10_000]


def test_grades_are_capped_by_free_pods() -> None:
    full = ClusterState(
        cluster=Cluster(name="a"), report=report({**AMPLE, "pods": 5}, {"pods": 2}, {8: 9})
    )
    assert estimate([full], {"cpu": 1}).replicas_c.tolist() == [3]


def test_an_absent_resource_is_0_and_no_report_is_unknown() -> None:
    states = [graded("a", {}), ClusterState(cluster=Cluster(name="b"))]
    estimates = estimate(states, {"nvidia.com/gpu": 1})
    assert estimates.replicas_c.tolist() == [0, 0]
    assert estimates.unknown_c.tolist() == [False, True]
    assert estimates.reasons[1] == "the cluster has not reported yet"


def test_an_overdrawn_cluster_is_0() -> None:
    overdrawn = ClusterState(
        cluster=Cluster(name="a"), report=report({"cpu": 1000, "pods": 9}, {"cpu": 1001})
    )
    assert estimate([overdrawn], {"cpu": 1}).replicas_c.tolist() == [0]


def test_a_resource_the_model_lacks_is_answered_by_the_summary_as_a_whole() -> None:
    state = ClusterState(
        cluster=Cluster(name="a"),
        report=report({**AMPLE, "nvidia.com/gpu": 8}, grade_counts={1: 2}),
    )
    estimates = estimate([state], {"cpu": 16_000, "nvidia.com/gpu": 1})
    assert estimates.replicas_c.tolist() == [8]
    assert estimates.source_c.tolist() == [Source.SUMMARY]
    assert estimates.reasons == {0: "the resource model lacks nvidia.com/gpu"}


def test_counts_that_cannot_be_used_fall_to_the_summary_and_say_why() -> None:
    usable = graded("a", {1: 1})
    assert usable.report is not None
    no_model = ResourceModel()
    states = [
        replace(usable, cluster=replace(usable.cluster, modeling_enabled=False)),
        replace(usable, report=replace(usable.report, grade_counts={})),
        replace(usable, report=replace(usable.report, model_hash="another")),
        replace(
            usable,
            cluster=replace(usable.cluster, model=no_model),
            report=replace(usable.report, model_hash=model_hash(no_model)),
        ),
        usable,
    ]
    estimates = estimate(states, {"cpu": 10**8})
    assert estimates.replicas_c.tolist() == [10, 10, 10, 10, 0]
    assert estimates.source_c.tolist() == [Source.SUMMARY] * 4 + [Source.MODELS]
    assert estimates.reasons == {
        0: "resource modelling is switched off for the cluster",
        1: "the report has no grade counts",
        2: "the report was graded under another resource model",
        3: "the cluster has no resource model",
    }


def test_modelling_can_be_switched_off_everywhere() -> None:
    estimates = estimate(MEMBERS, {"cpu": 10**8}, modeling_enabled=False)
    assert estimates.source_c.tolist() == [Source.SUMMARY] * 3
    assert set(estimates.reasons.values()) == {"resource modelling is switched off"}


def test_a_level_nobody_asked_for_gives_no_reason() -> None:
    states = [replace(MEMBERS[0], cluster=Cluster(name="a", modeling_enabled=False))]
    assert estimate(states, {"cpu": 1}, highest=Source.SUMMARY).reasons == {}


@pytest.mark.parametrize("highest", [Source.SUMMARY, Source.MODELS, Source.POOLS])
@pytest.mark.parametrize(
    "claim", [NodeClaim(node_selector={"zone": "a"}), NodeClaim(required_terms=())]
)
def test_who_cannot_see_nodes_does_not_answer_for_chosen_ones(
    claim: NodeClaim, highest: Source
) -> None:
    requirements = ReplicaRequirements(request={"cpu": 3000}, node_claim=claim)
    plain = ReplicaRequirements(request={"cpu": 3000})
    options = EstimateOptions(highest=highest)
    capacity = FleetCapacity.of([*MEMBERS, replace(MEMBERS[0], report=None)])
    found, other = estimate_shapes(capacity, [requirements, plain], options)
    assert found.unknown_c.all()
    assert found.reasons == {
        **dict.fromkeys(range(3), CANNOT_SEE_NODES),
        3: "the cluster has not reported yet",
    }
    assert (
        other.replicas_c.tolist() == estimate_replicas(capacity, plain, options).replicas_c.tolist()
    )
    (told,) = estimate_shapes(capacity, [requirements], replace(options, ignore_claims=True))
    assert told.replicas_c.tolist() == other.replicas_c.tolist()
    assert told.bound_c.tolist() == [Bound.NONE] * 4


def test_tolerations_choose_no_nodes() -> None:
    claim = NodeClaim(tolerations=(Toleration(operator=TolerationOperator.EXISTS),))
    requirements = ReplicaRequirements(request={"cpu": 3000}, node_claim=claim)
    found = estimate_replicas(FleetCapacity.of(MEMBERS), requirements, EstimateOptions())
    assert found.replicas_c.tolist() == estimate(MEMBERS, {"cpu": 3000}).replicas_c.tolist()


def test_more_shapes_than_go_at_once_are_answered_in_their_order() -> None:
    capacity, options = FleetCapacity.of(MEMBERS * 1000), EstimateOptions()
    shapes = [
        ReplicaRequirements(request={"cpu": 1000 * cores, name: 8 * GIB})
        for cores in range(1, 2 + NUMBERS_AT_ONCE // len(capacity))
        for name in ("memory", "ephemeral-storage")
    ]
    together = estimate_shapes(capacity, shapes, options)
    for shape, estimates in zip(shapes, together, strict=True):
        alone = estimate_replicas(capacity, shape, options)
        assert estimates.replicas_c.tolist() == alone.replicas_c.tolist()
        assert estimates.source_c.tolist() == alone.source_c.tolist()


def test_counts_of_unknown_grades_are_ignored() -> None:
    assert estimate([graded("a", {3: 2, 77: 9})], {"cpu": 4000}).replicas_c.tolist() == [2]


@pytest.mark.parametrize("rule", list(ModelRule))
def test_the_largest_numbers_neither_wrap_nor_warn(rule: ModelRule) -> None:
    largest = {"cpu": MAX_AMOUNT, "memory": MAX_AMOUNT, "pods": MAX_AMOUNT}
    state = ClusterState(
        cluster=Cluster(name="a"),
        report=report(largest, grade_counts=dict.fromkeys(range(9), MAX_AMOUNT)),
    )
    assert estimate([state], {"memory": 1}, rule).replicas_c.tolist() == [MAX_REPLICAS]
    assert estimate([state], {"cpu": MAX_AMOUNT}, rule).replicas_c[0] >= 0
    by_summary = estimate([state], {"cpu": 1}, highest=Source.SUMMARY)
    assert by_summary.replicas_c.tolist() == [MAX_REPLICAS]
