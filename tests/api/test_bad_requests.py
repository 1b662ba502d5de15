"""Requests that break rules: each is refused by the fields that break them, and changes nothing."""

from __future__ import annotations

import base64
import json
from typing import Any

import grpc
import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from federation.operations import scheduling as batches
from federation.rpc.pages import page_token
from federation.v1.resource_pb2 import (
    Cluster,
    Gang,
    ReplicaRequirements,
    ResourceBinding,
    SchedulePriority,
)
from federation.v1.scheduling_pb2 import OUTCOME_INVALID, OUTCOME_SCHEDULED
from federation.v1.scoring_pb2 import ScoringContainer, ScoringNode, ScoringPod
from lab.control_planes import Plane, refused, report
from tests.api.calls import ADMIN, SCHEDULER, VIEWER, binding, scheduled

HOSTILE = "a\x1b[2J\nerror: forged"
MANY = [f"a{number}" for number in range(101)]
FAR, NEVER = Timestamp(seconds=2**60), Timestamp(nanos=-1)
CPU = ReplicaRequirements(resource_request={"cpu": "1"})


def token(*parts: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(parts).encode()).decode()


def new_token(**fields: Any) -> dict[str, Any]:
    return {"name": "test", "role": VIEWER, **fields}


def joining(**fields: Any) -> dict[str, Any]:
    return {"cluster": "member2", "token": "a.b", "cluster_uid": "uid-1", **fields}


def freezing(**fields: Any) -> dict[str, Any]:
    return {"reason": "network change", **fields}


def a_release(**fields: Any) -> dict[str, Any]:
    return {"namespace": "shop", "name": "cart", **fields}


def a_pod(**request: str) -> ScoringPod:
    return ScoringPod(containers=[ScoringContainer(requests=request)])


def nodes(*of: Any, **fields: Any) -> dict[str, Any]:
    policy = "kind: Policy\npriorities: [{name: LeastRequestedPriority, weight: 1}]"
    pod = {"pod": a_pod(cpu="2"), "configuration": policy, "nodes": of or [ScoringNode(name="n")]}
    return {**pod, **fields}


BOUNDS = (-(2**31) - 1, 2**31)
ONE_PLACE = "must not be set beside region: a freeze is of one place"

# The method, the fields of its request, and which of them it is refused for.
BAD: list[tuple[str, dict[str, Any], set[str]]] = [
    ("CreateToken", new_token(name=""), {"name"}),
    ("CreateToken", new_token(name="x" * 64), {"name"}),
    ("CreateToken", new_token(name="a\x1b[2J"), {"name"}),
    ("CreateToken", new_token(role=0), {"role"}),
    ("CreateToken", new_token(role=99), {"role"}),
    ("CreateToken", new_token(role=SCHEDULER, cluster_labels={"a": "b"}), {"clusterLabels"}),
    ("CreateToken", new_token(cluster_labels={"": "b"}), {"clusterLabels"}),
    ("CreateToken", new_token(cluster_labels={"a": "b" * 400}), {"clusterLabels[a]"}),
    ("CreateToken", new_token(namespaces=["Shop"]), {"namespaces[0]"}),
    ("CreateToken", new_token(namespaces=["a", "a"]), {"namespaces[1]"}),
    ("CreateToken", new_token(namespaces=MANY), {"namespaces"}),
    ("CreateToken", new_token(role=ADMIN, namespaces=["a"]), {"namespaces"}),
    ("CreateToken", new_token(clusters=[""]), {"clusters[0]"}),
    ("CreateToken", new_token(role=SCHEDULER, clusters=["a"]), {"clusters"}),
    ("CreateToken", new_token(networks=["10.0.0.1/8"]), {"networks[0]"}),
    ("CreateToken", new_token(ttl_seconds=0), {"ttlSeconds"}),
    ("CreateToken", new_token(ttl_seconds=10**9), {"ttlSeconds"}),
    (
        "CreateToken",
        new_token(calls_per_second=-1, calls_at_once=1_000_001),
        {"callsPerSecond", "callsAtOnce"},
    ),
    ("ListTokens", {"page_token": "x"}, {"pageToken"}),
    (
        "SetQuota",
        {"quota": {"namespace": "Shop", "replicas": -1, "resources": {"cpu": "-1", "a b": "1"}}},
        {"quota.namespace", "quota.replicas", "quota.resources[a b]", "quota.resources[cpu]"},
    ),
    ("ListAudit", {"page_token": "WyJhIiwgImIiXQ=="}, {"pageToken"}),
    ("CreateJoinToken", {}, {"cluster"}),
    *[
        ("CreateJoinToken", {"cluster": name}, {"cluster"})
        for name in ("Upper", "a" * 49, "a\x00", "a_b", "-a", "a-", "a.b", "a\n", "é")
    ],
    ("CreateJoinToken", {"cluster": "a", "ttl_seconds": 0}, {"ttlSeconds"}),
    ("CreateJoinToken", {"cluster": "a", "ttl_seconds": -1}, {"ttlSeconds"}),
    ("CreateJoinToken", {"cluster": "-", "ttl_seconds": 604_801}, {"cluster", "ttlSeconds"}),
    ("RevokeJoinToken", {}, {"id"}),
    (
        "EnrollCluster",
        joining(cluster_uid="u\x00", zones=["z", "\x00"]),
        {"clusterUid", "zones[1]"},
    ),
    ("EnrollCluster", joining(cluster_uid=""), {"clusterUid"}),
    ("EnrollCluster", joining(cluster_uid="not a uid"), {"clusterUid"}),
    ("EnrollCluster", joining(cluster_uid=HOSTILE), {"clusterUid"}),
    ("EnrollCluster", joining(region=HOSTILE), {"region"}),
    ("EnrollCluster", joining(provider="x" * 254), {"provider"}),
    ("EnrollCluster", joining(zones=["a", HOSTILE]), {"zones[1]"}),
    ("EnrollCluster", joining(kubernetes_version=HOSTILE), {"kubernetesVersion"}),
    ("EnrollCluster", joining(agent_version="\u202e1.0"), {"agentVersion"}),
    *[
        ("ReplaceCluster", {"name": "member1", "cluster_uid": uid}, {"clusterUid"})
        for uid in ("not a uid", "", HOSTILE, "uid-of-member1")
    ],
    ("CordonCluster", {"name": "member1", "reason": "x" * 201}, {"reason"}),
    ("CordonCluster", {"name": "member1", "reason": "a\x1b[2J"}, {"reason"}),
    ("GetCluster", {}, {"name"}),
    ("ListClusters", {"page_size": -1}, {"pageSize"}),
    ("ListClusters", {"page_size": 1001}, {"pageSize"}),
    ("ListClusters", {"page_token": "nonsense"}, {"pageToken"}),
    (
        "UpdateCluster",
        {
            "cluster": Cluster(
                metadata={"name": "member1", "labels": {"k": "x" * 100_000, "bad key": "v"}},
                spec={
                    "region": HOSTILE,
                    "taints": [
                        {"key": "a b", "effect": "NoSchedule"},
                        {"key": "k", "effect": "Sometimes"},
                    ],
                    "resource_models": [{"grade": 1}],
                },
            )
        },
        {
            *("metadata.labels[k]", "metadata.labels[bad key]", "spec.region"),
            *("spec.taints[0].key", "spec.taints[1].effect", "spec.resourceModels[0].ranges"),
        },
    ),
    ("EstimateReplicas", {}, {"shapes"}),
    (
        "EstimateReplicas",
        {"shapes": [ReplicaRequirements(resource_request={"cpu": "-1"})]},
        {"shapes[0].resourceRequest[cpu]"},
    ),
    (
        "EstimateReplicas",
        {"shapes": [CPU], "clusters": ["nobody", "member1", "no"]},
        {"clusters[0]", "clusters[2]"},
    ),
    (
        "EstimateReplicas",
        {"shapes": [CPU], "highest_source": 99, "merge": 99},
        {"highestSource", "merge"},
    ),
    ("FreezeFailover", {}, {"reason"}),
    ("FreezeFailover", freezing(region="eu", provider="cloud"), {"provider"}),
    ("FreezeFailover", freezing(region="nowhere"), {"region"}),
    ("ResumeFailover", {"region": "eu", "control_plane": "one"}, {"controlPlane"}),
    ("ResumeFailover", {"control_plane": "a\nb"}, {"controlPlane"}),
    ("ListDecisions", {"namespace": "\x00"}, {"namespace"}),
    ("ListDecisions", {"cluster": "No Name"}, {"cluster"}),
    ("ListDecisions", {"outcomes": [OUTCOME_INVALID]}, {"outcomes[0]"}),
    ("ListDecisions", {"outcomes": [OUTCOME_SCHEDULED, 99]}, {"outcomes[1]"}),
    ("ListDecisions", {"since": FAR}, {"since"}),
    ("ListDecisions", {"until": NEVER}, {"until"}),
    ("ListDecisions", {"page_size": 1001}, {"pageSize"}),
    *[
        ("ListDecisions", {"page_token": text}, {"pageToken"})
        for text in (
            "x",
            page_token(("1.0", "a")),
            page_token(("1000", "no id")),
            page_token(("-1", "0" * 32)),
            page_token(("9" * 19, "0" * 32)),
            page_token(("1000", "0" * 32, "more")),
        )
    ],
    ("ExportTrace", {"since": FAR}, {"since"}),
    ("ExportTrace", {"until": NEVER}, {"until"}),
    ("ExportTrace", {"page_token": "x"}, {"pageToken"}),
    ("ReplayDecision", {}, {"id"}),
    ("ReplayDecision", {"id": "\x00"}, {"id"}),
    ("GetBinding", {}, {"name"}),
    ("GetBinding", {"name": "a\x00"}, {"name"}),
    ("DeleteBinding", {}, {"name"}),
    ("DeleteBinding", {"name": "a", "uid": "\x00"}, {"uid"}),
    ("GetDecision", {}, {"id"}),
    ("GetDecision", {"id": "\x00"}, {"id"}),
    ("ListBindings", {"namespace": "\x00"}, {"namespace"}),
    ("SuspendBinding", {"namespace": "shop"}, {"name"}),
    ("RescheduleBinding", {}, {"name"}),
    *[("ListQueue", {"priority": number}, {"priority"}) for number in BOUNDS],
    ("ListQueue", {"page_size": 1001}, {"pageSize"}),
    ("ListQueue", {"namespace": "a\0b"}, {"namespace"}),
    *[
        ("ListQueue", {"page_token": text}, {"pageToken"})
        for text in (
            "nonsense",
            token("1-1", "x", "1.0", "", ""),
            token("1-1", "1", "nan", "", ""),
            token("1-1", "1", "1e300", "", ""),
            token("1-1", str(2**40), "1.0", "", ""),
            token("1-1", "1" * 5000, "1.0", "", ""),
        )
    ],
    ("ReleaseReservation", {}, {"name"}),
    ("ReleaseReservation", a_release(name="a\0b"), {"name"}),
    ("ReleaseReservation", a_release(clusters=["member1", "No Name"]), {"clusters[1]"}),
    ("ReleaseReservation", a_release(clusters=[""]), {"clusters[0]"}),
    ("ReleaseReservation", a_release(clusters=["member1", "member1"]), {"clusters[1]"}),
    ("ReleaseReservation", a_release(clusters=["member1", "nobody"]), {"clusters[1]"}),
    ("RenewLease", a_release(lease_seconds=0), {"leaseSeconds"}),
    ("RenewLease", a_release(lease_seconds=-1), {"leaseSeconds"}),
    ("RenewLease", {"lease_seconds": 315_360_001}, {"name", "leaseSeconds"}),
    *[
        (
            "Schedule",
            {"binding": binding(), "node_timeout_seconds": seconds},
            {"nodeTimeoutSeconds"},
        )
        for seconds in (-1.0, 61.0, float("nan"), float("inf"))
    ],
    *[
        ("Schedule", {"binding": binding(), "idempotency_key": key}, {"idempotencyKey"})
        for key in ("x" * 129, "a\nb", "nul\0", " ")
    ],
    (
        "Schedule",
        {"binding": binding(), "idempotency_key": "k", "preview": True},
        {"idempotencyKey"},
    ),
    (
        "Schedule",
        {"binding": binding(), "idempotency_key": "k", "preview_token": "t"},
        {"idempotencyKey"},
    ),
    (
        "Schedule",
        {"binding": binding(), "preview": True, "preview_token": "a.b"},
        {"previewToken"},
    ),
    ("Schedule", {"binding": binding(lease_seconds=-1)}, {"spec.leaseSeconds"}),
    *[
        (
            "Schedule",
            {"binding": binding(schedule_priority=SchedulePriority(priority=number))},
            {"spec.schedulePriority.priority"},
        )
        for number in BOUNDS
    ],
    *[
        ("Schedule", {"binding": binding(gang=gang)}, {field})
        for gang, field in (
            (Gang(name="train", size=0), "spec.gang.size"),
            (Gang(size=2), "spec.gang.name"),
            (Gang(name="train", size=2, timeout_seconds=0), "spec.gang.timeoutSeconds"),
        )
    ],
    *[
        ("ScheduleBatch", {"items": [{}] * count, "atomic": atomic}, {"items"})
        for count in (0, batches.MAX_ITEMS + 1)
        for atomic in (False, True)
    ],
    ("ScoreNodes", nodes(configuration=""), {"configuration"}),
    ("ScoreNodes", nodes(configuration="#" * 70_000), {"configuration"}),
    ("ScoreNodes", nodes(configuration="a: ["), {"configuration"}),
    (
        "ScoreNodes",
        nodes(configuration="kind: Policy\npriorities: [{name: a}]"),
        {"configuration.priorities[0].weight"},
    ),
    ("ScoreNodes", nodes(nodes=[]), {"nodes"}),
    ("ScoreNodes", nodes(nodes=[ScoringNode()] * (5_000 + 1)), {"nodes"}),
    ("ScoreNodes", nodes(ScoringNode(pods=[ScoringPod()] * 20_001)), {"nodes"}),
    (
        "ScoreNodes",
        nodes(ScoringNode(allocatable={"cpu": "x"}, pods=[a_pod(cpu="-1")])),
        {"nodes[0].allocatable[cpu]", "nodes[0].pods[0].containers[0].requests[cpu]"},
    ),
    ("ScoreNodes", nodes(pod=ScoringPod(containers=[ScoringContainer()] * 101)), {"pod"}),
    ("ScoreNodes", nodes(pod=None), {"pod"}),
    ("ScoreNodes", nodes(scale=9), {"scale"}),
]


async def test_what_breaks_rules_is_refused_by_field_and_changes_nothing(api: Plane) -> None:
    async with api.connected("member1", report=report()):
        await scheduled(api, binding(lease_seconds=60))
        before = await state(api)
        other = []
        for method, fields, violations in BAD:
            refusal = await refused(api.ask(method, **fields))
            if set(refusal.violations) != violations:
                other.append((method, fields, refusal))
            assert refusal.code is grpc.StatusCode.INVALID_ARGUMENT, (method, fields, refusal)
        assert not other
        assert await state(api) == before


async def state(api: Plane) -> list[Any]:
    """All that requests may change."""
    stored = [
        (await api.ask("GetBinding", namespace="shop", name="cart")),
        *(await api.ask("ListBindings")).bindings,
        *(await api.ask("ListQueue")).bindings,
        *(await api.ask("ListTokens")).tokens,
        *(await api.ask("ListJoinTokens")).tokens,
        *(await api.ask("ListQuotas")).quotas,
        (await api.ask("GetCluster", name="member1")).cluster.spec,
        (await api.ask("GetFailover")).status.freeze,
    ]
    estimates = await api.ask("EstimateReplicas", shapes=[CPU])
    return [*stored, list(estimates.replicas)]


async def test_every_broken_rule_of_a_binding_is_told_at_once(api: Plane) -> None:
    bad = binding(replicas=2**31)
    bad.spec.replica_requirements.resource_request["cpu"] = "lots"
    bad.spec.placement.replica_scheduling.replica_scheduling_type = "Halved"
    for fields in ({}, {"preview": True}):
        refusal = await refused(scheduled(api, bad, **fields))
        assert set(refusal.violations) == {
            "spec.replicas",
            "spec.replicaRequirements.resourceRequest[cpu]",
            "spec.placement.replicaScheduling.replicaSchedulingType",
        }
        refusal = await refused(scheduled(api, ResourceBinding(), **fields))
        assert {"metadata.name", "spec.placement"} <= refusal.violations.keys()


@pytest.mark.parametrize(
    ("method", "fields", "rule"),
    [
        ("FreezeFailover", freezing(region="eu", provider="cloud"), ONE_PLACE),
        ("FreezeFailover", freezing(region="nowhere"), "is that of no cluster: 'nowhere'"),
        ("ScheduleBatch", {}, "must be 1 to 1000, not 0"),
        ("RevokeJoinToken", {}, "is required"),
        (
            "ResumeFailover",
            {"control_plane": "a\nb"},
            "must be at most 253 printable characters",
        ),
    ],
)
async def test_the_rule_is_told(api: Plane, method: str, fields: dict[str, Any], rule: str) -> None:
    assert list((await refused(api.ask(method, **fields))).violations.values()) == [rule]


NOBODY = {"namespace": "shop", "name": "nobody"}


@pytest.mark.parametrize(
    ("method", "fields"),
    [
        *[(method, {"name": "no-1"}) for method in ("GetCluster", "CordonCluster")],
        *[(method, {"name": "no-1"}) for method in ("AcceptCluster", "RejectCluster")],
        ("DeleteCluster", {"name": "no-1", "force": True}),
        ("ReplaceCluster", {"name": "no-1", "cluster_uid": "uid"}),
        ("RevokeCluster", {"name": "no-1"}),
        ("UpdateCluster", {"cluster": {"metadata": {"name": "no-1"}}}),
        *[(method, NOBODY) for method in ("GetBinding", "DeleteBinding", "SuspendBinding")],
        *[(method, NOBODY) for method in ("RescheduleBinding", "ReleaseReservation")],
        ("RenewLease", {**NOBODY, "lease_seconds": 60}),
        *[("GetDecision", {"id": name}) for name in ("a", "9" * 40)],
        *[("ReplayDecision", {"id": name}) for name in ("nobody", "0" * 32)],
        ("ReplayDecision", {"id": "nobody", "from_reports": True}),
        ("RevokeToken", {"id": "tok-0"}),
        ("RevokeJoinToken", {"id": "nobody"}),
    ],
)
async def test_what_is_not_there_is_not_found(
    api: Plane, method: str, fields: dict[str, Any]
) -> None:
    assert (await refused(api.ask(method, **fields))).code is grpc.StatusCode.NOT_FOUND
