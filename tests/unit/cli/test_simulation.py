"""Several bindings on one fleet: each on what the earlier ones left."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federation.capacity.deductions import UnitRequest
from federation.capacity.fleet_reports import FleetCapacity
from federation.cli.offline.simulating import answer_case
from federation.model.cluster import (
    CapacityReport,
    Cluster,
    ClusterState,
    NodeSummary,
    ResourceSummary,
)
from federation.model.errors import InvalidRequest
from federation.model.estimate import EstimateOptions, ModelRule
from federation.model.grades import DEFAULT_MODEL, minimums, model_hash
from federation.model.workload import ReplicaRequirements
from federation.simulation.totals import SimulatedTotals

DYNAMIC = {
    "replicaDivisionPreference": "Weighted",
    "weightPreference": {"dynamicWeight": "AvailableReplicas"},
}
DUPLICATED = {"replicaSchedulingType": "Duplicated"}
STATIC = {"replicaDivisionPreference": "Weighted"}


def cluster(name: str, cpu: int = 2, **status: Any) -> dict[str, Any]:
    summary = {"allocatable": {"cpu": cpu, "memory": "64Gi", "pods": 110}, **status}
    return {"metadata": {"name": name}, "status": {"resourceSummary": summary}}


def binding(
    name: str, replicas: int, scheduling: dict[str, Any] = DYNAMIC, **spec: Any
) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": "shop", "labels": spec.pop("labels", {})},
        "spec": {
            "replicas": replicas,
            "replicaRequirements": {"resourceRequest": {"cpu": "1"}},
            **spec,
            "placement": {"replicaScheduling": scheduling, **spec.pop("placement", {})},
        },
    }


def decisions(
    clusters: list[dict[str, Any]], *bindings: dict[str, Any], **options: Any
) -> list[tuple[str, dict[str, int]]]:
    case = {"clusters": clusters, "bindings": list(bindings), "options": options}
    return [
        (each["outcome"], {share["name"]: share["replicas"] for share in each["clusters"]})
        for each in answer_case(case)["decisions"]
    ]


def test_the_same_capacity_is_not_given_twice() -> None:
    fleet = [cluster("m1"), cluster("m2")]
    decided = decisions(fleet, *(binding(f"w{n}", 1) for n in range(20)))
    assert [outcome for outcome, _ in decided] == ["SCHEDULED"] * 4 + ["UNSCHEDULABLE"] * 16


def test_bindings_are_named_by_namespace_and_name() -> None:
    answer = answer_case({"clusters": [cluster("m1")], "bindings": [binding("a", 9)]})
    (decision,) = answer["decisions"]
    assert decision["binding"] == "shop/a"
    assert (decision["outcome"], decision["clusters"]) == ("UNSCHEDULABLE", [])
    assert decision["reason"]


@pytest.mark.parametrize("scheduling", [DUPLICATED, STATIC])
def test_what_ignores_capacity_reserves_only_on_request(scheduling: dict[str, Any]) -> None:
    fleet = [cluster("m1"), cluster("m2")]
    big = binding("big", 5, scheduling)
    small = binding("small", 2, scheduling)
    after = binding("after", 2)
    assert [outcome for outcome, _ in decisions(fleet, big, small, after)] == ["SCHEDULED"] * 3
    held = decisions(fleet, big, small, after, reserve=True)
    assert held[0] == ("UNSCHEDULABLE", {})
    assert held[1][0] == "SCHEDULED"
    left = 4 - sum(held[1][1].values())
    assert held[2][0] == ("SCHEDULED" if left >= 2 else "UNSCHEDULABLE")


def test_only_replicas_that_are_not_there_yet_are_deducted() -> None:
    running = cluster("m1", cpu=4, allocated={"cpu": 2})
    grown = binding("a", 3, clusters=[{"name": "m1", "replicas": 2}])
    decided = decisions([running], grown, binding("b", 1), binding("c", 1))
    assert [outcome for outcome, _ in decided] == ["SCHEDULED", "SCHEDULED", "UNSCHEDULABLE"]


def test_stated_availability_is_used_up_too() -> None:
    decided = decisions(
        [cluster("m1", cpu=0), cluster("m2", cpu=0)],
        binding("a", 3),
        binding("b", 1),
        binding("c", 1),
        availableReplicas={"m1": 4, "m2": 0},
    )
    assert decided == [
        ("SCHEDULED", {"m1": 3}),
        ("SCHEDULED", {"m1": 1}),
        ("UNSCHEDULABLE", {}),
    ]


def test_component_sets_take_what_a_set_asks_for() -> None:
    component = {"replicaRequirements": {"resourceRequest": {"cpu": 1}}}
    flink = {
        "metadata": {"name": "flink"},
        "spec": {
            "components": [
                {"name": "job", "replicas": 1, **component},
                {"name": "task", "replicas": 2, **component},
            ],
            "placement": {},
        },
    }
    other = {**flink, "metadata": {"name": "other"}}
    decided = decisions([cluster("m1", cpu=4)], flink, other, binding("c", 1), binding("d", 1))
    assert decided[0] == ("SCHEDULED", {"m1": 3})
    assert decided[1][0] != "SCHEDULED"
    assert [outcome for outcome, _ in decided[2:]] == ["SCHEDULED", "UNSCHEDULABLE"]


def test_workloads_of_one_group_keep_apart() -> None:
    apart = {"workloadAffinity": {"antiAffinity": {"groupByLabelKey": "app"}}}
    fleet = [cluster("m1"), cluster("m2")]
    one = binding("a", 1, labels={"app": "x"}, placement=apart)
    two = binding("b", 1, labels={"app": "x"}, placement=apart)
    first, second = decisions(fleet, one, two)
    assert first[1].keys().isdisjoint(second[1])


def test_the_option_gives_the_order_among_equals_where_a_placement_does_not() -> None:
    fleet = [cluster(f"m{n}") for n in range(9)]
    resource = {"uid": "a"}
    asked = binding("a", 1, resource=resource, placement={"tieBreak": "karmada"})
    plain = binding("a", 1, resource=resource)
    assert decisions(fleet, asked) == decisions(fleet, plain, tieBreak="karmada")
    assert decisions(fleet, asked, tieBreak="hash") == decisions(fleet, asked)


def model_state(counts: dict[int, int]) -> ClusterState:
    ample = {"cpu": 10**9, "memory": 2**60, "pods": 10**6}
    return ClusterState(
        cluster=Cluster(name="m1"),
        report=CapacityReport(
            epoch=1,
            sequence=1,
            snapshot_time=0.0,
            summary=ResourceSummary(allocatable=ample),
            nodes=NodeSummary(),
            grade_counts=counts,
            model_hash=model_hash(DEFAULT_MODEL),
        ),
    )


AMOUNTS = st.fixed_dictionaries(
    {"cpu": st.integers(100, 9000), "memory": st.integers(1 << 28, 1 << 36)}
)
COUNTS = st.dictionaries(st.integers(0, 8), st.integers(0, 4), min_size=1)


@given(
    counts=COUNTS,
    taken=st.lists(st.tuples(AMOUNTS, st.integers(1, 40)), max_size=4),
    asked=AMOUNTS,
)
def test_packing_equals_one_replica_at_a_time(
    counts: dict[int, int], taken: list[tuple[dict[str, int], int]], asked: dict[str, int]
) -> None:
    outstanding = SimulatedTotals(
        FleetCapacity.of([model_state(counts)]), EstimateOptions(model_rule=ModelRule.SIMULATED)
    )
    bounds = minimums(DEFAULT_MODEL)
    nodes = [
        {"cpu": bounds["cpu"][grade], "memory": bounds["memory"][grade], "pods": 110}
        for grade in sorted(counts)
        for _ in range(counts[grade])
    ]
    for request, units in taken:
        outstanding.take({0: units}, UnitRequest(requirements=ReplicaRequirements(request=request)))
        for _ in range(units):
            place(nodes, request)
    left = 0
    while place(nodes, asked):
        left += 1
    shape = UnitRequest(requirements=ReplicaRequirements(request=asked))
    assert outstanding.available(shape).replicas_c.tolist() == [left]


def place(nodes: list[dict[str, int]], request: dict[str, int]) -> bool:
    for node in nodes:
        if all(node[name] >= amount for name, amount in {**request, "pods": 1}.items()):
            for name, amount in {**request, "pods": 1}.items():
                node[name] -= amount
            return True
    return False


@given(
    counts=COUNTS,
    rule=st.sampled_from(ModelRule),
    taken=st.lists(st.tuples(AMOUNTS, st.integers(1, 9)), min_size=1, max_size=4),
    asked=AMOUNTS,
)
def test_taking_never_leaves_more(
    counts: dict[int, int],
    rule: ModelRule,
    taken: list[tuple[dict[str, int], int]],
    asked: dict[str, int],
) -> None:
    capacity = FleetCapacity.of([model_state(counts)])
    outstanding = SimulatedTotals(capacity, EstimateOptions(model_rule=rule))
    shape = UnitRequest(requirements=ReplicaRequirements(request=asked))
    before = outstanding.available(shape).replicas_c[0]
    for request, units in taken:
        outstanding.take({0: units}, UnitRequest(requirements=ReplicaRequirements(request=request)))
        after = outstanding.available(shape).replicas_c[0]
        assert 0 <= after <= before
        before = after


def test_the_documented_rule_deducts_what_replicas_stand_in_the_way_of() -> None:
    capacity = FleetCapacity.of([model_state({3: 6, 2: 1})])
    outstanding = SimulatedTotals(capacity, EstimateOptions())
    asked = UnitRequest(requirements=ReplicaRequirements(request={"cpu": 3000, "memory": 20 << 30}))
    assert outstanding.available(asked).replicas_c.tolist() == [7]
    wide = UnitRequest(requirements=ReplicaRequirements(request={"cpu": 1000, "memory": 30 << 30}))
    outstanding.take({0: 2}, wide)
    assert outstanding.available(asked).replicas_c.tolist() == [3]


def test_what_has_no_replicas_goes_whole_to_every_selected_cluster() -> None:
    fleet = [cluster("m1"), cluster("m2"), cluster("m3")]
    agent = binding("agent", 0, DYNAMIC)
    del agent["spec"]["replicaRequirements"]
    agent["spec"]["placement"]["clusterAffinity"] = {"clusterNames": ["m1", "m3"]}
    assert decisions(fleet, agent) == [("SCHEDULED", {"m1": 0, "m3": 0})]


def test_what_is_scarce_is_said_of_what_was_reported() -> None:
    fleet = [cluster("m1"), cluster("m2", cpu=8)]
    greedy = binding("a", 99)
    case = {"clusters": fleet, "bindings": [greedy, binding("b", 99, DUPLICATED)]}
    first, _ = answer_case(case)["decisions"]
    assert first["reason"].endswith(" wanted; short of cpu in 2 clusters")
    options = {"availableReplicas": {"m1": 4}, "reserve": True}
    first, second = answer_case({**case, "options": options})["decisions"]
    assert first["reason"].endswith(" wanted; short of cpu in 1 cluster")
    assert second["reason"] == (
        "there is no room for the shares: m1: there is room for 4 more, not 99; "
        "m2: there is room for 8 more, not 99; short of cpu in 1 cluster"
    )


def test_a_partial_placement_of_too_few_is_none() -> None:
    """And leaves its room to the next one."""
    in_parts = {"placement": {"partial": True}}
    wanted = [
        binding("many", 9, minAvailable=5, **in_parts),
        binding("some", 9, minAvailable=4, **in_parts),
    ]
    assert decisions([cluster("m1"), cluster("m2")], *wanted) == [
        ("UNSCHEDULABLE", {}),
        ("PARTIAL", {"m1": 2, "m2": 2}),
    ]


def test_a_gang_is_placed_together_or_not_at_all() -> None:
    def member(name: str, replicas: int, size: int = 2, **spec: Any) -> dict[str, Any]:
        return binding(name, replicas, gang={"name": "pair", "size": size}, **spec)

    fleet = [cluster("a", cpu=3)]
    placed = decisions(fleet, member("one", 2), binding("x", 1), member("two", 1))
    assert placed == [
        ("UNSCHEDULABLE", {}),
        ("SCHEDULED", {"a": 1}),
        ("UNSCHEDULABLE", {}),
    ]
    # What it did not get is there for who comes later.
    placed = decisions(fleet, member("one", 2), member("two", 2), binding("x", 3))
    assert [outcome for outcome, _ in placed] == ["UNSCHEDULABLE", "UNSCHEDULABLE", "SCHEDULED"]
    placed = decisions(fleet, member("one", 2), member("two", 1), binding("x", 1))
    assert placed == [("SCHEDULED", {"a": 2}), ("SCHEDULED", {"a": 1}), ("UNSCHEDULABLE", {})]
    # One of no replicas has its place, which is nowhere.
    placed = decisions(fleet, member("one", 0), member("two", 3))
    assert placed == [("SCHEDULED", {}), ("SCHEDULED", {"a": 3})]
    # One that runs is there, and stays.
    there = member("one", 2, clusters=[{"name": "a", "replicas": 2}])
    assert decisions(fleet, there, member("two", 1))[1] == ("SCHEDULED", {"a": 1})
    answers = answer_case({"clusters": fleet, "bindings": [member("one", 2), binding("x", 1)]})[
        "decisions"
    ]
    assert answers[0]["reason"] == "1 of 2 members of gang pair is here"
    assert answers[1]["outcome"] == "SCHEDULED"
    with pytest.raises(InvalidRequest) as refused:
        decisions(fleet, member("one", 2), member("two", 1, size=3))
    assert str(refused.value) == (
        "bindings[1].spec.gang.size: is 3, and 2 in binding one of the same gang"
    )
