"""A test's own namespace and clusters at a control plane, and short words for its calls.

    await world.clusters(a=6, b=3)              agents of clusters with so many free cores
    answer = await world.schedule("web", 4)     a workload of one-core replicas
    await world.shares("web")                   {"a": 4}

Must not check anything but that what it makes for a test is there.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import grpc

from federation.v1.clusters_pb2 import DeleteClusterRequest
from federation.v1.resource_pb2 import (
    ClusterAffinity,
    ObjectMeta,
    ObjectReference,
    Placement,
    ReplicaRequirements,
    ReplicaSchedulingStrategy,
    ResourceBinding,
    ResourceBindingSpec,
)
from federation.v1.scheduling_pb2 import (
    DeleteBindingRequest,
    GetBindingRequest,
    GetDecisionRequest,
    ListBindingsRequest,
    ListQueueRequest,
    ReleaseReservationRequest,
    ScheduleBatchItem,
    ScheduleBatchRequest,
    ScheduleRequest,
)
from lab.commanded_stores import CommandedStore
from lab.control_planes import RunningControlPlane
from lab.fake_agents import FakeAgent
from lab.held_clocks import HeldClock
from lab.patience import until

serial = itertools.count(1)

DYNAMIC = ReplicaSchedulingStrategy(
    replica_scheduling_type="Divided", replica_division_preference="Aggregated"
)


class World:
    """What one test has of a control plane; ``end`` takes it all away."""

    def __init__(self, plane: RunningControlPlane, clock: HeldClock, store: CommandedStore) -> None:
        self.plane = plane
        self.clock = clock
        self.store = store
        self.namespace = f"shop{next(serial)}"
        self.agents: dict[str, FakeAgent] = {}

    async def clusters(self, **cores: int) -> None:
        """Clusters of one node each with so many free cores, and their agents."""
        joined = await asyncio.gather(
            *(FakeAgent.joined(self.plane, name, cores=count) for name, count in cores.items())
        )
        self.agents |= {agent.cluster: agent for agent in joined}

    async def end(self) -> None:
        """Delete all bindings, of whichever namespace, and all clusters of the test."""
        admin = self.plane.admin
        listed = await admin.call(admin.scheduling.ListBindings, ListBindingsRequest())
        for binding in listed.bindings:
            await self.delete(binding.metadata.name, binding.metadata.namespace)
        for agent in self.agents.values():
            await agent.leave()
            request = DeleteClusterRequest(name=agent.cluster, force=True)
            await admin.call(admin.clusters.DeleteCluster, request)

    def workload(
        self, name: str = "web", replicas: int = 1, *, only: Sequence[str] = (), **fields: Any
    ) -> ResourceBinding:
        """One-core replicas, divided by what is available; ``only`` names clusters.

        Further fields are those of the spec; ``placement`` those that differ in the placement.
        """
        placement = Placement(replica_scheduling=DYNAMIC)
        if only:
            placement.cluster_affinity.CopyFrom(ClusterAffinity(cluster_names=only))
        for field, value in fields.pop("placement", {}).items():
            placement.ClearField(field)
            placement.MergeFrom(Placement(**{field: value}))
        request = fields.pop("request", {"cpu": "1"})
        metadata = ObjectMeta(
            namespace=fields.pop("namespace", self.namespace), name=name, uid=fields.pop("uid", "")
        )
        spec: dict[str, Any] = {
            "resource": ObjectReference(api_version="apps/v1", kind="Deployment", name=name),
            "replicas": replicas,
            "placement": placement,
            **fields,
        }
        if "components" not in spec:
            spec["replica_requirements"] = ReplicaRequirements(resource_request=request)
        if "priority" in spec:
            spec["schedule_priority"] = {"priority": spec.pop("priority")}
        return ResourceBinding(metadata=metadata, spec=ResourceBindingSpec(**spec))

    async def schedule(
        self, workload: ResourceBinding | str, replicas: int = 1, **fields: Any
    ) -> Any:
        """The answer to Schedule of a workload, or of one by its name and these fields of it.

        The request's own fields are ``adopt``, ``wait``, ``preview`` and others of its message.
        """
        names = ScheduleRequest.DESCRIPTOR.fields_by_name
        asked = {name: fields.pop(name) for name in list(fields) if name in names}
        if isinstance(workload, str):
            workload = self.workload(workload, replicas, **fields)
        request = ScheduleRequest(binding=workload, **asked)
        return await self.call("Schedule", request)

    async def batch(self, *items: ResourceBinding | ScheduleBatchItem, atomic: bool = False) -> Any:
        """The results of a batch."""
        request = ScheduleBatchRequest(
            items=[
                item if isinstance(item, ScheduleBatchItem) else ScheduleBatchItem(binding=item)
                for item in items
            ],
            atomic=atomic,
        )
        return (await self.call("ScheduleBatch", request)).results

    async def got(self, name: str = "web") -> Any:
        return await self.call("GetBinding", self._named(GetBindingRequest, name))

    async def decision(self, decision_id: str) -> Any:
        return (await self.call("GetDecision", GetDecisionRequest(id=decision_id))).decision

    async def delete(self, name: str = "web", namespace: str = "") -> None:
        await self.call("DeleteBinding", self._named(DeleteBindingRequest, name, namespace))

    async def release(self, name: str = "web", **fields: Any) -> Any:
        request = self._named(ReleaseReservationRequest, name)
        request.MergeFrom(ReleaseReservationRequest(**fields))
        return await self.call("ReleaseReservation", request)

    async def shares(self, name: str = "web") -> Mapping[str, int]:
        """Replicas by cluster, as the binding says."""
        return shares((await self.got(name)).binding.spec.clusters)

    async def held(self, name: str = "web") -> Mapping[str, int]:
        """Replicas by cluster that reservations hold."""
        return {each.cluster: each.replicas for each in (await self.got(name)).reservations}

    async def queue(self) -> Sequence[Any]:
        """What waits in the test's namespace, in order."""
        request = ListQueueRequest(namespace=self.namespace)
        return list((await self.call("ListQueue", request)).bindings)

    async def queued(self) -> list[str]:
        return [each.name for each in await self.queue()]

    async def until_queued(self, *names: str) -> None:
        """Return when these are what waits, in this order."""
        await until(self.queued, lambda waiting: waiting == list(names))

    async def until_placed(self, name: str, **replicas: int) -> None:
        """Return when the binding has these replicas by cluster."""
        await until(lambda: self.shares(name), lambda found: found == replicas)

    async def call(self, method: str, request: Any) -> Any:
        """A call of the Scheduling service, by the admin."""
        return await self.plane.admin.call(getattr(self.plane.admin.scheduling, method), request)

    def _named(self, message: Any, name: str, namespace: str = "") -> Any:
        return message(namespace=namespace or self.namespace, name=name)


def shares(clusters: Sequence[Any]) -> dict[str, int]:
    """Replicas by cluster."""
    return {each.name: each.replicas for each in clusters}


async def code_of(call: Any) -> grpc.StatusCode:
    """The code with which a call ends."""
    try:
        await call
    except grpc.aio.AioRpcError as error:
        return error.code()
    return grpc.StatusCode.OK
