"""A world in which time passes in turns: its agents are heard after each, but for silent ones.

    await drill.run_in("a", web=3)           workloads that are there and may go anywhere
    await drill.lose("a")                    silent until it is lost
    await drill.pass_time(40)                turns of four seconds
    await drill.see("b", web=2)              its agent sees pods: bound, or by what they are
Must not check anything but that what it does has happened.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from math import ceil
from typing import Any, TypeVar

from lab.patience import until
from tests.api.world import World, shares

Answer = TypeVar("Answer")

UNREACHABLE = "fedsched.io/unreachable"

HEARTBEAT_SECONDS, LOST_SECONDS, EVICTION_SECONDS, PENDING_SECONDS = 30, 120, 40, 30
STALE_SECONDS = 3 * HEARTBEAT_SECONDS
# A longer turn is a sleep of the machine.
LONGEST_TURN = 13
FLAGS = {
    "heartbeat_seconds": str(HEARTBEAT_SECONDS),
    "lost_seconds": str(LOST_SECONDS),
    "eviction_seconds": str(EVICTION_SECONDS),
    "unschedulable_seconds": str(PENDING_SECONDS),
    "failover_percent": "100",
    "breaker_clusters": "2",
    "breaker_percent": "60",
}


class Drill(World):
    """What one test has of a control plane whose agents may fall silent."""

    silent: frozenset[str] = frozenset()

    async def turn(self, seconds: float = 1) -> None:
        """All loops do a round, and all agents that are not silent are heard."""
        await self.clock.turn(seconds)
        now = self.clock.now()
        speaking = {name: each for name, each in self.agents.items() if name not in self.silent}
        await asyncio.gather(*(each.beat() for each in speaking.values()))

        async def unheard() -> list[str]:
            listed = (await self.plane.ask("ListClusters", page_size=1000)).clusters
            return [
                each.metadata.name
                for each in listed
                if each.metadata.name in speaking
                and each.status.agent.last_heartbeat_time.ToMicroseconds() < now * 1e6 - 1000
            ]

        await until(unheard, lambda names: not names)

    async def pass_time(self, seconds: float, turn: float = 4) -> None:
        for _ in range(ceil(seconds / turn)):
            await self.turn(min(turn, seconds))
            seconds -= turn

    async def pass_until(
        self, ask: Callable[[], Awaitable[Answer]], holds: Callable[[Answer], bool]
    ) -> Answer:
        """The first answer that holds, with a turn of a second before each."""

        async def ask_later() -> Answer:
            await self.turn()
            return await ask()

        return await until(ask_later, holds)

    async def say_nothing(self, *names: str) -> None:
        """These are not heard any more, for as long as makes a cluster stale."""
        self.silent |= set(names)
        await self.pass_time(STALE_SECONDS + LONGEST_TURN, LONGEST_TURN)

    async def fall_silent(self, *names: str) -> None:
        """These are not heard any more, and count as silent."""
        await self.say_nothing(*names)
        # What the control plane could not hear because its machine was slow, it forgives.
        while not set(names) <= {each.name for each in (await self.status()).silent}:
            await self.turn()

    async def lose(self, *names: str) -> None:
        await self.fall_silent(*names)
        await self.turn(LONGEST_TURN)
        await self.pass_until(self.lost, lambda lost: lost >= set(names))

    async def find_again(self, *names: str) -> None:
        """These are heard again, and are not lost."""
        self.silent -= set(names)
        await self.pass_until(self.lost, lambda lost: not lost & set(names))

    async def status(self) -> Any:
        return (await self.plane.ask("GetFailover")).status

    async def lost(self) -> set[str]:
        listed = (await self.plane.ask("ListClusters", page_size=1000)).clusters
        return {
            each.metadata.name
            for each in listed
            if any(taint.key == UNREACHABLE for taint in each.spec.taints)
        }

    async def run_in(self, cluster: str, **replicas: int) -> None:
        """Workloads that are there, and may go anywhere from now on."""
        for name, count in replicas.items():
            answer = await self.schedule(name, count, only=[cluster])
            assert shares(answer.decision.clusters) == {cluster: count}
            answer = await self.schedule(name, count)
            assert shares(answer.decision.clusters) == {cluster: count}

    async def see(
        self, cluster: str, cores: int | None = None, **pods: int | Mapping[str, int]
    ) -> None:
        """Its agent sees these pods of the namespace and no others; so many cores are free."""
        agent = self.agents[cluster]
        seen = {f"{self.namespace}/{name}": count for name, count in pods.items()}
        await agent.report(cores=cores, sees=seen)

    async def see_all(self, *names: str) -> None:
        """All pods of these workloads run where their bindings say."""
        placed = {name: await self.shares(name) for name in names}
        for cluster in self.agents.keys() - self.silent:
            there = {name: each[cluster] for name, each in placed.items() if cluster in each}
            if there:
                await self.see(cluster, **there)

    async def evictions(self, name: str = "web") -> list[Any]:
        return list((await self.got(name)).binding.spec.graceful_eviction_tasks)

    async def evicted(self, name: str = "web") -> dict[str, int]:
        """Replicas by cluster that graceful evictions keep."""
        return {each.from_cluster: each.replicas for each in await self.evictions(name)}

    async def until_evicted(self, name: str = "web", **replicas: int) -> None:
        await self.pass_until(lambda: self.evicted(name), lambda found: found == replicas)

    async def until_moved(self, name: str, **replicas: int) -> None:
        """Turns of a second until the binding has these replicas by cluster."""
        await self.pass_until(self.shares_of(name), lambda found: found == replicas)

    async def cluster(self, name: str) -> Any:
        return (await self.plane.ask("GetCluster", name=name)).cluster

    async def change(self, name: str, **spec: Any) -> Any:
        """Replace these fields of a cluster's spec."""
        cluster = await self.cluster(name)
        for field, value in spec.items():
            cluster.spec.ClearField(field)
            cluster.spec.MergeFrom(type(cluster.spec)(**{field: value}))
        return (await self.plane.ask("UpdateCluster", cluster=cluster)).cluster

    async def end(self) -> None:
        status = await self.status()
        for place in status.places:
            named = {"region": place.region, "control_plane": place.control_plane}
            await self.plane.ask("ResumeFailover", **named)
        if status.HasField("freeze"):
            await self.plane.ask("ResumeFailover")
        await super().end()
        # Until the next look a cluster of the same name would be taken for one that was lost.
        await self.clock.turn(1)
