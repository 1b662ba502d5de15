"""Member clusters: their rules, their status as a report, and the way back."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federation.codec.clusters import (
    cluster_from_message,
    cluster_state_from_message,
    cluster_to_message,
)
from federation.codec.packable import Packable
from federation.codec.strict import message_from_document
from federation.model.cluster import (
    API_SERVER_UNREACHABLE,
    Blindness,
    Cluster,
    ClusterState,
    ResourceSummary,
    TaintEffect,
)
from federation.model.errors import InvalidRequest
from federation.model.grades import DEFAULT_MODEL
from federation.model.reservations import Outstanding, PromiseCertificate
from federation.model.resources import MAX_AMOUNT
from federation.model.workload import ReplicaRequirements
from federation.v1 import resource_pb2

NOW = 1_700_000_000.0


def cluster(spec: dict[str, Any] | None = None, **rest: Any) -> resource_pb2.Cluster:
    document = {"metadata": {"name": "member1"}, "spec": spec or {}, **rest}
    return message_from_document(document, resource_pb2.Cluster)


def violations(message: resource_pb2.Cluster) -> dict[str, str]:
    with pytest.raises(InvalidRequest) as caught:
        cluster_state_from_message(message, NOW)
    return {each.field: each.rule for each in caught.value.violations}


def state_with(summary: dict[str, Any], **status: Any) -> ClusterState:
    message = cluster(status={"resourceSummary": summary, **status})
    return cluster_state_from_message(message, NOW)


def grades(*bounds: tuple[str, str], name: str = "cpu") -> list[dict[str, Any]]:
    return [
        {"grade": grade, "ranges": [{"name": name, "min": least, "max": most}]}
        for grade, (least, most) in enumerate(bounds)
    ]


def test_what_is_not_said_has_the_kindest_meaning() -> None:
    state = cluster_state_from_message(cluster(), NOW)
    assert state.cluster.ready
    assert state.cluster.api_enablements is None
    assert state.cluster.model == DEFAULT_MODEL
    assert state.report is None


def test_a_status_becomes_a_report() -> None:
    state = state_with(
        {
            "allocatable": {"cpu": "4", "memory": "16Gi", "pods": 110},
            "allocated": {"cpu": "950m"},
            "allocatableModelings": [{"grade": 2, "count": 3}, {"grade": 99, "count": 1}],
        },
        conditions=[{"type": "Ready", "status": "False"}],
        apiEnablements=[{"groupVersion": "apps/v1", "resources": [{"kind": "Deployment"}]}],
        nodeSummary={"totalNum": 3, "readyNum": 2},
    )
    assert not state.cluster.ready
    assert state.cluster.api_enablements == {("apps/v1", "Deployment")}
    assert state.report is not None
    assert state.report.summary.allocatable == {"cpu": 4000, "memory": 16 << 30, "pods": 110}
    assert state.report.summary.allocated == {"cpu": 950}
    assert state.report.grade_counts == {2: 3, 99: 1}
    assert state.report.model_hash
    assert (state.report.nodes.total, state.report.nodes.ready) == (3, 2)
    assert state.as_of == NOW


QUANTITY = st.integers(0, 10**6).map(lambda micros: f"{micros}u")


@given(
    allocatable=QUANTITY,
    allocated=QUANTITY,
    allocating=QUANTITY,
    name=st.sampled_from(["cpu", "memory"]),
)
def test_free_is_computed_exactly_and_rounded_down_once(
    allocatable: str, allocated: str, allocating: str, name: str
) -> None:
    report = state_with(
        {
            "allocatable": {name: allocatable},
            "allocated": {name: allocated},
            "allocating": {name: allocating},
        }
    ).report
    assert report is not None
    micros = [int(text[:-1]) for text in (allocatable, allocated, allocating)]
    unit = 1000 if name == "cpu" else 1_000_000
    assert (
        free(report.summary, name) == Fraction(micros[0] - micros[1] - micros[2], unit).__floor__()
    )
    assert all(amount >= 0 for amount in report.summary.allocated.values())


def free(summary: ResourceSummary, name: str) -> int:
    return (
        summary.allocatable[name] - summary.allocated.get(name, 0) - summary.allocating.get(name, 0)
    )


@pytest.mark.parametrize(
    ("message", "field", "said"),
    [
        (resource_pb2.Cluster(), "metadata.name", "is required"),
        (cluster(metadata={"name": "Member_1"}), "metadata.name", "lower-case letters"),
        (cluster(metadata={"name": "m" * 49}), "metadata.name", "at most 48"),
        (cluster({"zone": "a", "zones": ["b"]}), "spec.zone", "cannot be combined"),
        (cluster({"taints": [{"key": "a"}]}), "spec.taints[0].effect", "is required"),
        (
            cluster({"taints": [{"key": "a", "effect": "Never"}]}),
            "spec.taints[0].effect",
            "NoExecute",
        ),
        (cluster({"taints": [{"effect": "NoSchedule"}]}), "spec.taints[0].key", "is required"),
        (
            cluster({"resourceModels": grades(("0", "2"), ("1", str(MAX_AMOUNT)))}),
            "spec.resourceModels[1].ranges[0].min",
            "must start where the grade before ends",
        ),
        (
            cluster({"resourceModels": grades(("0", "2"), ("2", "4"))}),
            "spec.resourceModels[1].ranges[0].max",
            str(MAX_AMOUNT),
        ),
        (
            cluster({"resourceModels": grades(("0", str(MAX_AMOUNT)), name="nvidia.com/gpu")}),
            "spec.resourceModels[0].ranges[0].name",
            "cannot be modelled",
        ),
        (
            cluster({"resourceModels": grades(("0", "1 Gi"))}),
            "spec.resourceModels[0].ranges[0].max",
            "is not a quantity",
        ),
        (
            cluster({"resourceModels": [{"ranges": [{"name": "cpu", "min": "0"}]}]}),
            "spec.resourceModels[0].ranges[0].max",
            "is required",
        ),
        (
            cluster(status={"resourceSummary": {"allocatable": {"cpu": "1e"}}}),
            "status.resourceSummary.allocatable[cpu]",
            "is not a quantity",
        ),
        (
            cluster(status={"resourceSummary": {"allocated": {"cpu": "-1"}}}),
            "status.resourceSummary.allocated[cpu]",
            "must be from 0",
        ),
        (
            cluster(status={"resourceSummary": {"allocatable": {"memory": "9" * 30}}}),
            "status.resourceSummary.allocatable[memory]",
            "64 bits",
        ),
        (
            cluster(status={"resourceSummary": {"allocatableModelings": [{"count": -1}]}}),
            "status.resourceSummary.allocatableModelings[0].count",
            "not -1",
        ),
        (
            cluster(status={"resourceSummary": {"allocatableModelings": [{}, {}]}}),
            "status.resourceSummary.allocatableModelings[1].grade",
            "is there already",
        ),
        (
            resource_pb2.Cluster(metadata={"name": "m", "annotations": {"a": "b\0"}}),
            "metadata.annotations[a]",
            "NUL",
        ),
        (
            resource_pb2.Cluster(api_version="v1", metadata={"name": "m"}),
            "apiVersion",
            "cluster.karmada.io/v1alpha1",
        ),
    ],
)
def test_broken_rules_are_told_by_path(
    message: resource_pb2.Cluster, field: str, said: str
) -> None:
    assert said in violations(message)[field]


def test_a_custom_model_is_read_by_value_not_by_spelling() -> None:
    message = cluster(
        {"resourceModels": grades(("0", "1Gi"), ("1024Mi", str(MAX_AMOUNT)), name="memory")}
    )
    model = cluster_from_message(message).model
    assert [each.ranges[0].min for each in model.grades] == [0, 1 << 30]
    assert model.grades[1].ranges[0].max == MAX_AMOUNT


@dataclass
class Agent:
    connected: bool = True
    agent_version: str = "0.1.0"
    kubernetes_version: str = "v1.36.2"
    placer: str = "none"
    last_heartbeat_at: float | None = NOW + 5
    blindness: Blindness | None = None
    skipped_objects: int = 0
    clock_offset_seconds: float = 0.0


def test_a_cluster_with_its_report_comes_back() -> None:
    message = cluster(
        {
            "provider": "aws", "region": "eu", "zones": ["a", "b"],
            "taints": [{"key": "k", "effect": "NoExecute", "timeAdded": "2026-03-01T12:00:00Z"}],
            "resourceModels": grades(("0", "2"), ("2", str(MAX_AMOUNT))),
            "resourceModelingDisabled": True,
        },
        metadata={"name": "m", "uid": "u", "resourceVersion": "7", "generation": 3},
        status={
            "conditions": [{"type": "Ready", "status": "Unknown"}],
            "apiEnablements": [{"groupVersion": "v1", "resources": [{"kind": "Pod"}]}],
            "nodeSummary": {"totalNum": 2, "readyNum": 2},
            "resourceSummary": {
                "allocatable": {"cpu": "1500m"},
                "allocatableModelings": [{"grade": 1, "count": 2}],
            },
        },
    )  # fmt: skip
    state = cluster_state_from_message(message, NOW)
    assert state.cluster.taints[0].effect is TaintEffect.NO_EXECUTE
    written = cluster_to_message(state, Agent())
    assert written.status.agent.connected
    assert written.status.kubernetes_version == "v1.36.2"
    assert cluster_state_from_message(written, NOW + 100) == state


def test_promises_of_a_cluster_without_pools_come_back() -> None:
    resources = {"allocatable": {"cpu": "1500m"}}
    state = cluster_state_from_message(cluster(status={"resourceSummary": resources}), NOW)
    requirements = ReplicaRequirements(request={"cpu": 250})
    promise = Outstanding(
        binding="shop/web",
        requirements=requirements,
        in_cells=3,
        in_summary=3,
        certificate=PromiseCertificate.SUMMARY_CHECKED,
    )
    written = cluster_to_message(state, packable=Packable(pools=None, promised=(promise,)))
    read = cluster_state_from_message(written, NOW)
    assert read.promised == (promise,)
    assert read.report == state.report


def test_a_cluster_that_its_agent_does_not_see_says_since_when_and_why() -> None:
    blindness = Blindness(since=NOW, reason=API_SERVER_UNREACHABLE, message="pods: 403 Forbidden")
    agent = Agent(blindness=blindness, skipped_objects=3)
    status = cluster_to_message(ClusterState(cluster=Cluster(name="a")), agent).status
    (condition,) = status.conditions
    assert (condition.status, condition.reason) == ("Unknown", "ApiServerUnreachable")
    assert condition.last_transition_time.seconds == NOW
    assert condition.message == (
        "The cluster cannot be seen since 2023-11-14T22:13:20Z: pods: 403 Forbidden"
    )
    assert status.agent.skipped_objects == 3


def test_that_an_agent_is_silent_says_more_than_that_it_was_blind() -> None:
    agent = Agent(blindness=Blindness(since=NOW, reason=API_SERVER_UNREACHABLE))
    state = ClusterState(cluster=Cluster(name="a"))
    (condition,) = cluster_to_message(state, agent, silent=True).status.conditions
    assert (condition.status, condition.reason) == ("Unknown", "AgentSilent")
    assert condition.last_transition_time.seconds == NOW + 5


def test_a_cluster_whose_promises_find_no_room_says_so() -> None:
    state = ClusterState(cluster=Cluster(name="a"))
    assert [each.type for each in cluster_to_message(state).status.conditions] == ["Ready"]
    _, condition = cluster_to_message(state, overcommitted=7).status.conditions
    assert (condition.type, condition.status) == ("OverCommitted", "True")
    assert "7 promised replicas" in condition.message
