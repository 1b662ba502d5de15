"""Requests that are nearly right: right ones, changed in a few random places.

Must not know what becomes of them.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from federation.codec.descriptors import map_values
from federation.codec.strict import message_from_document
from federation.v1 import (
    access_pb2,
    clusters_pb2,
    estimates_pb2,
    resource_pb2,
    scheduling_pb2,
    scoring_pb2,
    simulation_pb2,
)

TEXTS: Final = (
    *("", "\0", "a", "A" * 300, "größe", "\u2028", "\u202e", "\x1b[31m", "a\nb", "../x", "a/b/c"),
    *("'; --", "<script>", "%n", "*", "{}", "a: [", "web", "shop", "member1", "a-1", "cpu"),
    *("memory", "-1", "0", "1", "1 Gi", "1e", "9" * 30, "1e-30", "1e99", "500m", "8Ei", "NaN"),
    *("9223372036854775807", "Gt", "Lt", "In", "NotIn", "Exists", "DoesNotExist", "Equal"),
    *("NoExecute", "NoSchedule", "Duplicated", "Divided", "Weighted", "Aggregated", "FillFirst"),
    *("zone", "cluster", "region", "provider", "karmada", "strict", "nvidia.com/gpu"),
    *("default-scheduler", "AvailableReplicas", "Deployment", "Job", "apps/v1", "batch/v1"),
)
INTEGERS: Final = (0, 1, -1, 2, 100, 2**31 - 1, 2**31, -(2**31), 2**63 - 1, -(2**63), 2**64 - 1)
DOUBLES: Final = (0.0, 0.01, 1.0, 30.0, -1.0, 1e308, 5e-324, float("nan"), float("inf"))
WIDTHS: Final = {
    FieldDescriptor.CPPTYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.CPPTYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, 2**64 - 1),
}

RANGES = [
    {"name": "cpu", "min": "0", "max": "9223372036854775807"},
    {"name": "memory", "min": "0", "max": "9223372036854775807"},
]
AFFINITY = {
    "labelSelector": {"matchExpressions": [{"key": "env", "operator": "In", "values": ["prod"]}]},
    "fieldSelector": {"matchExpressions": [{"key": "region", "operator": "Exists", "values": []}]},
    "clusterNames": ["member1"],
    "exclude": ["member9"],
}
NODE_TERM = {"matchExpressions": [{"key": "cores", "operator": "Gt", "values": ["3"]}]}
REQUIREMENTS = {
    "resourceRequest": {"cpu": "500m", "memory": "1Gi", "nvidia.com/gpu": "1"},
    "nodeClaim": {
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"key": "a", "operator": "Equal", "value": "b", "effect": "NoSchedule"}],
        "hardNodeAffinity": {"nodeSelectorTerms": [NODE_TERM]},
    },
    "namespace": "shop",
}
PLACEMENTS: list[dict[str, Any]] = [
    {},
    {
        "clusterAffinity": {"clusterNames": ["member1"]},
        "clusterTolerations": [{"operator": "Exists"}],
        "replicaScheduling": {
            "replicaSchedulingType": "Divided",
            "weightPreference": {"dynamicWeight": "AvailableReplicas"},
            "clusterLimits": [{"targetCluster": {}, "min": 0, "max": 9}],
        },
        "partial": True,
    },
    {
        "clusterAffinities": [{"affinityName": "first", **AFFINITY}, {"affinityName": "then"}],
        "spreadConstraints": [
            {"spreadByField": "cluster", "minGroups": 1, "maxGroups": 2},
            {"spreadByField": "region", "minGroups": 1, "maxGroups": 1},
        ],
        "replicaScheduling": {
            "replicaSchedulingType": "Divided",
            "weightPreference": {
                "staticWeightList": [{"targetCluster": {"clusterNames": ["member1"]}, "weight": 2}]
            },
            "capacityBounded": True,
        },
        "workloadAffinity": {"antiAffinity": {"groupByLabelKey": "app"}},
        "tieBreak": "karmada",
    },
]


def cluster(name: str) -> resource_pb2.Cluster:
    document = {
        "metadata": {"name": name, "labels": {"env": "prod"}},
        "spec": {
            "region": "eu",
            "zones": ["a", "b"],
            "taints": [{"key": "a", "effect": "PreferNoSchedule"}],
            "resourceModels": [{"grade": 0, "ranges": RANGES}],
        },
        "status": {
            "apiEnablements": [{"groupVersion": "apps/v1", "resources": [{"kind": "Deployment"}]}],
            "conditions": [{"type": "Ready", "status": "True"}],
            "nodeSummary": {"totalNum": 4, "readyNum": 4},
            "resourceSummary": {
                "allocatable": {
                    "cpu": "16",
                    "memory": "64Gi",
                    "pods": "440",
                    "nvidia.com/gpu": "8",
                },
                "allocated": {"cpu": "3", "memory": "1Gi", "pods": "9"},
                "allocatableModelings": [{"grade": 0, "count": 4}],
            },
        },
    }
    return message_from_document(document, resource_pb2.Cluster)


def binding(placement: Mapping[str, Any]) -> resource_pb2.ResourceBinding:
    resource = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "uid-web"}
    document = {
        "metadata": {"namespace": "shop", "name": "web", "labels": {"app": "web"}},
        "spec": {
            "resource": resource,
            "replicas": 5,
            "replicaRequirements": REQUIREMENTS,
            "clusters": [{"name": "member1", "replicas": 2}],
            "placement": placement,
            "gracefulEvictionTasks": [{"fromCluster": "member2", "replicas": 1}],
            "schedulePriority": {"priority": 7},
            "rescheduleTriggeredAt": "2026-03-01T12:00:00Z",
        },
    }
    return message_from_document(document, resource_pb2.ResourceBinding)


def seeds() -> Iterator[Message]:
    """Requests that are right, several for some methods."""
    bindings = [binding(placement) for placement in PLACEMENTS]
    shape = bindings[0].spec.replica_requirements
    yield access_pb2.CreateTokenRequest(
        name="reader", role=access_pb2.ROLE_VIEWER, namespaces=["shop"], networks=["10.0.0.0/8"]
    )
    yield clusters_pb2.CreateJoinTokenRequest(cluster="member2", ttl_seconds=60)
    yield clusters_pb2.UpdateClusterRequest(cluster=cluster("member1"))
    yield clusters_pb2.CordonClusterRequest(name="member1", cordoned=True)
    yield estimates_pb2.EstimateReplicasRequest(shapes=[shape, shape], clusters=["member1"])
    components = [resource_pb2.Component(name="a", replicas=2, replica_requirements=shape)]
    yield estimates_pb2.EstimateComponentSetsRequest(components=components)
    for workload in bindings:
        yield scheduling_pb2.ScheduleRequest(binding=workload, adopt=True)
        yield scheduling_pb2.ScheduleRequest(binding=workload, preview=True)
        items = [scheduling_pb2.ScheduleBatchItem(binding=workload)]
        yield scheduling_pb2.ScheduleBatchRequest(items=items)
        yield simulation_pb2.SimulateRequest(
            clusters=[cluster("member1"), cluster("member2")],
            bindings=[workload],
            options=simulation_pb2.SimulationOptions(reserve=True, include_traces=True),
        )
    pod = scoring_pb2.ScoringPod(
        containers=[scoring_pb2.ScoringContainer(requests={"cpu": "1", "memory": "1Gi"})]
    )
    amounts = {"cpu": "8", "memory": "32Gi", "pods": "110"}
    node = scoring_pb2.ScoringNode(name="n", allocatable=amounts, pods=[pod])
    yield scoring_pb2.ScoreNodesRequest(
        configuration="apiVersion: kubescheduler.config.k8s.io/v1\n"
        "kind: KubeSchedulerConfiguration\n",
        pod=pod,
        nodes=[node, node],
    )


SEEDS: Final = list(seeds())


def nearly_right(
    descriptor: Descriptor, chance: random.Random, changes: Sequence[int], *more_seeds: Message
) -> Any:
    """A message of a type, changed in one of so many places; ``more_seeds`` are right as well."""
    message: Any = GetMessageClass(descriptor)()
    right = [seed for seed in (*SEEDS, *more_seeds) if seed.DESCRIPTOR is descriptor]
    message.CopyFrom(chance.choice(right or [message]))
    for _ in range(chance.choice(changes)):
        mutate(message, chance)
    return message


def mutate(message: Any, chance: random.Random) -> None:
    """Changes one place in a message, mostly where something is said already."""
    said = [field for field, _ in message.ListFields()]
    fields = said if said and chance.random() < 0.8 else list(message.DESCRIPTOR.fields)
    if not fields:
        return
    field = chance.choice(fields)
    value = getattr(message, field.name)
    if (values := map_values(field)) is not None:
        key = chance.choice([*value, chance.choice(TEXTS)])
        value[key] = scalar(values, chance)
    elif field.message_type is not None:
        mutate_messages(message, field, chance)
    elif field.is_repeated:
        value.append(scalar(field, chance))
    else:
        setattr(message, field.name, scalar(field, chance))


def mutate_messages(message: Any, field: FieldDescriptor, chance: random.Random) -> None:
    """Drops, repeats or goes into what a message holds."""
    value = getattr(message, field.name)
    if chance.random() < 0.1:
        message.ClearField(field.name)
    elif not field.is_repeated:
        value.SetInParent()
        mutate(value, chance)
    elif not value or chance.random() < 0.2:
        value.append(value[0] if value else value.add())
    else:
        mutate(chance.choice(value), chance)


def scalar(field: FieldDescriptor, chance: random.Random) -> Any:
    match field.type:
        case FieldDescriptor.TYPE_STRING:
            return chance.choice(TEXTS)
        case FieldDescriptor.TYPE_BYTES:
            return chance.choice((*map(str.encode, TEXTS), b"\xff" * 300))
        case FieldDescriptor.TYPE_BOOL:
            return chance.random() < 0.5
        case FieldDescriptor.TYPE_DOUBLE | FieldDescriptor.TYPE_FLOAT:
            return chance.choice(DOUBLES)
        case FieldDescriptor.TYPE_ENUM:
            return chance.choice((0, 1, 2, 99, -1))
    lowest, highest = WIDTHS[field.cpp_type]
    return chance.choice([number for number in INTEGERS if lowest <= number <= highest])
