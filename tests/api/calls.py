"""Requests that many tests of the API make, and parts of their answers. Must not check anything."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import grpc

from federation.codec.rights import SMALL_REQUEST_BYTES, Audience
from federation.rpc.interceptors import OPEN_METHODS
from federation.rpc.permissions import PERMISSIONS, methods_for
from federation.v1 import access_pb2
from federation.v1.agents_pb2 import NodeShare, PlaceReply
from federation.v1.resource_pb2 import (
    Component,
    ObjectMeta,
    ObjectReference,
    Placement,
    ReplicaRequirements,
    ReplicaSchedulingStrategy,
    ResourceBinding,
    ResourceBindingSpec,
    SchedulePriority,
)
from lab.control_planes import AgentStream, Caller, Plane
from lab.patience import PATIENCE_SECONDS, until

VIEWER, SCHEDULER = access_pb2.ROLE_VIEWER, access_pb2.ROLE_SCHEDULER
OPERATOR, ADMIN = access_pb2.ROLE_OPERATOR, access_pb2.ROLE_ADMIN

DUPLICATED = ReplicaSchedulingStrategy(replica_scheduling_type="Duplicated")
AGGREGATED = ReplicaSchedulingStrategy(
    replica_scheduling_type="Divided", replica_division_preference="Aggregated"
)
EQUAL = ReplicaSchedulingStrategy(
    replica_scheduling_type="Divided", replica_division_preference="Weighted"
)
# Replicas in all clusters, by what is available there.
BY_ROOM = ReplicaSchedulingStrategy(
    replica_scheduling_type="Divided",
    replica_division_preference="Weighted",
    weight_preference={"dynamic_weight": "AvailableReplicas"},
)

PROTOS = sorted(
    (Path(__file__).parents[2] / "proto" / "federation" / "v1").glob("*.proto"), key=str
)
SERVICES_OF_PROTOS = [
    service
    for proto in PROTOS
    for service in importlib.import_module(
        f"federation.v1.{proto.stem}_pb2"
    ).DESCRIPTOR.services_by_name.values()
]
PATHS = [
    f"/{service.full_name}/{method.name}"
    for service in SERVICES_OF_PROTOS
    for method in service.methods
]
AGENT_METHODS, PEER_METHODS = methods_for(Audience.AGENTS), methods_for(Audience.PEERS)
GUARDED = sorted(set(PATHS) - OPEN_METHODS - AGENT_METHODS - PEER_METHODS)
CHANGES = sorted(path for path, row in PERMISSIONS.items() if row.changes)
LIMITS = {path: PERMISSIONS[path].max_request_bytes for path in GUARDED} | dict.fromkeys(
    OPEN_METHODS, SMALL_REQUEST_BYTES
)


class Asks(Protocol):
    """A caller, or a control plane's admin."""

    async def ask(self, method: str, /, **fields: Any) -> Any: ...


def binding(
    name: str = "cart",
    *,
    replicas: int = 3,
    namespace: str = "shop",
    uid: str = "",
    request: Mapping[str, str] | None = None,
    placement: Mapping[str, Any] | None = None,
    priority: int | None = None,
    **spec: Any,
) -> ResourceBinding:
    """A workload of one-core replicas, divided by what is available.

    ``request`` is of each replica, ``placement`` has the fields that differ; further fields are
    those of the spec.
    """
    placed = Placement(replica_scheduling=AGGREGATED)
    for field, value in (placement or {}).items():
        placed.ClearField(field)
        placed.MergeFrom(Placement(**{field: value}))
    if "components" not in spec:
        spec.setdefault(
            "replica_requirements", ReplicaRequirements(resource_request=request or {"cpu": "1"})
        )
    if priority is not None:
        spec["schedule_priority"] = SchedulePriority(priority=priority)
    workload = {"api_version": "apps/v1", "kind": "Deployment", "name": name}
    spec.setdefault("resource", ObjectReference(namespace=namespace, uid="u1", **workload))
    return ResourceBinding(
        metadata=ObjectMeta(namespace=namespace, name=name, uid=uid),
        spec=ResourceBindingSpec(replicas=replicas, placement=placed, **spec),
    )


def component(name: str, replicas: int, cores: str = "1") -> Component:
    requirements = ReplicaRequirements(resource_request={"cpu": cores})
    return Component(name=name, replicas=replicas, replica_requirements=requirements)


def in_namespace(namespace: str, name: str = "cart", replicas: int = 3) -> ResourceBinding:
    return binding(name, replicas=replicas, namespace=namespace)


async def scheduled(caller: Asks, wanted: ResourceBinding | None, **fields: Any) -> Any:
    return await caller.ask("Schedule", binding=wanted, **fields)


async def got(caller: Asks, name: str = "cart") -> Any:
    return await caller.ask("GetBinding", namespace="shop", name=name)


async def decided(caller: Asks, decision_id: str) -> Any:
    return (await caller.ask("GetDecision", id=decision_id)).decision


async def deleted(caller: Asks, name: str = "cart", **fields: Any) -> Any:
    return await caller.ask("DeleteBinding", namespace="shop", name=name, **fields)


async def paged(caller: Asks, method: str, field: str, size: int, **fields: Any) -> list[Any]:
    """What a method lists, asked for in pages of that size."""
    listed: list[Any] = []
    token = ""
    while True:
        page = await caller.ask(method, page_size=size, page_token=token, **fields)
        assert len(getattr(page, field)) <= size
        listed += getattr(page, field)
        token = page.next_page_token
        if not token:
            return listed


def shares(placed: Any) -> dict[str, int]:
    """Replicas by cluster, of a decision, of a spec or of a list of clusters."""
    return {each.name: each.replicas for each in getattr(placed, "clusters", placed)}


async def code_of(call: Any) -> grpc.StatusCode:
    """The code with which a call ends."""
    try:
        await call
    except grpc.aio.AioRpcError as error:
        return error.code()
    return grpc.StatusCode.OK


async def answer_places(stream: AgentStream, node: str) -> Any:
    """Put all replicas of the next question on one node; the question."""
    request = await stream.hear("place_request")
    replicas = sum(share.replicas for share in request.shares)
    nodes = [NodeShare(node=node, replicas=replicas, score=71)]
    await stream.say(
        place_reply=PlaceReply(request_id=request.request_id, nodes=nodes, strategy="MostAllocated")
    )
    return request


async def made(plane: Plane, role: Any, **fields: Any) -> tuple[Caller, str]:
    """A caller with a token of its own, and the token's id."""
    answer = await plane.ask("CreateToken", **{"name": "test", "role": role, **fields})
    return plane.caller(answer.secret), answer.token.id


def raw(plane: Plane, path: str, payload: bytes, *headers: str) -> Any:
    """The call of a unary method with these bytes and these authorization headers."""
    metadata = tuple(("authorization", header) for header in headers)
    return plane.channel.unary_unary(path)(payload, metadata=metadata, timeout=PATIENCE_SECONDS)


def header_of(caller: Caller) -> str:
    return str(caller.metadata[0][1])


async def audit_of(plane: Plane, **fields: Any) -> list[Any]:
    """All records, once those of refusals are written."""
    await plane.plane.parts.trail.write()
    return list((await plane.ask("ListAudit", **fields)).records)


async def sealed_chain(plane: Plane, count: int) -> Any:
    return await until(lambda: plane.ask("GetAuditChain"), lambda chain: chain.head.seal >= count)


async def to_the_end(watch: Any) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while await watch.read():
            pass
