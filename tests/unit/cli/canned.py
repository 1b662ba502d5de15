"""A control plane's answers, always the same: what golden tests of fedctl show.

Must not know how they are shown.
"""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest
from google.protobuf.json_format import ParseDict
from google.protobuf.message import Message

from federation.cli.connection import Connection
from federation.client import Client, EstimateTable
from federation.v1 import (
    access_pb2,
    clusters_pb2,
    estimates_pb2,
    failover_pb2,
    rebalance_pb2,
    resource_pb2,
    scheduling_pb2,
)

# 2027-01-15T08:00:00Z
NOW = 1_800_000_000.0
DECISION = "0195a4f2-0000-4000-8000-00000000000"
UID = "8f6f4a2e-0c0b-4d52-9f0e-2f3f5c1d7a9"

M = TypeVar("M", bound=Message)


def of(kind: type[M], /, **fields: Any) -> M:
    return ParseDict(fields, kind())


def cluster(number: int, region: str, **status: Any) -> resource_pb2.Cluster:
    promise = {
        "binding": "shop/checkout-deployment",
        "replicas": number,
        "certificate": "careful",
        "stuck": int(number == 3),
        "requirements": {"resourceRequest": {"cpu": "500m", "memory": "1Gi"}},
    }
    return of(
        resource_pb2.Cluster,
        metadata={"name": f"member{number}", "uid": f"{UID}{number}", "labels": {"tier": "gold"}},
        spec={
            "region": region,
            "provider": "hetzner",
            "zones": [f"{region}a", f"{region}b"],
            "taints": [{"key": "maintenance", "value": "soon", "effect": "NoSchedule"}]
            if number == 3
            else [],
        },
        status={
            "kubernetesVersion": "v1.36.0",
            "conditions": [{"type": "Ready", "status": "True", "reason": ""}],
            "nodeSummary": {
                "totalNum": 4 * number,
                "readyNum": 4 * number,
                "gradedNum": 4 * number,
            },
            "resourceSummary": {
                "allocatable": {"cpu": str(16 * number), "memory": "64Gi", "pods": "440"},
                "allocated": {"cpu": "3500m", "memory": "20Gi", "pods": "37"},
                "allocating": {"cpu": "1", "memory": "2Gi", "pods": "2"},
            },
            "agent": {
                "connected": True,
                "version": "0.1.0",
                "reportEpoch": 7,
                "reportSequence": 40 + number,
                "lastReportTime": "2027-01-15T07:59:57Z",
                "lastHeartbeatTime": "2027-01-15T07:59:58Z",
            },
            "packable": {"promises": [promise]},
            "promised": {"cpu": f"{500 * number}m", "memory": f"{number}Gi", "pods": str(number)},
            **status,
        },
    )


CLUSTERS = [
    cluster(1, "eu-central-1"),
    cluster(2, "us-east-1", cordoned=True, cordonReason="kernel upgrade", cordonedBy="ops"),
    cluster(
        3,
        "eu-west-1",
        held=True,
        conditions=[{"type": "Ready", "status": "Unknown", "reason": "AgentSilent"}],
    ),
]


def binding(name: str, replicas: int, **shares: int) -> resource_pb2.ResourceBinding:
    return of(
        resource_pb2.ResourceBinding,
        metadata={"namespace": "shop", "name": name, "uid": f"{UID}0"},
        spec={
            "resource": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name[:8]},
            "replicas": replicas,
            "replicaRequirements": {"resourceRequest": {"cpu": "500m", "memory": "1Gi"}},
            "placement": {"replicaScheduling": {"replicaSchedulingType": "Divided"}},
            "clusters": [{"name": each, "replicas": count} for each, count in shares.items()],
        },
    )


BINDINGS = [
    binding("checkout-deployment", 7, member1=4, member3=3),
    binding("search-deployment", 5),
    # Scaled since it was placed, and one that goes whole to each cluster.
    binding("scaled-deployment", 7, member1=2, member3=2),
    binding("both-deployment", 7, member1=2, member3=2),
]
BINDINGS[-1].spec.placement.Clear()


def trace_row(name: str, **fields: Any) -> dict[str, Any]:
    return {
        "name": name,
        "selected": True,
        "source": "ESTIMATE_SOURCE_POOLS",
        "bound": "ESTIMATE_BOUND_LOWER",
        "reportSequence": 41,
        "reportAgeSeconds": 3.0,
        "scores": {"ClusterAffinity": 0, "ClusterLocality": 100},
        **fields,
    }


DECIDED = of(
    scheduling_pb2.Decision,
    id=f"{DECISION}1",
    namespace="shop",
    name="checkout-deployment",
    outcome="OUTCOME_SCHEDULED",
    clusters=[{"name": "member1", "replicas": 4}, {"name": "member3", "replicas": 3}],
    createTime="2027-01-15T07:58:00Z",
    triggers=["the binding is new"],
    promises=[
        {"cluster": "member1", "certificate": "careful", "reportEpoch": 7, "reportSequence": 41},
        {
            "cluster": "member3",
            "certificate": "unproven",
            "reportEpoch": 7,
            "reportSequence": 43,
            "note": "its agent sends no pools, so that only totals were compared",
        },
    ],
    nodePlacements=[
        {
            "cluster": "member1",
            "strategy": "MostAllocated",
            "nodes": [
                {"node": "worker-1", "replicas": 3, "score": 87},
                {"node": "worker-2", "replicas": 1, "score": 61},
            ],
        }
    ],
    trace={
        "facts": [
            {"name": "strategy", "value": "Weighted dynamic"},
            {"name": "selection", "value": "all clusters that passed"},
            {"name": "ties", "value": "hash"},
        ],
        "attempts": ["all clusters"],
        "clusters": [
            trace_row("member1", availableReplicas=24, score=55, weight=24, quota=4.2, replicas=4),
            trace_row(
                "member3",
                availableReplicas=16,
                score=40,
                weight=16,
                quota=2.8,
                replicas=3,
                remainderSeat=True,
            ),
            trace_row(
                "member2",
                selected=False,
                filter="TaintToleration",
                reason="taint fedsched.io/cordoned:NoSchedule is not tolerated",
            ),
        ],
    },
)
REFUSED = of(
    scheduling_pb2.Decision,
    id=f"{DECISION}2",
    namespace="shop",
    name="search-deployment",
    outcome="OUTCOME_UNSCHEDULABLE",
    remainder=5,
    reason="2 replicas are available, 5 wanted; short of memory in 2 clusters",
    createTime="2027-01-15T07:30:00Z",
    triggers=["replicas changed"],
)
WAIT = {
    "state": "WAIT_STATE_UNSCHEDULABLE",
    "since": "2027-01-15T06:00:00Z",
    "attempts": 12,
    "position": 1,
    "shortOf": "memory in 2 clusters",
    "overtakenSince": "2027-01-15T07:55:00Z",
    "overtakenBy": "shop/checkout-deployment",
    "remainder": 5,
}
QUEUE = [
    of(
        scheduling_pb2.QueuedBinding,
        namespace="shop",
        name="search-deployment",
        priority=100,
        decisionId=f"{DECISION}2",
        wait=WAIT,
    ),
    of(
        scheduling_pb2.QueuedBinding,
        namespace="shop",
        name="web-deployment",
        wait={
            "state": "WAIT_STATE_BACKOFF",
            "since": "2027-01-15T07:59:30Z",
            "attempts": 2,
            "position": 2,
            "nextTry": "2027-01-15T08:00:04Z",
            "shortOf": "cpu in 1 cluster",
            "remainder": 1,
        },
    ),
    of(
        scheduling_pb2.QueuedBinding,
        namespace="shop",
        name="batch-job",
        priority=-1,
        wait={
            "state": "WAIT_STATE_GATED",
            "since": "2027-01-15T07:58:30Z",
            "gate": "suspended",
        },
    ),
]


TOKENS = [
    of(
        access_pb2.Token,
        id="tok-3f1c9a7e5b2d4680",
        name="shop-ci",
        role="ROLE_SCHEDULER",
        namespaces=["shop-*"],
        networks=["10.0.0.0/8"],
        createTime="2027-01-01T00:00:00Z",
        expireTime="2027-03-01T00:00:00Z",
        lastUseTime="2027-01-15T07:59:00Z",
        lastUseAddress="10.1.2.3",
        callsPerSecond=50,
    ),
    of(
        access_pb2.Token,
        id="tok-91d0aa54c2e3f708",
        name="dashboard",
        role="ROLE_VIEWER",
        createTime="2027-01-01T00:00:00Z",
        expireTime="2027-01-10T00:00:00Z",
    ),
]
PLAN = of(
    rebalance_pb2.Plan,
    id=7,
    kind="PLAN_KIND_DRAIN",
    state="PLAN_STATE_DRAFT",
    clusters=["member1"],
    movesAtOnce=10,
    maxMovedPercent=100,
    stepCount=1,
    createdAt="2027-01-15T07:50:00Z",
    createdBy="ops",
    gain={"wanted": 4, "moved": 4, "bound": 4, "unit": "replicas"},
    steps=[
        {
            "number": 1,
            "namespace": "shop",
            "name": "checkout-deployment",
            "before": [{"name": "member1", "replicas": 4}, {"name": "member3", "replicas": 3}],
            "after": [{"name": "member3", "replicas": 7}],
            "reason": "member1 is to be emptied",
            "state": "STEP_STATE_PENDING",
        }
    ],
    unfixed=[
        {"namespace": "ml", "name": "pinned-job", "replicas": 1, "reason": "it says do-not-move"}
    ],
    unfixedCount=1,
)
FAILOVER = of(
    failover_pb2.FailoverStatus,
    enabled=True,
    replicasPerMinute=120.0,
    time="2027-01-15T08:00:00Z",
    silent=[{"name": "member3", "since": "2027-01-15T07:58:00Z", "lostAt": "2027-01-15T08:03:00Z"}],
)
RECORD = of(
    access_pb2.AuditRecord,
    id=12,
    time="2027-01-15T07:59:00Z",
    actor="ops",
    credentialId="tok-3f1c9a7e5b2d4680",
    address="10.1.2.3",
    method="CordonCluster",
    objects=["cluster/member2"],
    result="OK",
)
FLOOD = of(
    access_pb2.AuditRecord,
    id=11,
    time="2027-01-15T07:58:00Z",
    actor="somebody unknown",
    address="203.0.113.9",
    method="Clusters/ListClusters",
    result="UNAUTHENTICATED",
    reason="The credential is unknown, revoked, or expired.",
    unrecorded=2328,
)
QUOTA = of(
    access_pb2.Quota,
    namespace="shop",
    replicas=200,
    usedReplicas=7,
    resources={"cpu": "64"},
    usedResources={"cpu": "3500m"},
)
ESTIMATE = estimates_pb2.EstimateReplicasResponse(
    clusters=["member1", "member2", "member3"],
    replicas=[24, 60, 0],
    unknown=[2],
    sources=[4, 2, 0],
    bounds=[2, 1, 0],
    upper_replicas=[25, -1, -1],
    notes=[estimates_pb2.EstimateNote(position=2, reason="nothing was reported yet")],
    age_seconds=[3.0, 4.0, 0.0],
    sequences=[41, 42, 0],
)
ANSWERS: dict[str, Any] = {
    "list_clusters": CLUSTERS,
    "get_cluster": CLUSTERS[1],
    "list_bindings": BINDINGS,
    "list_queue": QUEUE,
    "get_binding": of(
        scheduling_pb2.GetBindingResponse,
        reservations=[
            {
                "cluster": "member1",
                "replicas": 4,
                "outstanding": 1,
                "bound": 3,
                "certificate": "careful",
                "decisionId": f"{DECISION}1",
            }
        ],
        wait=WAIT,
    ),
    "list_decisions": [DECIDED, REFUSED],
    "get_decision": DECIDED,
    "replay_decision": of(
        scheduling_pb2.ReplayDecisionResponse,
        equal=True,
        storedSha256="6c1f" * 8,
        replayedSha256="6c1f" * 8,
        storedRevision="6",
        replayedRevision="6",
        besideReports={
            "clusters": 3,
            "onOtherReports": 1,
            "decisionsSince": 14,
            "outcome": "OUTCOME_SCHEDULED",
            "targets": [
                {"name": "member1", "replicas": 4},
                {"name": "member2", "replicas": 2},
            ],
            "differences": [
                {
                    "cluster": "member2",
                    "decidedOn": 12,
                    "least": 15,
                    "most": 17,
                    "decidedOnReport": 812,
                    "keptReport": 812,
                },
                {
                    "cluster": "member4",
                    "decidedOn": 7,
                    "least": 6,
                    "most": 6,
                    "decidedOnReport": 1201,
                    "keptReport": 1199,
                },
                {"cluster": "member3", "decidedOn": 3, "decidedOnReport": 9, "notKept": True},
            ],
        },
    ),
    "list_tokens": TOKENS,
    "list_quotas": [QUOTA],
    "list_audit": [RECORD, FLOOD],
    "get_failover": FAILOVER,
    "who_am_i": of(
        access_pb2.WhoAmIResponse, actor="shop-ci", role="ROLE_SCHEDULER", namespaces=["shop-*"]
    ),
    "estimate": EstimateTable.of(ESTIMATE, shapes=1),
    "schedule": scheduling_pb2.ScheduleResponse(decision=REFUSED, queued=True),
}
ANSWERS["get_binding"].binding.CopyFrom(BINDINGS[0])
ANSWERS["get_binding"].decision.CopyFrom(DECIDED)


class Canned:
    """Stands where a client does; ``answers`` are others than the usual ones."""

    def __init__(self, answers: dict[str, Any] | None = None) -> None:
        self._answers = ANSWERS | (answers or {})
        self.plans = SimpleNamespace(list=_answering([PLAN]), get=_answering(PLAN))
        token = of(
            clusters_pb2.JoinToken,
            id="3f1c9a7e5b2d4680",
            cluster="member4",
            expireTime="2027-01-15T08:45:00Z",
        )
        self.joining = SimpleNamespace(tokens=_answering([token]))

    def __getattr__(self, method: str) -> Any:
        return _answering(self._answers[method])


def _answering(answer: Any) -> Any:
    async def method(*_: Any, **__: Any) -> Any:
        return answer

    return method


def answer_with(monkeypatch: pytest.MonkeyPatch, **answers: Any) -> None:
    """Let fedctl be answered so in this process, now."""

    def call(_: Connection, method: Any) -> Any:
        # Also where an event loop runs in this thread.
        with ThreadPoolExecutor(1) as threads:
            return threads.submit(asyncio.run, method(Canned(answers))).result()

    monkeypatch.setattr(Connection, "call", call)
    for name in ("estimate", "schedule"):
        # Called through the class, with the client as their first argument.
        monkeypatch.setattr(Client, name, lambda api, *_, _name=name, **__: getattr(api, _name)())
    monkeypatch.setattr(time, "time", lambda: NOW)
