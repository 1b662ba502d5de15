"""A test's own namespace and clusters at a control plane, and short words for its calls.

    await world.clusters(a=6, b=3)              agents of clusters with so many free cores
    answer = await world.schedule("web", 4)     a workload of one-core replicas
    await world.shares("web")                   {"a": 4}

Must not check anything but that what it makes for a test is there.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from copy import copy
from typing import Any, TypeVar

from federation.store.floors import JOURNAL
from federation.v1.resource_pb2 import (
    ClusterAffinity,
    ObjectReference,
    ReplicaRequirements,
    ResourceBinding,
)
from federation.v1.scheduling_pb2 import ScheduleBatchItem, ScheduleRequest
from lab.commanded_stores import CommandedStore
from lab.control_planes import RunningControlPlane
from lab.databases import connected
from lab.fake_agents import FakeAgent
from lab.held_clocks import HeldClock
from lab.patience import until
from tests.api.calls import binding, code_of, decided, shares

__all__ = ["World", "code_of", "shares"]

Answer = TypeVar("Answer")

# Begins a transaction that may append to the journal at any time.
HOLD_JOURNAL = f"BEGIN; {JOURNAL.take}"

# The cluster that nothing but ``settle`` uses.
SETTLER = "settler"

# How long the clock of a world stands still at most where its time is to pass.
LONGEST_TURN_SECONDS = 0.01

serial = itertools.count(1)


class World:
    """What one test has of a control plane; ``end`` takes it all away."""

    def __init__(self, plane: RunningControlPlane, clock: HeldClock, store: CommandedStore) -> None:
        self.plane = plane
        self.clock = clock
        self.store = store
        self.namespace = f"shop{next(serial)}"
        self.agents: dict[str, FakeAgent] = {}
        self._settlers = f"{self.namespace}-settled"
        self._settled = 0

    async def clusters(self, placer: str = "none", **cores: int) -> None:
        """Clusters of one node each with so many free cores, and their agents."""
        joined = await asyncio.gather(
            *(
                FakeAgent.joined(self.plane, name, cores=count, placer=placer)
                for name, count in cores.items()
            )
        )
        self.agents |= {agent.cluster: agent for agent in joined}

    def at(self, plane: RunningControlPlane, store: CommandedStore) -> World:
        """The same namespace and clusters, asked for at another control plane."""
        other = copy(self)
        other.plane, other.store = plane, store
        return other

    async def end(self) -> None:
        """Delete all bindings, of whichever namespace, and all clusters of the test."""
        bindings = (await self.plane.ask("ListBindings", page_size=1000)).bindings
        # At once: what waits would be tried again after each of them.
        await asyncio.gather(
            *(
                self.delete(binding.metadata.name, binding.metadata.namespace)
                for binding in bindings
            )
        )
        await asyncio.gather(*map(self.delete_cluster, list(self.agents)))
        # Another cluster of the same name must not be taken for the one that is deleted.
        await self.plane.follow()

    async def delete_cluster(self, name: str) -> None:
        await self.agents.pop(name).leave()
        await self.plane.ask("DeleteCluster", name=name, force=True)

    def workload(
        self, name: str = "web", replicas: int = 1, *, only: Sequence[str] = (), **fields: Any
    ) -> ResourceBinding:
        """One-core replicas in the test's namespace; ``only`` names clusters.

        Further fields are those of ``calls.binding``.
        """
        affinity = ClusterAffinity(cluster_names=only, exclude=self.agents.keys() & {SETTLER})
        placement = {"cluster_affinity": affinity, **fields.pop("placement", {})}
        resource = ObjectReference(api_version="apps/v1", kind="Deployment", name=name)
        fields = {"namespace": self.namespace, "resource": resource, **fields}
        return binding(name, replicas=replicas, placement=placement, **fields)

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
        return await self.plane.ask("Schedule", binding=workload, **asked)

    async def placed(self, name: str, replicas: int = 1, *only: str, **fields: Any) -> Any:
        """Replicas by cluster, as a new decision about the workload says."""
        answer = await self.schedule(name, replicas, only=only, **fields)
        return shares(answer.decision)

    async def free(self) -> Mapping[str, int]:
        """One-core replicas that each cluster has capacity for."""
        core = ReplicaRequirements(resource_request={"cpu": "1"})
        found = await self.plane.ask("EstimateReplicas", shapes=[core], include_cluster_names=True)
        return dict(zip(found.clusters, found.replicas, strict=True))

    async def batch(self, *items: ResourceBinding | ScheduleBatchItem, atomic: bool = False) -> Any:
        """The results of a batch."""
        listed = [
            item if isinstance(item, ScheduleBatchItem) else ScheduleBatchItem(binding=item)
            for item in items
        ]
        return (await self.plane.ask("ScheduleBatch", items=listed, atomic=atomic)).results

    async def commit(self, preview: Any, **fields: Any) -> Any:
        """The answer to Schedule of what a preview showed."""
        return await self.plane.ask("Schedule", preview_token=preview.preview_token, **fields)

    async def ask_of(self, method: str, name: str = "web", **fields: Any) -> Any:
        """The answer of a method that takes the name of a binding."""
        return await self.plane.ask(method, **{"namespace": self.namespace, "name": name, **fields})

    async def got(self, name: str = "web") -> Any:
        return await self.ask_of("GetBinding", name)

    async def decision(self, decision_id: str) -> Any:
        return await decided(self.plane.admin, decision_id)

    async def delete(self, name: str = "web", namespace: str = "") -> None:
        await self.ask_of("DeleteBinding", name, namespace=namespace or self.namespace)

    async def release(self, name: str = "web", **fields: Any) -> Any:
        return await self.ask_of("ReleaseReservation", name, **fields)

    async def shares(self, name: str = "web") -> Mapping[str, int]:
        """Replicas by cluster, as the binding says."""
        return shares((await self.got(name)).binding.spec.clusters)

    def shares_of(self, name: str) -> Callable[[], Awaitable[Mapping[str, int]]]:
        """A question for ``until`` and ``pass_until``."""
        return lambda: self.shares(name)

    async def held(self, name: str = "web") -> Mapping[str, int]:
        """Replicas by cluster that reservations hold."""
        return {each.cluster: each.replicas for each in (await self.got(name)).reservations}

    async def queue(self) -> Sequence[Any]:
        """What waits in the test's namespace, in order."""
        return list((await self.plane.ask("ListQueue", namespace=self.namespace)).bindings)

    async def queued(self) -> list[str]:
        return [each.name for each in await self.queue()]

    async def wait_of(self, name: str) -> Any:
        return (await self.got(name)).wait

    @asynccontextmanager
    async def unread_journal(self) -> AsyncIterator[None]:
        """Let no control plane read what others write: a writer of the journal stays open."""
        async with connected(self.plane.database_url) as writer:
            await writer.execute(HOLD_JOURNAL)
            yield

    async def settle(self) -> None:
        """Return when the queue has looked at all that happened before.

        A binding that asks for what no other does, and comes after all others, waits; it is placed
        once its own cluster reports what it asks for.
        """
        await self.use_settler()
        self._settled += 1
        name = f"settled-{self._settled}"
        settling = self.workload(
            name, request={"example.com/settled": "1"}, priority=-(2**31), namespace=self._settlers
        )
        settling.spec.placement.cluster_affinity.CopyFrom(ClusterAffinity(cluster_names=[SETTLER]))
        assert (await self.schedule(settling)).queued
        await self.agents[SETTLER].report(cores=0, **{"example.com/settled": self._settled})

        async def is_placed() -> bool:
            found = await self.ask_of("GetBinding", name, namespace=self._settlers)
            return bool(found.binding.spec.clusters)

        await until(is_placed, bool)

    async def use_settler(self) -> None:
        """Join the cluster that ``settle`` needs; what is asked for from now on stays out of it."""
        if SETTLER not in self.agents:
            self.agents[SETTLER] = await FakeAgent.joined(self.plane, SETTLER, cores=0)

    async def report(self, cluster: str, cores: int, **sees: int) -> None:
        """So many cores are free there; with ``sees`` these pods of the namespace are there."""
        seen = {f"{self.namespace}/{name}": count for name, count in sees.items()}
        await self.agents[cluster].report(cores=cores, sees=seen if sees else None)

    async def fill(self) -> None:
        """Clusters of 6, 3 and 3 cores, all of them promised."""
        await self.use_settler()
        await self.clusters(a=6, b=3, c=3)
        for cluster, cores in (("a", 6), ("b", 3), ("c", 3)):
            assert not (await self.schedule(f"on-{cluster}", cores, only=[cluster])).queued

    async def ask(self, *names: str, **fields: Any) -> None:
        """Ask for these, for which there is no room now."""
        for name in names:
            assert (await self.schedule(name, **fields)).queued, name

    async def pass_until(
        self, ask: Callable[[], Awaitable[Answer]], holds: Callable[[Answer], bool]
    ) -> Answer:
        """The first answer that holds, with a second of the clock before each.

        Moments that the database has noted may be later than a clock that has stood still.
        """

        async def ask_later() -> Answer:
            self.clock.advance(1)
            return await ask()

        return await until(ask_later, holds, longest_pause_seconds=LONGEST_TURN_SECONDS)

    async def until_queued(self, *names: str) -> None:
        """Return when these are what waits, in this order."""
        await until(self.queued, lambda waiting: waiting == list(names))

    async def until_placed(self, name: str, **replicas: int) -> None:
        """Return when the binding has these replicas by cluster."""
        await until(self.shares_of(name), lambda found: found == replicas)
