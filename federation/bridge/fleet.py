"""Keeps the control plane's clusters in step with Karmada's, and speaks for those without an agent.

Must not take a cluster for gone because a list does not name it: only Karmada's deleting says so.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final

from federation.bridge.clusters import cluster_message, is_lost, says_the_same
from federation.bridge.karmada import KarmadaCluster, ReadyReplicas
from federation.bridge.member import Line, Member, speaks_for_itself
from federation.client import Client
from federation.model.errors import (
    AlreadyExists,
    FederationError,
    InvalidRequest,
    NotFound,
    PermissionRefused,
    Unavailable,
)
from federation.v1 import clusters_pb2, resource_pb2

AT_ONCE: Final = 8
# Between two looks at clusters that could not be brought in step.
AGAIN_SECONDS: Final = 10.0
# How long decisions wait for the first reports of clusters.
FIRST_REPORTS_SECONDS: Final = 30.0
# With failover: so many clusters, and more than that part of all, are not left when they are lost.
BRAKE_CLUSTERS: Final = 5
BRAKE_PERCENT: Final = 30

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _Speaking:
    member: Member
    task: asyncio.Task[None]


@dataclass(slots=True)
class Changes:
    """Whom to tell: that labels or spec of some cluster changed, of one that came or that all must
    leave, of one that somebody begins to speak for, and of one that cannot be bridged as it is.
    """

    changed: Callable[[], None]
    moved: Callable[[str], None]
    spoken_for: Callable[[str], None]
    troubled: Callable[[KarmadaCluster, str], None]
    unknown: Counter[str]


class BridgedFleet:
    """``line`` is how members speak. Belongs to one event loop."""

    def __init__(self, line: Line, changes: Changes, *, failover: bool) -> None:
        self._line = line
        self._failover = failover
        self._lost: set[str] = set()
        self._is_braked = False
        self._client: Client = line.client
        self._changes = changes
        self._karmada: dict[str, KarmadaCluster] = {}
        # By what says that they are one: a cluster that was given another name is there twice.
        self._names: dict[str, set[str]] = {}
        self._stored: dict[str, resource_pb2.Cluster] = {}
        self._speaking: dict[str, _Speaking] = {}
        self._told_of: dict[str, str] = {}
        self._in_step: set[str] = set()
        self._dirty: set[str] = set()
        self._woken = asyncio.Event()
        self._looked = asyncio.Event()
        self._is_listed = self._is_stored_known = False
        self.deleting: set[str] = set()
        self.is_ready = False

    @property
    def known(self) -> frozenset[str]:
        """The clusters that the control plane has."""
        return frozenset(self._stored)

    @property
    def missing(self) -> frozenset[str]:
        """The clusters that it will have, and has not yet as Karmada describes them."""
        return frozenset(
            name
            for name, cluster in self._karmada.items()
            if not cluster.is_deleting and name not in self._in_step
        )

    def replace(self, clusters: Iterable[KarmadaCluster]) -> None:
        """Karmada lists these. One that it does not list is kept: only deleting ends a cluster."""
        listed = {each.name: each for each in clusters}
        absent = self._karmada.keys() - listed.keys()
        if absent:
            names = ", ".join(sorted(absent)[:10])
            logger.warning(
                "Karmada lists %d clusters fewer than before (%s): they are kept until they are "
                "deleted",
                len(absent),
                names,
            )
        for cluster in listed.values():
            self.put(cluster)
        self._is_listed = bool(self._karmada)
        self._woken.set()

    def put(self, cluster: KarmadaCluster) -> None:
        before = self._karmada.get(cluster.name)
        self._forget(before)
        self._karmada[cluster.name] = cluster
        self._names.setdefault(cluster.identity, set()).add(cluster.name)
        self._look_who_is_lost(cluster)
        if cluster.is_deleting is False:
            self.deleting.discard(cluster.name)
        self._want(cluster.name)
        if before and (before.generation, before.labels) != (cluster.generation, cluster.labels):
            self._in_step.discard(cluster.name)

    def remove(self, cluster: KarmadaCluster) -> None:
        """Karmada says that it is deleted."""
        known = self._karmada.get(cluster.name)
        if known is None or known.uid == cluster.uid:
            self._forget(self._karmada.pop(cluster.name, None))
            self._lost.discard(cluster.name)
            self.deleting.add(cluster.name)
            self._want(cluster.name)

    def _look_who_is_lost(self, cluster: KarmadaCluster) -> None:
        """Many at once are rather one network, or Karmada itself: nothing moves off them then."""
        if is_lost(cluster):
            self._lost.add(cluster.name)
        else:
            self._lost.discard(cluster.name)
        many = len(self._lost) >= BRAKE_CLUSTERS
        braked = many and 100 * len(self._lost) > BRAKE_PERCENT * len(self._karmada)
        if self._failover and braked != self._is_braked:
            logger.warning(
                "%d of %d clusters are lost, says Karmada: %s moves off them",
                len(self._lost),
                len(self._karmada),
                "nothing" if braked else "what runs there",
            )
            self._dirty |= self._lost
            self._in_step -= self._lost
        self._is_braked = braked

    def _forget(self, cluster: KarmadaCluster | None) -> None:
        if cluster is not None and (names := self._names.get(cluster.identity)) is not None:
            names.discard(cluster.name)
            if not names:
                del self._names[cluster.identity]

    def _twin(self, cluster: KarmadaCluster) -> str:
        """The other name of the same cluster, if that counts: nothing is to be promised twice."""
        others = [
            name
            for name in self._names[cluster.identity] - {cluster.name}
            if not self._karmada[name].is_deleting
        ]
        if cluster.name in self._stored:
            return ""
        known = [name for name in others if name in self._stored]
        return min(known or [name for name in others if name < cluster.name], default="")

    def tell_ready(self, binding: str, ready: Mapping[str, ReadyReplicas]) -> None:
        """Replicas of a binding that are ready, by cluster."""
        for name, replicas in ready.items():
            if (speaking := self._speaking.get(name)) is not None:
                speaking.member.tell_ready(binding, replicas)

    async def follow(self) -> None:
        """Know the control plane's clusters, until cancelled."""
        async for message in self._client.watch_clusters():
            if message.relist:
                self._is_stored_known = False
                self._stored.clear()
                self._in_step.clear()
            for event in message.events:
                self._see(event)
            if message.resource_version and not self._is_stored_known:
                self._is_stored_known = True
                self._dirty |= self._karmada.keys()
                self._woken.set()

    async def keep(self) -> None:
        """Bring clusters in step as they change, until cancelled."""
        limit = asyncio.Semaphore(AT_ONCE)

        async def step(name: str) -> None:
            async with limit:
                await self._step(name)

        try:
            while True:
                await self._wait()
                if not self._is_stored_known:
                    continue
                names, self._dirty = self._dirty, set()
                await asyncio.gather(*map(step, sorted(names)))
                self._looked.set()
        finally:
            for speaking in self._speaking.values():
                speaking.task.cancel()
            tasks = [each.task for each in self._speaking.values()]
            await asyncio.gather(*tasks, return_exceptions=True)

    async def ready(self) -> None:
        """Returns when both sides are known, all clusters are there, and those that the bridge
        speaks for have reported, or had the time for it.
        """
        while not (self._is_listed and self._is_stored_known and not self._awaited):
            self._looked.clear()
            await self._looked.wait()
        self.is_ready = True
        waits = [each.member.reported.wait() for each in self._speaking.values()]
        try:
            async with asyncio.timeout(FIRST_REPORTS_SECONDS):
                await asyncio.gather(*waits)
        except TimeoutError:
            logger.warning("not all clusters have reported: they count as unknown")

    @property
    def _awaited(self) -> AbstractSet[str]:
        """The clusters that are to come still; one that cannot harms only itself."""
        return self.missing - self._told_of.keys()

    async def _wait(self) -> None:
        if self._dirty and self._is_stored_known:
            return
        self._woken.clear()
        try:
            async with asyncio.timeout(AGAIN_SECONDS):
                await self._woken.wait()
        except TimeoutError:
            self._dirty |= self._unspoken()

    def _unspoken(self) -> set[str]:
        """The clusters that may need another look: whoever spoke for them has stopped."""
        return {
            name
            for name in self._karmada.keys() | self.deleting
            if name not in self._stored or not self._is_spoken_for(name)
        } | (self.deleting & self._stored.keys())

    def _is_spoken_for(self, name: str) -> bool:
        speaking = self._speaking.get(name)
        return self._has_agent(name) or (speaking is not None and not speaking.task.done())

    def _see(self, event: clusters_pb2.ClusterEvent) -> None:
        if event.type == resource_pb2.EVENT_TYPE_DELETED:
            self._stored.pop(event.cluster.metadata.name, None)
            self._in_step.discard(event.cluster.metadata.name)
        elif event.type == resource_pb2.EVENT_TYPE_UPDATED:
            self._stored[event.cluster.metadata.name] = event.cluster
        else:
            return
        self._want(event.cluster.metadata.name)

    def _want(self, name: str) -> None:
        self._dirty.add(name)
        self._woken.set()

    async def _step(self, name: str) -> None:
        try:
            cluster = self._karmada.get(name)
            if cluster is not None and not cluster.is_deleting:
                await self._bring_in_step(cluster)
            elif cluster is not None or name in self.deleting:
                await self._end(name)
        except InvalidRequest as error:
            self._say(name, f"Karmada's cluster {name} cannot be taken over: {error.message}")
        except Unavailable as error:
            logger.info("cluster %s: %s", name, error.message)
        except FederationError as error:
            self._say(name, f"cluster {name}: {error.message}")
        if name in self._in_step:
            self._told_of.pop(name, None)

    async def _bring_in_step(self, cluster: KarmadaCluster) -> None:
        name = cluster.name
        if twin := self._twin(cluster):
            rule = f"is the same cluster as {twin}, whose id it has: it waits until that is deleted"
            raise InvalidRequest.of("spec.id", rule)
        message = cluster_message(
            cluster,
            self._changes.unknown,
            failover=self._failover and not (self._is_braked and is_lost(cluster)),
        )
        stored = self._stored.get(name)
        if stored is not None:
            is_changed = not says_the_same(message, stored)
            if is_changed:
                message.metadata.annotations.update(stored.metadata.annotations)
                self._stored[name] = await self._client.update_cluster(message)
            is_new = name not in self._in_step
            if is_new:
                self._in_step.add(name)
                self._changes.moved(name)
            if is_changed or is_new:
                self._changes.changed()
        if stored is not None and self._has_agent(name):
            await self._hush(name)
            return
        if stored is not None and stored.metadata.uid != cluster.identity:
            # Another cluster under the name of one that this bridge spoke for.
            await self._hush(name)
            await self._client.replace_cluster(name, cluster.identity)
        speaking = self._speaking.get(name)
        if speaking is not None and not speaking.task.done():
            speaking.member.put(cluster, message)
            return
        member = Member(self._line, cluster, message, lambda why: self._tell(name, why))
        task = asyncio.create_task(self._speak(name, member))
        self._speaking[name] = _Speaking(member, task)
        self._changes.spoken_for(name)

    async def _speak(self, name: str, member: Member) -> None:
        try:
            await member.run()
        except (PermissionRefused, AlreadyExists) as error:
            self._say(name, f"not speaking for cluster {name}: {error.message}")
        except Exception:
            logger.exception("speaking for cluster %s failed", name)
        finally:
            member.reported.set()
            self._looked.set()
            self._woken.set()

    async def _end(self, name: str) -> None:
        """Karmada is deleting it: it waits until no binding lists it."""
        await self._hush(name)
        if name in self._stored:
            try:
                await self._client.delete_cluster(name, force=True)
            except NotFound:
                logger.debug("cluster %s is gone already", name)
            self._stored.pop(name, None)
        self.deleting.add(name)
        self._changes.moved(name)

    async def _hush(self, name: str) -> None:
        speaking = self._speaking.pop(name, None)
        if speaking is not None:
            speaking.task.cancel()
            await asyncio.gather(speaking.task, return_exceptions=True)

    def _has_agent(self, name: str) -> bool:
        stored = self._stored.get(name)
        return stored is not None and speaks_for_itself(stored)

    def _say(self, name: str, what: str) -> None:
        """Once, however often it is met again."""
        if self._told_of.get(name) != what:
            self._told_of[name] = what
            self._tell(name, what)

    def _tell(self, name: str, what: str) -> None:
        logger.warning("%s", what)
        if (cluster := self._karmada.get(name)) is not None:
            self._changes.troubled(cluster, what)
