"""Member clusters from messages and back: what is refused, what a status says, what comes back."""

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
from federation.model.cluster import API_SERVER_UNREACHABLE, Blindness, Cluster, ClusterState
from federation.model.grades import DEFAULT_MODEL
from federation.model.reservations import Outstanding, PromiseCertificate
from federation.model.resources import MAX_AMOUNT
from federation.model.workload import ReplicaRequirements
from federation.v1 import resource_pb2
from tests.unit.codec.documents import at, violations

NOW = 1_700_000_000.0
A = ClusterState(cluster=Cluster(name="a"))


def message(document: dict[str, Any]) -> resource_pb2.Cluster:
    named = {"metadata": {"name": "member1"}, **document}
    return message_from_document(named, resource_pb2.Cluster)


def read(document: dict[str, Any]) -> ClusterState:
    return cluster_state_from_message(message(document), NOW)


def grades(*bounds: tuple[str, str], name: str = "cpu") -> list[dict[str, Any]]:
    return [
        {"grade": grade, "ranges": [{"name": name, "min": least, "max": most}]}
        for grade, (least, most) in enumerate(bounds)
    ]


def test_what_is_not_said_has_the_kindest_meaning() -> None:
    state = read({})
    assert state.cluster.ready
    assert state.cluster.api_enablements is None
    assert state.cluster.model == DEFAULT_MODEL
    assert state.report is None


STATUS: dict[str, Any] = {
    "conditions": [{"type": "Ready", "status": "False"}],
    "apiEnablements": [{"groupVersion": "apps/v1", "resources": [{"kind": "Deployment"}]}],
    "nodeSummary": {"totalNum": 3, "readyNum": 2},
    "resourceSummary": {
        "allocatable": {"cpu": "4", "memory": "16Gi", "pods": 110},
        "allocated": {"cpu": "950m"},
        "allocatableModelings": [{"grade": 2, "count": 3}, {"grade": 99, "count": 1}],
    },
}


def test_a_status_becomes_a_report() -> None:
    state = read({"status": STATUS})
    assert not state.cluster.ready
    assert state.cluster.api_enablements == {("apps/v1", "Deployment")}
    assert state.report is not None
    assert state.report.summary.allocatable == {"cpu": 4000, "memory": 16 << 30, "pods": 110}
    assert state.report.summary.allocated == {"cpu": 950}
    assert state.report.grade_counts == {2: 3, 99: 1}
    assert state.report.model_hash
    assert (state.report.nodes.total, state.report.nodes.ready) == (3, 2)
    assert state.as_of == NOW


MICROS = st.integers(0, 10**6)


@given(micros=st.tuples(MICROS, MICROS, MICROS), name=st.sampled_from(["cpu", "memory"]))
def test_free_is_computed_exactly_and_rounded_down_once(
    micros: tuple[int, int, int], name: str
) -> None:
    totals = ("allocatable", "allocated", "allocating")
    summary = {total: {name: f"{n}u"} for total, n in zip(totals, micros, strict=True)}
    report = read(at("status.resourceSummary", summary)).report
    assert report is not None
    amounts = [getattr(report.summary, total).get(name, 0) for total in totals]
    unit = 1000 if name == "cpu" else 1_000_000
    exact = Fraction(micros[0] - micros[1] - micros[2], unit)
    assert amounts[0] - amounts[1] - amounts[2] == exact.__floor__()
    assert all(amount >= 0 for amount in amounts[1:])


MODELS, SUMMARY = "spec.resourceModels", "status.resourceSummary"
MIN, MAX = "ranges[0].min", "ranges[0].max"


# Where something stands, what, the rule that it breaks, and at what field if not there.
@pytest.mark.parametrize(
    ("path", "value", "said", "field"),
    [
        ("metadata", {}, "is required", "metadata.name"),
        ("metadata.name", "Member_1", "lower-case letters", ""),
        ("metadata.name", "m" * 49, "at most 48", ""),
        ("spec", {"zone": "a", "zones": ["b"]}, "cannot be combined", "spec.zone"),
        ("spec.taints[0]", {"key": "a"}, "is required", "spec.taints[0].effect"),
        (
            "spec.taints[0]",
            {"key": "a", "effect": "Never"},
            "NoExecute",
            "spec.taints[0].effect",
        ),
        ("spec.taints[0]", {"effect": "NoSchedule"}, "is required", "spec.taints[0].key"),
        (
            MODELS,
            grades(("0", "2"), ("1", str(MAX_AMOUNT))),
            "must start where the grade before ends",
            f"{MODELS}[1].{MIN}",
        ),
        (MODELS, grades(("0", "2"), ("2", "4")), str(MAX_AMOUNT), f"{MODELS}[1].{MAX}"),
        (
            MODELS,
            grades(("0", str(MAX_AMOUNT)), name="nvidia.com/gpu"),
            "cannot be modelled",
            f"{MODELS}[0].ranges[0].name",
        ),
        (MODELS, grades(("0", "1 Gi")), "is not a quantity", f"{MODELS}[0].{MAX}"),
        (f"{MODELS}[0].ranges[0]", {"name": "cpu"}, "is required", f"{MODELS}[0].{MAX}"),
        (f"{SUMMARY}.allocatable", {"cpu": "1e"}, "not a quantity", f"{SUMMARY}.allocatable[cpu]"),
        (f"{SUMMARY}.allocated", {"cpu": "-1"}, "must be from 0", f"{SUMMARY}.allocated[cpu]"),
        (
            f"{SUMMARY}.allocatable",
            {"memory": "9" * 30},
            "64 bits",
            f"{SUMMARY}.allocatable[memory]",
        ),
        (f"{SUMMARY}.allocatableModelings[0].count", -1, "not -1", ""),
        (
            f"{SUMMARY}.allocatableModelings",
            [{}, {}],
            "is there already",
            f"{SUMMARY}.allocatableModelings[1].grade",
        ),
    ],
)
def test_broken_rules_are_told_by_path(path: str, value: object, said: str, field: str) -> None:
    assert said in violations(read, at(path, value))[field or path]


def test_what_no_document_holds_is_refused_in_messages() -> None:
    nul = resource_pb2.Cluster(metadata={"name": "m", "annotations": {"a": "b\0"}})
    assert "NUL" in violations(cluster_state_from_message, nul, NOW)["metadata.annotations[a]"]
    other = resource_pb2.Cluster(api_version="v1", metadata={"name": "m"})
    found = violations(cluster_state_from_message, other, NOW)
    assert "cluster.karmada.io/v1alpha1" in found["apiVersion"]


def test_a_custom_model_is_read_by_value_not_by_spelling() -> None:
    spelled = grades(("0", "1Gi"), ("1024Mi", str(MAX_AMOUNT)), name="memory")
    model = cluster_from_message(message(at(MODELS, spelled))).model
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


def test_a_cluster_with_its_report_and_its_promises_comes_back() -> None:
    spec = {
        "provider": "aws", "region": "eu", "zones": ["a", "b"],
        "taints": [{"key": "k", "effect": "NoExecute", "timeAdded": "2026-03-01T12:00:00Z"}],
        "resourceModels": grades(("0", "2"), ("2", str(MAX_AMOUNT))),
        "resourceModelingDisabled": True,
    }  # fmt: skip
    metadata = {"name": "m", "uid": "u", "resourceVersion": "7", "generation": 3}
    state = read({"metadata": metadata, "spec": spec, "status": STATUS})
    written = cluster_to_message(state, Agent())
    assert written.status.agent.connected
    assert written.status.kubernetes_version == "v1.36.2"
    assert cluster_state_from_message(written, NOW + 100) == state
    promise = Outstanding(
        binding="shop/web",
        requirements=ReplicaRequirements(request={"cpu": 250}),
        in_cells=3,
        in_summary=3,
        certificate=PromiseCertificate.SUMMARY_CHECKED,
    )
    promised = cluster_to_message(state, packable=Packable(pools=None, promised=(promise,)))
    again = cluster_state_from_message(promised, NOW)
    assert again.promised == (promise,)
    assert again.report == state.report


def test_a_cluster_that_its_agent_does_not_see_says_since_when_and_why() -> None:
    blindness = Blindness(since=NOW, reason=API_SERVER_UNREACHABLE, message="pods: 403 Forbidden")
    agent = Agent(blindness=blindness, skipped_objects=3)
    status = cluster_to_message(A, agent).status
    (condition,) = status.conditions
    assert (condition.status, condition.reason) == ("Unknown", "ApiServerUnreachable")
    assert condition.last_transition_time.seconds == NOW
    assert condition.message == (
        "The cluster cannot be seen since 2023-11-14T22:13:20Z: pods: 403 Forbidden"
    )
    assert status.agent.skipped_objects == 3
    # That an agent is silent says more than that it was blind.
    (condition,) = cluster_to_message(A, agent, silent=True).status.conditions
    assert (condition.status, condition.reason) == ("Unknown", "AgentSilent")
    assert condition.last_transition_time.seconds == NOW + 5


def test_a_cluster_whose_promises_find_no_room_says_so() -> None:
    assert [each.type for each in cluster_to_message(A).status.conditions] == ["Ready"]
    _, condition = cluster_to_message(A, overcommitted=7).status.conditions
    assert (condition.type, condition.status) == ("OverCommitted", "True")
    assert "7 promised replicas" in condition.message
