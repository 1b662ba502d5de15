"""Keeps the control plane's clusters in step with Karmada's, and reports those without an agent.

Must not take a cluster for gone because a list does not name it: only Karmada's deleting says so.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from federation.bridge.objects import Document, KarmadaCluster, ReadyReplicas, known_fields
from federation.bridge.reported_cluster import Line, ReportedCluster, has_agent
from federation.client import Client
from federation.codec.clusters import CLUSTER_API_VERSION, cluster_from_message
from federation.codec.strict import message_from_document
from federation.model.cluster import UNREACHABLE_KEY, Cluster
from federation.model.errors import (
    AlreadyExists,
    FederationError,
    InvalidRequest,
    NotFound,
    PermissionRefused,
    Unavailable,
)
from federation.v1 import clusters_pb2, resource_pb2

NO_EXECUTE: Final = "NoExecute"
NO_SCHEDULE: Final = "NoSchedule"
# By these Karmada keeps new replicas off clusters that it does not reach or that are not ready.
LOSS_TAINTS: Final = ("cluster.karmada.io/not-ready", "cluster.karmada.io/unreachable")
MAX_CONCURRENT_STEPS: Final = 8
# Between two tries to bring clusters in step.
RETRY_SECONDS: Final = 10.0
# How long decisions wait for the first reports of clusters.
FIRST_REPORTS_SECONDS: Final = 30.0
# With failover: from so many lost clusters on, and more than that part of all, nothing moves.
MIN_BRAKE_CLUSTERS: Final = 5
BRAKE_PERCENT: Final = 30
MAX_LOGGED_NAMES: Final = 10
_SPEC: Final = ("provider", "region", "zone", "zones", "taints", "resourceModels")
_STATUS: Final = (
    "kubernetesVersion",
    "apiEnablements",
    "nodeSummary",
    "resourceSummary",
    "conditions",
)

logger = logging.getLogger(__name__)


def cluster_message(
    cluster: KarmadaCluster, unknown: Counter[str], *, failover: bool = False
) -> resource_pb2.Cluster:
    """Return the cluster with its status. Raises InvalidRequest.

    With ``failover`` its taints evict, and so do those by which Karmada says that it is lost.
    """
    spec = {key: cluster.spec[key] for key in _SPEC if key in cluster.spec}
    taints: list[Document] = list(spec.get("taints") or ())
    if failover:
        evicting = [{**taint, "effect": NO_EXECUTE} for taint in taints if _means_loss(taint)]
        spec["taints"] = taints + evicting
    else:
        spec["taints"] = list(map(without_eviction, taints))
    document: Document = {
        "apiVersion": CLUSTER_API_VERSION,
        "kind": "Cluster",
        "metadata": {"name": cluster.name, "labels": dict(cluster.labels)},
        "spec": spec,
        "status": {key: cluster.status[key] for key in _STATUS if key in cluster.status},
    }
    fields = known_fields(document, resource_pb2.Cluster.DESCRIPTOR, "", unknown)
    return message_from_document(fields, resource_pb2.Cluster)


def without_eviction(taint: Document) -> Document:
    """Return the taint as it keeps replicas away: moving running replicas is Karmada's own."""
    return {**taint, "effect": NO_SCHEDULE} if taint.get("effect") == NO_EXECUTE else taint


def is_lost(cluster: KarmadaCluster) -> bool:
    """Whether Karmada does not reach it, or it is not ready, for longer than a moment."""
    return any(map(_means_loss, cluster.spec.get("taints") or ()))


def _means_loss(taint: Document) -> bool:
    return taint.get("key") in LOSS_TAINTS and taint.get("effect") == NO_SCHEDULE


def says_the_same(message: resource_pb2.Cluster, stored: resource_pb2.Cluster) -> bool:
    """Whether the control plane has of a cluster what Karmada says. Raises InvalidRequest."""
    return _description(message) == _description(stored)


def _description(message: resource_pb2.Cluster) -> Cluster:
    """Karmada's part of a cluster, in one spelling; taints of the control plane are left out."""
    cluster = cluster_from_message(message)
    taints = sorted(
        (
            replace(taint, time_added=None)
            for taint in cluster.taints
            if taint.key != UNREACHABLE_KEY
        ),
        key=lambda taint: (taint.key, taint.value, taint.effect.value),
    )
    return Cluster(
        name=cluster.name,
        labels=dict(cluster.labels),
        provider=cluster.provider,
        region=cluster.region,
        zones=tuple(sorted(cluster.zones)),
        taints=tuple(taints),
        model=cluster.model,
    )


@dataclass(slots=True)
class _Reporting:
    cluster: ReportedCluster
    task: asyncio.Task[None]


@dataclass(slots=True)
class ClusterChanges:
    """Receivers of changes of clusters.

    ``changed``: labels or spec of some cluster are others. ``moved``: a cluster came, or is to be
    left. ``reported``: the bridge begins to report one. ``troubled``: one cannot be bridged.
    """

    changed: Callable[[], None]
    moved: Callable[[str], None]
    reported: Callable[[str], None]
    troubled: Callable[[KarmadaCluster, str], None]
    unknown: Counter[str]


class BridgedClusters:
    """The clusters of both sides. ``line`` is how clusters report. Belongs to one event loop."""

    def __init__(self, line: Line, changes: ClusterChanges, *, failover: bool) -> None:
        self.deleting: set[str] = set()
        self.is_ready = False
        self._line = line
        self._client: Client = line.client
        self._changes = changes
        self._failover = failover
        self._lost: set[str] = set()
        self._is_braked = False
        self._karmada: dict[str, KarmadaCluster] = {}
        # By identity: a cluster that got another name is listed twice.
        self._names: dict[str, set[str]] = {}
        self._stored: dict[str, resource_pb2.Cluster] = {}
        self._reporting: dict[str, _Reporting] = {}
        self._troubles: dict[str, str] = {}
        self._in_step: set[str] = set()
        self._dirty: set[str] = set()
        self._woken = asyncio.Event()
        self._stepped = asyncio.Event()
        self._is_listed = self._is_stored_known = False

    @property
    def stored(self) -> frozenset[str]:
        """The clusters that the control plane has."""
        return frozenset(self._stored)

    @property
    def missing(self) -> frozenset[str]:
        """The clusters that the control plane will have, and has not yet as Karmada says."""
        return frozenset(
            name
            for name, cluster in self._karmada.items()
            if not cluster.is_deleting and name not in self._in_step
        )

    def replace(self, clusters: Iterable[KarmadaCluster]) -> None:
        """Take Karmada's list. A cluster that it lacks stays: only deleting ends a cluster."""
        listed = {cluster.name: cluster for cluster in clusters}
        absent = self._karmada.keys() - listed.keys()
        if absent:
            logger.warning(
                "Karmada lists %d clusters fewer than before (%s): they are kept until they are "
                "deleted",
                len(absent),
                ", ".join(sorted(absent)[:MAX_LOGGED_NAMES]),
            )
        for cluster in listed.values():
            self.put(cluster)
        self._is_listed = bool(self._karmada)
        self._woken.set()

    def put(self, cluster: KarmadaCluster) -> None:
        older = self._karmada.get(cluster.name)
        self._forget_name(older)
        self._karmada[cluster.name] = cluster
        self._names.setdefault(cluster.identity, set()).add(cluster.name)
        self._update_lost(cluster)
        if not cluster.is_deleting:
            self.deleting.discard(cluster.name)
        self._mark(cluster.name)
        if older and (older.generation, older.labels) != (cluster.generation, cluster.labels):
            self._in_step.discard(cluster.name)

    def remove(self, cluster: KarmadaCluster) -> None:
        """Note that Karmada deleted it."""
        current = self._karmada.get(cluster.name)
        if current is None or current.uid == cluster.uid:
            self._forget_name(self._karmada.pop(cluster.name, None))
            self._lost.discard(cluster.name)
            self.deleting.add(cluster.name)
            self._mark(cluster.name)

    def put_ready(self, binding: str, ready: Mapping[str, ReadyReplicas]) -> None:
        """Note the ready replicas of a binding, by cluster."""
        for name, replicas in ready.items():
            if (reporting := self._reporting.get(name)) is not None:
                reporting.cluster.put_ready(binding, replicas)

    async def follow(self) -> None:
        """Watch the control plane's clusters, until cancelled."""
        async for message in self._client.watch_clusters():
            if message.relist:
                self._is_stored_known = False
                self._stored.clear()
                self._in_step.clear()
            for event in message.events:
                self._take(event)
            if message.resource_version and not self._is_stored_known:
                self._is_stored_known = True
                self._dirty |= self._karmada.keys()
                self._woken.set()

    async def keep(self) -> None:
        """Bring clusters in step as they change, until cancelled."""
        limit = asyncio.Semaphore(MAX_CONCURRENT_STEPS)

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
                self._stepped.set()
        finally:
            tasks = [reporting.task for reporting in self._reporting.values()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def ready(self) -> None:
        """Wait until both sides are known and all clusters are stored. Reports of the bridge are
        waited for only so long.
        """
        while not (self._is_listed and self._is_stored_known and self._are_in_step()):
            self._stepped.clear()
            await self._stepped.wait()
        self.is_ready = True
        waits = [reporting.cluster.reported.wait() for reporting in self._reporting.values()]
        try:
            async with asyncio.timeout(FIRST_REPORTS_SECONDS):
                await asyncio.gather(*waits)
        except TimeoutError:
            logger.warning("not all clusters have reported: they count as unknown")

    def _are_in_step(self) -> bool:
        """A cluster that cannot be bridged harms only itself."""
        return self.missing <= self._troubles.keys()

    async def _wait(self) -> None:
        if self._dirty and self._is_stored_known:
            return
        self._woken.clear()
        try:
            async with asyncio.timeout(RETRY_SECONDS):
                await self._woken.wait()
        except TimeoutError:
            self._dirty |= self._unreported()

    def _unreported(self) -> set[str]:
        """The clusters to be looked at again: nobody may report them any more."""
        return {
            name
            for name in self._karmada.keys() | self.deleting
            if name not in self._stored or not self._is_reported(name)
        } | (self.deleting & self._stored.keys())

    def _is_reported(self, name: str) -> bool:
        reporting = self._reporting.get(name)
        return self._has_agent(name) or (reporting is not None and not reporting.task.done())

    def _take(self, event: clusters_pb2.ClusterEvent) -> None:
        name = event.cluster.metadata.name
        if event.type == resource_pb2.EVENT_TYPE_DELETED:
            self._stored.pop(name, None)
            self._in_step.discard(name)
        elif event.type == resource_pb2.EVENT_TYPE_UPDATED:
            self._stored[name] = event.cluster
        else:
            return
        self._mark(name)

    def _mark(self, name: str) -> None:
        self._dirty.add(name)
        self._woken.set()

    def _update_lost(self, cluster: KarmadaCluster) -> None:
        """Many at once are rather one network, or Karmada itself: nothing moves off them then."""
        if is_lost(cluster):
            self._lost.add(cluster.name)
        else:
            self._lost.discard(cluster.name)
        are_many = len(self._lost) >= MIN_BRAKE_CLUSTERS
        is_braked = are_many and 100 * len(self._lost) > BRAKE_PERCENT * len(self._karmada)
        if self._failover and is_braked != self._is_braked:
            logger.warning(
                "%d of %d clusters are lost, says Karmada: %s moves off them",
                len(self._lost),
                len(self._karmada),
                "nothing" if is_braked else "what runs there",
            )
            self._dirty |= self._lost
            self._in_step -= self._lost
        self._is_braked = is_braked

    def _forget_name(self, cluster: KarmadaCluster | None) -> None:
        if cluster is not None and (names := self._names.get(cluster.identity)) is not None:
            names.discard(cluster.name)
            if not names:
                del self._names[cluster.identity]

    def _twin(self, cluster: KarmadaCluster) -> str:
        """The other name of the same cluster, "" where there is none: two names would promise its
        capacity twice.
        """
        if cluster.name in self._stored:
            return ""
        twins = [
            name
            for name in self._names[cluster.identity] - {cluster.name}
            if not self._karmada[name].is_deleting
        ]
        stored = [name for name in twins if name in self._stored]
        return min(stored or [name for name in twins if name < cluster.name], default="")

    async def _step(self, name: str) -> None:
        try:
            cluster = self._karmada.get(name)
            if cluster is not None and not cluster.is_deleting:
                await self._bring_in_step(cluster)
            elif cluster is not None or name in self.deleting:
                await self._end(name)
        except InvalidRequest as error:
            self._warn_once(name, f"Karmada's cluster {name} cannot be taken over: {error.message}")
        except Unavailable as error:
            logger.info("cluster %s: %s", name, error.message)
        except FederationError as error:
            self._warn_once(name, f"cluster {name}: {error.message}")
        if name in self._in_step:
            self._troubles.pop(name, None)

    async def _bring_in_step(self, cluster: KarmadaCluster) -> None:
        name = cluster.name
        if twin := self._twin(cluster):
            rule = f"is the same cluster as {twin}, whose id it has: it waits until that is deleted"
            raise InvalidRequest.of("spec.id", rule)
        failover = self._failover and not (self._is_braked and is_lost(cluster))
        message = cluster_message(cluster, self._changes.unknown, failover=failover)
        stored = self._stored.get(name)
        if stored is not None:
            await self._update_stored(name, message, stored)
            if self._has_agent(name):
                await self._stop_reporting(name)
                return
            if stored.metadata.uid != cluster.identity:
                # Another cluster under the name of one that this bridge reported.
                await self._stop_reporting(name)
                await self._client.replace_cluster(name, cluster.identity)
        reporting = self._reporting.get(name)
        if reporting is not None and not reporting.task.done():
            reporting.cluster.put(cluster, message)
            return
        reported = ReportedCluster(self._line, cluster, message, lambda why: self._warn(name, why))
        task = asyncio.create_task(self._report(name, reported))
        self._reporting[name] = _Reporting(reported, task)
        self._changes.reported(name)

    async def _update_stored(
        self, name: str, message: resource_pb2.Cluster, stored: resource_pb2.Cluster
    ) -> None:
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

    async def _report(self, name: str, cluster: ReportedCluster) -> None:
        try:
            await cluster.run()
        except (PermissionRefused, AlreadyExists) as error:
            self._warn_once(name, f"not speaking for cluster {name}: {error.message}")
        except Exception:
            logger.exception("speaking for cluster %s failed", name)
        finally:
            cluster.reported.set()
            self._stepped.set()
            self._woken.set()

    async def _end(self, name: str) -> None:
        """Delete a cluster that Karmada is deleting: it waits until no binding lists it."""
        await self._stop_reporting(name)
        if name in self._stored:
            try:
                await self._client.delete_cluster(name, force=True)
            except NotFound:
                logger.debug("cluster %s is gone already", name)
            self._stored.pop(name, None)
        self.deleting.add(name)
        self._changes.moved(name)

    async def _stop_reporting(self, name: str) -> None:
        reporting = self._reporting.pop(name, None)
        if reporting is not None:
            reporting.task.cancel()
            await asyncio.gather(reporting.task, return_exceptions=True)

    def _has_agent(self, name: str) -> bool:
        stored = self._stored.get(name)
        return stored is not None and has_agent(stored)

    def _warn_once(self, name: str, trouble: str) -> None:
        if self._troubles.get(name) != trouble:
            self._troubles[name] = trouble
            self._warn(name, trouble)

    def _warn(self, name: str, trouble: str) -> None:
        logger.warning("%s", trouble)
        if (cluster := self._karmada.get(name)) is not None:
            self._changes.troubled(cluster, trouble)
