"""Simulations over the wire: the same answers as fedctl's, and nothing is kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc
import pytest
from google.rpc import code_pb2
from google.rpc.status_pb2 import Status

from federation.cli.offline.simulating import answer_case
from federation.codec import simulations
from federation.codec.strict import message_from_document
from federation.rpc import simulation_worker
from federation.rpc.simulation_worker import Setup, answered, simulation_question
from federation.runtime.log_fields import LogFormat, LogLevel
from federation.scheduler.plugins.profile import DEFAULT_PROFILES, Profiles
from federation.services.workers import AnswerKind
from federation.v1 import estimates_pb2
from federation.v1.resource_pb2 import Cluster, ObjectMeta, ResourceBinding
from federation.v1.scheduling_pb2 import Outcome
from federation.v1.simulation_pb2 import SimulateRequest, SimulationOptions, VirtualTime
from lab.control_planes import Plane, refused, running_control_plane
from tests.api.test_batches import failing

SETUP = Setup(
    profiles=DEFAULT_PROFILES,
    most_steps=10**9,
    memory_mebibytes=1024,
    log_format=LogFormat.TEXT,
    log_level=LogLevel.WARNING,
)
CLUSTERS = [
    {
        "metadata": {"name": name},
        "spec": {"region": region},
        "status": {"resourceSummary": {"allocatable": {"cpu": cpu, "memory": "64Gi", "pods": 110}}},
    }
    for name, region, cpu in (("m1", "eu", 4), ("m2", "eu", 8), ("m3", "us", 4))
]


def workload(name: str, replicas: int, **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": "shop"},
        "spec": {
            "replicas": replicas,
            "replicaRequirements": {"resourceRequest": {"cpu": "1"}},
            "placement": {
                "replicaScheduling": {"replicaDivisionPreference": "Aggregated"},
                **spec.pop("placement", {}),
            },
            **spec,
        },
    }


def request(
    *bindings: dict[str, Any], clusters: list[dict[str, Any]] | None = None, **options: Any
) -> SimulateRequest:
    return SimulateRequest(
        clusters=[message_from_document(each, Cluster) for each in clusters or CLUSTERS],
        bindings=[message_from_document(each, ResourceBinding) for each in bindings],
        options=SimulationOptions(**options),
    )


async def simulated(api: Plane, asked: SimulateRequest) -> Any:
    answer = await api.admin.call(api.admin.simulation.Simulate, asked)
    return answer.decisions


def gist(decisions: Any) -> list[dict[str, Any]]:
    return [
        {
            "binding": f"{each.namespace}/{each.name}",
            "outcome": Outcome.Name(each.outcome).removeprefix("OUTCOME_"),
            "clusters": [{"name": c.name, "replicas": c.replicas} for c in each.clusters],
            "reason": each.reason,
        }
        for each in decisions
    ]


@pytest.mark.parametrize(
    ("given", "options", "case_options"),
    [
        ([("a", 3), ("b", 9), ("c", 9)], {}, {}),
        (
            [("a", 3), ("b", 9)],
            {"available_replicas": {"m3": 90}, "tie_break": "karmada"},
            {"availableReplicas": {"m3": 90}, "tieBreak": "karmada"},
        ),
        (
            [("a", 3)],
            {"highest_source": estimates_pb2.ESTIMATE_SOURCE_SUMMARY, "reserve": True},
            {"source": "summary", "reserve": True},
        ),
    ],
)
async def test_the_server_answers_as_fedctl_does(
    api: Plane,
    given: list[tuple[str, int]],
    options: dict[str, Any],
    case_options: dict[str, Any],
) -> None:
    bindings = [workload(*each) for each in given]
    decisions = await simulated(api, request(*bindings, **options))
    case = {"clusters": CLUSTERS, "bindings": bindings, "options": case_options}
    assert gist(decisions) == answer_case(case)["decisions"]
    assert {each.id for each in decisions} == {""}
    assert not any(each.HasField("trace") for each in decisions)


async def test_virtual_time_goes_on_as_in_files(api: Plane) -> None:
    bindings = [workload("a", 4), workload("b", 12, schedulePriority={"priority": 3})]
    virtual_time = {
        "lostSeconds": 60,
        "events": [
            {"atSeconds": 30, "kind": "lose", "name": "m3"},
            {"atSeconds": 200, "kind": "arrive", "name": "shop/b"},
            {"atSeconds": 300, "kind": "delete", "name": "shop/a"},
        ],
    }
    asked = request(*bindings)
    asked.virtual_time.CopyFrom(message_from_document(virtual_time, VirtualTime))
    answer = await api.admin.call(api.admin.simulation.Simulate, asked)
    case = {"clusters": CLUSTERS, "bindings": bindings, "virtualTime": virtual_time}
    expected = answer_case(case)
    assert gist(answer.decisions) == expected["decisions"]
    assert [(each.at_seconds, each.kind, each.name, each.reason) for each in answer.steps] == [
        (each["at"], each["what"], each["who"], each["reason"]) for each in expected["steps"]
    ]
    assert [(f"{each.namespace}/{each.name}", each.position) for each in answer.queue] == [
        (each["binding"], each["position"]) for each in expected["queue"]
    ]
    asked.virtual_time.events[0].name = "m4"
    refusal = await refused(api.admin.call(api.admin.simulation.Simulate, asked))
    assert refusal.code is grpc.StatusCode.INVALID_ARGUMENT
    assert refusal.violations.keys() == {"virtualTime.events[0].name"}


async def test_traces_come_when_asked_for(api: Plane) -> None:
    (decision,) = await simulated(api, request(workload("a", 5), include_traces=True))
    assert [each.name for each in decision.trace.clusters] == ["m1", "m2", "m3"]
    assert sum(each.replicas for each in decision.trace.clusters) == 5


async def test_what_has_no_effect_is_told(api: Plane) -> None:
    asked = request(workload("web", 1, suspension={"dispatching": True}), workload("db", 1))
    web, db = await simulated(api, asked)
    assert list(web.warnings) == ["accepted, but nothing here reads spec.suspension.dispatching"]
    assert not db.warnings


async def test_every_broken_rule_is_told_with_its_path(api: Plane) -> None:
    asked = request(workload("a", 1), workload("a", 1), workload("b", -1), tie_break="coin")
    asked.clusters.append(asked.clusters[0])
    asked.options.available_replicas["nowhere"] = 1
    refusal = await refused(simulated(api, asked))
    assert refusal.code is grpc.StatusCode.INVALID_ARGUMENT
    assert refusal.violations.keys() == {
        "clusters[3].metadata.name",
        "bindings[1].metadata.name",
        "bindings[2].spec.replicas",
        "options.tieBreak",
        "options.availableReplicas[nowhere]",
    }


async def test_rules_of_the_scheduler_hold_as_well(api: Plane) -> None:
    torn = workload("a", 1, schedulerName="nobody")
    torn["spec"]["placement"]["replicaScheduling"] = {
        "replicaSchedulingType": "Duplicated",
        "clusterLimits": [{"min": 1}],
    }
    refusal = await refused(simulated(api, request(torn)))
    assert refusal.violations == {
        "bindings[0].spec.placement.replicaScheduling.clusterLimits": (
            "needs replicaSchedulingType Divided"
        ),
        "bindings[0].spec.schedulerName": "must be one of default-scheduler, not 'nobody'",
    }


@pytest.mark.parametrize(
    ("clusters", "bindings", "field"),
    [
        (simulations.MAX_CLUSTERS + 1, 0, "clusters"),
        (0, simulations.MAX_BINDINGS + 1, "bindings"),
        (1001, 1000, "bindings"),
    ],
)
async def test_a_simulation_has_limits(
    api: Plane, clusters: int, bindings: int, field: str
) -> None:
    asked = SimulateRequest(
        clusters=[Cluster(metadata=ObjectMeta(name="m"))] * clusters,
        bindings=[ResourceBinding()] * bindings,
    )
    refusal = await refused(simulated(api, asked))
    assert list(refusal.violations) == [field]


def test_an_answer_that_would_not_arrive_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulation_worker, "MAX_ANSWER_BYTES", 10)
    question = simulation_question(request(workload("a", 1)).SerializeToString(), 0.0)
    kind, body = answered(question, SETUP)
    assert kind is AnswerKind.REFUSAL
    status = Status.FromString(body)
    assert status.code == code_pb2.RESOURCE_EXHAUSTED
    assert "fewer bindings at a time" in status.message


async def test_nothing_is_answered_with_nothing(api: Plane) -> None:
    assert list(await simulated(api, SimulateRequest())) == []


async def test_profiles_are_the_servers(database_url: str, tmp_path: Path) -> None:
    profiles = Profiles.of([failing()])
    async with running_control_plane(database_url, tmp_path, profiles) as api:
        asked = request(workload("a", 1, schedulerName="flaky"))
        refusal = await refused(simulated(api, asked))
        assert (refusal.code, refusal.reason) == (
            grpc.StatusCode.FAILED_PRECONDITION,
            "PLUGIN_FAILED",
        )
