"""Answers of golden tests about gangs and events, beside those of all calls.

Must not know how they are shown.
"""

from __future__ import annotations

from federation.v1 import access_pb2, resource_pb2, scheduling_pb2
from tests.unit.cli.canned import BINDINGS, FLOOD, QUEUE, WAIT, cluster, of


def gang_member(name: str, replicas: int = 1) -> resource_pb2.ResourceBinding:
    return of(
        resource_pb2.ResourceBinding,
        metadata={"namespace": "ml", "name": name},
        spec={
            "replicas": 2,
            "clusters": [{"name": "member1", "replicas": replicas}] if replicas else [],
            "placement": {"replicaScheduling": {"replicaSchedulingType": "Divided"}},
            "gang": {"name": "training", "size": 3},
        },
    )


# A gang of three, of which two are stored and one waits, beside all that is there usually.
GANG = {
    "list_bindings": [*BINDINGS, gang_member("driver", 2), gang_member("worker", 0)],
    "list_queue": [
        *QUEUE,
        of(
            scheduling_pb2.QueuedBinding,
            namespace="ml",
            name="worker",
            wait={**WAIT, "gang": "training", "timesOut": "2027-01-15T08:30:00Z"},
        ),
    ],
}
CALLS_MADE = [
    of(
        access_pb2.AuditRecord,
        id=14,
        time="2027-01-15T07:59:00Z",
        actor="ops",
        method="Clusters/CordonCluster",
        objects=["member3"],
        result="OK",
    ),
    of(
        access_pb2.AuditRecord,
        id=13,
        time="2027-01-15T07:58:00.2Z",
        actor="shop-ci",
        method="Scheduling/Schedule",
        objects=["shop/checkout-deployment"],
        result="OK",
    ),
    FLOOD,
]
SILENT = [
    cluster(
        3,
        "eu-west-1",
        conditions=[
            {
                "type": "Ready",
                "status": "Unknown",
                "reason": "AgentSilent",
                "message": "nothing was heard of its agent",
                "lastTransitionTime": "2027-01-15T07:57:30Z",
            }
        ],
    )
]
