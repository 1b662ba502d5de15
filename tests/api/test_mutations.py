"""Every method with requests that are nearly right: a caller's fault must never look like ours.

Valid requests are changed in a few random places, by a seed. Methods are found in the descriptors,
so that a new one is tried from its first day.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from typing import Any, Final

import grpc
import pytest
import pytest_asyncio
from google.protobuf.descriptor import FieldDescriptor, MethodDescriptor
from google.protobuf.descriptor_pool import Default
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from federation.codec.descriptors import map_values
from federation.codec.strict import message_from_document
from federation.rpc.served import SERVICES
from federation.v1 import (
    access_pb2,
    clusters_pb2,
    estimates_pb2,
    resource_pb2,
    scheduling_pb2,
    scoring_pb2,
    simulation_pb2,
)
from lab.control_planes import Plane, refusal_of, report
from lab.patience import PATIENCE_SECONDS

REQUESTS = 60
# Clusters last: its methods take away what the others ask about. Agents speak on streams.
METHODS: dict[str, MethodDescriptor] = {
    f"{service}/{method.name}": method
    for service in sorted(SERVICES, key=lambda name: name.endswith("Clusters"))
    if not service.endswith(".Agents")
    for method in Default().FindServiceByName(service).methods
}
OURS = {grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN, grpc.StatusCode.DEADLINE_EXCEEDED}

TEXTS: Final = (
    *("", "\0", "a", "a" * 300, "größe", "\u2028", "../x", "'; --", "%s", "{}", "a: [", "member1"),
    *("-1", "0", "1 Gi", "1e", "9" * 30, "1e-30", "500m", "9223372036854775807", "8Ei", "NaN"),
    *("Gt", "Lt", "In", "Exists", "NoExecute", "Duplicated", "Aggregated", "FillFirst"),
    *("cluster", "region", "zone", "provider", "karmada", "strict", "nvidia.com/gpu"),
)
INTEGERS: Final = (0, 1, -1, 2, 100, 2**31 - 1, 2**31, -(2**31), 2**63 - 1, -(2**63))
DOUBLES: Final = (0.0, 0.01, -1.0, 1e300, float("nan"), float("inf"))

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
    for each in bindings:
        yield scheduling_pb2.ScheduleRequest(binding=each, adopt=True)
        yield scheduling_pb2.ScheduleRequest(binding=each, preview=True)
        items = [scheduling_pb2.ScheduleBatchItem(binding=each)]
        yield scheduling_pb2.ScheduleBatchRequest(items=items)
        yield simulation_pb2.SimulateRequest(
            clusters=[cluster("member1"), cluster("member2")],
            bindings=[each],
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


SEEDS = list(seeds())


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
            return chance.choice(TEXTS).encode()
        case FieldDescriptor.TYPE_BOOL:
            return chance.random() < 0.5
        case FieldDescriptor.TYPE_DOUBLE:
            return chance.choice(DOUBLES)
        case FieldDescriptor.TYPE_ENUM:
            return chance.choice((0, 1, 2, 99, -1))
        case FieldDescriptor.TYPE_INT32:
            return chance.choice([each for each in INTEGERS if -(2**31) <= each < 2**31])
    return chance.choice(INTEGERS)


def requests(method: MethodDescriptor, number: int) -> Iterator[Message]:
    """Nearly right requests, the same ones every time."""
    chance = random.Random(method.full_name)
    message_class = GetMessageClass(method.input_type)
    right = [each for each in SEEDS if isinstance(each, message_class)] or [message_class()]
    for _ in range(number):
        request = message_class()
        request.CopyFrom(chance.choice(right))
        for _ in range(chance.choice((1, 1, 2, 4))):
            mutate(request, chance)
        yield request


@pytest_asyncio.fixture(scope="module", loop_scope="module", autouse=True)
async def member1(plane: Plane) -> None:
    async with plane.connected("member1", report=report()):
        pass


@pytest.mark.expected_errors("failover is frozen")
@pytest.mark.parametrize("name", METHODS)
async def test_no_request_is_the_servers_fault(plane: Plane, name: str) -> None:
    method = METHODS[name]
    answer = GetMessageClass(method.output_type)
    opened = plane.channel.unary_stream if method.server_streaming else plane.channel.unary_unary
    stub: Any = opened(
        f"/{name}",
        request_serializer=lambda message: message.SerializeToString(),
        response_deserializer=answer.FromString,
    )
    for request in requests(method, REQUESTS):
        call = stub(request, metadata=plane.admin.metadata, timeout=PATIENCE_SECONDS)
        try:
            if method.server_streaming:
                await call.read()
                call.cancel()
            else:
                await call
        except grpc.aio.AioRpcError as error:
            refusal = refusal_of(error)
            assert refusal.code not in OURS, f"{refusal}\n{request}"
            assert refusal.reason, f"{refusal}\n{request}"
    assert (await plane.ask("GetFailover")).HasField("status")
