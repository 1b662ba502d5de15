"""Estimates from totals and grade counts: the documented cases, fallbacks and their reasons, and
what is outstanding deducted from both.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest

from federation.capacity.deductions import Deductions
from federation.capacity.fleet_reports import MAX_ADDED, FleetCapacity
from federation.capacity.summary_estimates import (
    NOT_REPORTED,
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
from federation.model.reasons import texts_of
from federation.model.reservations import Outstanding
from federation.model.resources import MAX_AMOUNT
from federation.model.workload import (
    NodeClaim,
    ReplicaRequirements,
    Toleration,
    TolerationOperator,
)

GIB = 1 << 30
AMPLE = {"cpu": 10**9, "memory": 10**15, "pods": 10_000}
DOCUMENTED, SIMULATED, BOUNDARY = ModelRule.DOCUMENTED, ModelRule.SIMULATED, ModelRule.BOUNDARY


def state(
    allocatable: Mapping[str, int] = AMPLE,
    counts: Mapping[int, int] | None = None,
    *,
    name: str = "a",
    model: ResourceModel = DEFAULT_MODEL,
    **taken: Mapping[str, int],
) -> ClusterState:
    report = CapacityReport(
        epoch=1,
        sequence=1,
        snapshot_time=0.0,
        summary=ResourceSummary(allocatable=allocatable, **taken),
        nodes=NodeSummary(),
        grade_counts=counts or {},
        model_hash=model_hash(model),
    )
    return ClusterState(cluster=Cluster(name=name, model=model), report=report)


UNREPORTED = ClusterState(cluster=Cluster(name="silent"))
MEMBERS = [
    state(name=f"member{number}", counts=counts)
    for number, counts in enumerate(({2: 1, 3: 6}, {2: 4, 3: 4}, {6: 1}))
]


def estimate(
    states: Sequence[ClusterState],
    request: Mapping[str, int],
    rule: ModelRule = DOCUMENTED,
    highest: Source = Source.EXACT,
) -> Estimates:
    return estimate_replicas(
        FleetCapacity.of(states),
        ReplicaRequirements(request=request),
        EstimateOptions(model_rule=rule, highest=highest),
    )


@pytest.mark.parametrize(
    ("rule", "cpu_millis", "memory_gibibytes", "replicas"),
    [
        (DOCUMENTED, 3000, 20, [7, 8, 10]),
        (DOCUMENTED, 3000, 60, [6, 4, 4]),
        (DOCUMENTED, 5000, 60, [6, 4, 4]),
        (DOCUMENTED, 2000, 16, [13, 12, 16]),
        (SIMULATED, 3000, 20, [6, 4, 10]),
        (SIMULATED, 3000, 60, [0, 0, 4]),
        (BOUNDARY, 3000, 20, [6, 4, 10]),
        (BOUNDARY, 3000, 60, [0, 0, 4]),
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


CAPPED = state({**AMPLE, "pods": 5}, {8: 9}, allocated={"pods": 2})


@pytest.mark.parametrize(
    ("cluster", "request_of", "replicas"),
    [
        # The documented summaries.
        (state({"cpu": 4000, "pods": 100}, allocated={"cpu": 950}), {"cpu": 500}, 6),
        (state({"cpu": 4000, "pods": 100}, allocated={"pods": 100}), {"cpu": 500}, 0),
        # What neither runs nor waits.
        (state({"cpu": 9, "pods": 9}, allocated={"cpu": 1}, allocating={"cpu": 2}), {"cpu": 1}, 6),
        (state({"cpu": 1000, "pods": 9}, allocated={"cpu": 1001}), {"cpu": 1}, 0),
        (state(), {"nvidia.com/gpu": 1}, 0),
        (UNREPORTED, {"cpu": 1}, 0),
        # A grade holds a request of exactly its minimum.
        (state(counts={1: 100, 2: 1}), {"cpu": 2000}, 1),
        (state(counts={1: 100, 2: 1}), {"cpu": 1999}, 101),
        (CAPPED, {"cpu": 1}, 3),
        (state(counts={3: 2, 77: 9}), {"cpu": 4000}, 2),
    ],
)
def test_how_many_fit(cluster: ClusterState, request_of: dict[str, int], replicas: int) -> None:
    estimates = estimate([cluster, *MEMBERS], request_of)
    assert estimates.replicas_c[0] == replicas
    assert estimates.unknown_c.tolist() == [cluster is UNREPORTED, False, False, False]


def test_pod_slots_of_a_simulated_node_are_110() -> None:
    small = {"cpu": 10, "memory": 16 << 20}
    assert estimate(MEMBERS[:1], small, SIMULATED).replicas_c.tolist() == [7 * 110]
    assert estimate(MEMBERS[:1], small, DOCUMENTED).replicas_c.tolist() == [2600]


@pytest.mark.parametrize("rule", list(ModelRule))
def test_asking_for_nothing_takes_every_slot_and_the_largest_numbers_do_not_wrap(
    rule: ModelRule,
) -> None:
    for asked in ({}, {"cpu": 0}, {"cpu": 0, "nvidia.com/gpu": 0}):
        for highest in (Source.MODELS, Source.SUMMARY):
            found = estimate([state(counts={0: 0}), state(counts={3: 1})], asked, rule, highest)
            assert found.replicas_c.tolist() == [10_000, 10_000]
    largest = dict.fromkeys(AMPLE, MAX_AMOUNT)
    full = [state(largest, dict.fromkeys(range(9), MAX_AMOUNT))]
    assert estimate(full, {"memory": 1}, rule).replicas_c.tolist() == [MAX_REPLICAS]
    assert estimate(full, {"cpu": MAX_AMOUNT}, rule).replicas_c[0] >= 0
    assert estimate(full, {"cpu": 1}, highest=Source.SUMMARY).replicas_c[0] == MAX_REPLICAS
    taken = {"cpu": MAX_AMOUNT}
    overdrawn = state({"cpu": 1, "pods": 1}, allocated=taken, allocating=taken)
    assert estimate([overdrawn], {"cpu": 1}, rule).replicas_c.tolist() == [0]


def test_counts_that_cannot_be_used_fall_to_the_summary_and_say_why() -> None:
    usable, no_model = state(counts={1: 1}), ResourceModel()
    assert usable.report is not None
    states = [
        replace(usable, cluster=replace(usable.cluster, modeling_enabled=False)),
        state(),
        replace(usable, report=replace(usable.report, model_hash="another")),
        state(counts={1: 1}, model=no_model),
        usable,
        UNREPORTED,
    ]
    estimates = estimate(states, {"cpu": 10**8})
    assert estimates.replicas_c.tolist() == [10, 10, 10, 10, 0, 0]
    assert estimates.source_c.tolist() == [Source.SUMMARY] * 4 + [Source.MODELS, Source.NONE]
    unreported = {5: "the cluster has not reported yet"}
    assert texts_of(estimates.reasons) == unreported | {
        0: "resource modelling is switched off for the cluster",
        1: "the report has no grade counts",
        2: "the report was graded under another resource model",
        3: "the cluster has no resource model",
    }
    # A level that nobody asked for gives no reason.
    assert estimate(states, {"cpu": 1}, highest=Source.SUMMARY).reasons == {5: NOT_REPORTED}
    off = FleetCapacity.of(MEMBERS, modeling_enabled=False)
    found = estimate_replicas(off, ReplicaRequirements(request={"cpu": 1}), EstimateOptions())
    assert found.source_c.tolist() == [Source.SUMMARY] * 3
    assert set(map(str, found.reasons.values())) == {"resource modelling is switched off"}


def test_a_resource_the_model_lacks_is_answered_by_the_summary_as_a_whole() -> None:
    cluster = state({**AMPLE, "nvidia.com/gpu": 8}, {1: 2})
    estimates = estimate([cluster], {"cpu": 16_000, "nvidia.com/gpu": 1})
    assert estimates.replicas_c.tolist() == [8]
    assert estimates.source_c.tolist() == [Source.SUMMARY]
    assert texts_of(estimates.reasons) == {0: "the resource model lacks nvidia.com/gpu"}


TOLERANT = NodeClaim(tolerations=(Toleration(operator=TolerationOperator.EXISTS),))


@pytest.mark.parametrize("highest", [Source.SUMMARY, Source.MODELS, Source.POOLS])
@pytest.mark.parametrize(
    "claim", [NodeClaim(node_selector={"zone": "a"}), NodeClaim(required_terms=())]
)
def test_who_cannot_see_nodes_does_not_answer_for_chosen_ones(
    claim: NodeClaim, highest: Source
) -> None:
    requirements = ReplicaRequirements(request={"cpu": 3000}, node_claim=claim)
    plain, tolerant = (
        ReplicaRequirements(request={"cpu": 3000}, node_claim=each) for each in (None, TOLERANT)
    )
    options = EstimateOptions(highest=highest)
    capacity = FleetCapacity.of([*MEMBERS, UNREPORTED])
    found, other, same = estimate_shapes(capacity, [requirements, plain, tolerant], options)
    assert found.unknown_c.all()
    assert found.reasons == {
        **dict.fromkeys(range(3), CANNOT_SEE_NODES),
        3: NOT_REPORTED,
    }
    assert other.replicas_c.any()
    # Tolerations choose no nodes.
    assert same.replicas_c.tolist() == other.replicas_c.tolist()
    (told,) = estimate_shapes(capacity, [requirements], replace(options, ignore_claims=True))
    assert told.replicas_c.tolist() == other.replicas_c.tolist()
    assert told.bound_c.tolist() == [Bound.NONE] * 4


def test_more_shapes_than_go_at_once_are_answered_in_their_order() -> None:
    capacity, options = FleetCapacity.of(MEMBERS * 1000), EstimateOptions()
    shapes = [
        ReplicaRequirements(request={"cpu": 1000 * cores, name: 8 * GIB})
        for cores in range(1, 2 + NUMBERS_AT_ONCE // len(capacity))
        for name in ("memory", "ephemeral-storage")
    ]
    for shape, estimates in zip(shapes, estimate_shapes(capacity, shapes, options), strict=True):
        alone = estimate_replicas(capacity, shape, options)
        assert estimates.replicas_c.tolist() == alone.replicas_c.tolist()
        assert estimates.source_c.tolist() == alone.source_c.tolist()


def test_a_fleet_whose_clusters_change_for_ever_is_as_made_anew_and_stays_small(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every change has a resource of its own, and every other one another model: once in so many
    the other clusters are read again.
    """
    ours, states, made_anew = FleetCapacity.of(MEMBERS), list(MEMBERS), FleetCapacity.of
    times: list[int] = []

    def counted(states: Iterable[ClusterState], **how: bool) -> FleetCapacity:
        times.append(1)
        return made_anew(states, **how)

    monkeypatch.setattr(FleetCapacity, "of", counted)
    short = ResourceModel(grades=DEFAULT_MODEL.grades[:2])
    for number in range(MAX_ADDED + 10):
        model = short if number % 2 else DEFAULT_MODEL
        rare = f"example.com/r{number}"
        states[1] = state({rare: number, "pods": 3}, {1: 5}, name="member1", model=model)
        before, ours = ours, ours.with_clusters({1: states[1]})
        anew = made_anew(states)
        for name in (rare, "cpu", "pods"):
            np.testing.assert_array_equal(ours.free(name), anew.free(name))
        for array in ("reported_c", "model_c", "count_cg"):
            np.testing.assert_array_equal(getattr(ours, array), getattr(anew, array))
        assert before.free(rare) is None
        assert len(ours.rows) <= MAX_ADDED + 4
    assert len(times) == 1
    for shared in (ours.free_rc, ours.count_cg, ours.model_c, ours.reported_c):
        with pytest.raises(ValueError, match="read-only"):
            shared[...] = 0


WANTED = ReplicaRequirements(request={"cpu": 2000, "memory": 4 * GIB})
HELD = ReplicaRequirements(request={"cpu": 3000, "memory": 4 * GIB})
TOTALS = {"cpu": 100_000, "memory": 400 * GIB, "pods": 100}
BY_SUMMARY = EstimateOptions(highest=Source.SUMMARY)
BY_RULE = {rule: EstimateOptions(model_rule=rule) for rule in ModelRule}


# Room for 50 times WANTED by the totals. Ten nodes of grade 4 have 8 to 16 cores and 32 to 64 GiB:
# four times WANTED, twice HELD each.
@pytest.mark.parametrize(
    ("counts", "options", "in_cells", "in_summary", "expected"),
    [
        # Totals lose what no report counts as waiting.
        ({}, BY_SUMMARY, 9, 4, 44),
        ({}, BY_SUMMARY, 9, 0, 50),
        ({}, BY_SUMMARY, 90, 90, 0),
        # Each of HELD stands in the way of two at most.
        ({4: 10}, BY_RULE[DOCUMENTED], 5, 0, 40 - 2 * 5),
        ({4: 10}, BY_RULE[BOUNDARY], 5, 0, 40 - 2 * 5),
        # Two nodes hold two and have room for one more each, a third holds one and takes two.
        ({4: 10}, BY_RULE[SIMULATED], 5, 0, 40 - 3 - 3 - 2),
        ({4: 10}, BY_RULE[SIMULATED], 0, 0, 40),
        # More than there is leaves nothing but what is too small for it.
        ({4: 10}, BY_RULE[DOCUMENTED], 50, 0, 0),
        ({4: 10}, BY_RULE[BOUNDARY], 50, 0, 0),
        ({4: 10}, BY_RULE[SIMULATED], 50, 0, 10),
        # The totals still cap what grade counts say.
        ({4: 1000}, BY_RULE[DOCUMENTED], 90, 90, 10),
    ],
)
def test_what_is_outstanding_is_deducted_from_its_cluster_alone(
    counts: dict[int, int],
    options: EstimateOptions,
    in_cells: int,
    in_summary: int,
    expected: int,
) -> None:
    capacity = FleetCapacity.of([state(TOTALS, counts, name=name) for name in "ab"])
    held = Outstanding("web", HELD, in_cells=in_cells, in_summary=in_summary)
    whole, less = (
        Deductions.of(capacity, each).estimates(WANTED, options) for each in ({}, {1: [held]})
    )
    assert less.replicas_c.tolist() == [int(whole.replicas_c[0]), expected]
