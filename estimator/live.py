"""The source of an agent inside, or beside, a running cluster: three watchers, and their loop.

Must not be asked before it is ready: half a list looks like a small cluster.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from estimator.agent.enrolment import ClusterIdentity, identity_of
from estimator.estimation.capacity import NodeSet
from estimator.estimation.quota import Quota
from estimator.kube.client import cluster_facts, connect, lister
from estimator.kube.discovery import served_apis
from estimator.kube.objects import RawNode, RawPod
from estimator.kube.quotas import RawQuota, quota_from_raw
from estimator.kube.reading import DEFAULT_PATIENCE, Patience, Watched
from estimator.kube.translate import node_from_raw, pod_from_raw
from estimator.kube.watch import LoopSink, Watcher, WatcherThreads
from estimator.nodes import Node, Pod
from estimator.sight import Loss, Sight
from estimator.watched_cluster import WatchedCluster
from federation.model.errors import PreconditionFailed, Unavailable

# Pods that succeeded are seen: those of a Job are what its promise was for.
NOT_FAILED: Final = "status.phase!=Failed"
QUOTAS: Final = "resourcequotas"

Value = TypeVar("Value")


class LiveCluster:
    """Feeds a member cluster from its API server."""

    def __init__(
        self,
        kubeconfig: Path | None,
        node_set: NodeSet,
        *,
        clock: Callable[[], float],
        uniform: Callable[[float], float],
        patience: Patience = DEFAULT_PATIENCE,
    ) -> None:
        self._sight = Sight(clock)
        self.member = WatchedCluster(node_set, self._sight)
        self.synced = asyncio.Event()
        self._kubeconfig = kubeconfig
        self._node_set = node_set
        self._clock = clock
        self._uniform = uniform
        self._patience = patience
        self._to_list = {"nodes", "pods", QUOTAS}
        self._threads: WatcherThreads | None = None

    async def follow(self) -> None:
        """Keep in step until cancelled."""
        loop = asyncio.get_running_loop()
        watchers = (self._node_watcher(loop), self._pod_watcher(loop), self._quota_watcher(loop))
        self._threads = WatcherThreads(watchers, self._uniform)
        await self._threads.run()

    @property
    def is_alive(self) -> bool:
        """False when a watcher fails again and again, whatever the API server does."""
        now = asyncio.get_running_loop().time()
        return self._threads is None or not self._threads.are_failing_at(now)

    def _node_watcher(self, loop: asyncio.AbstractEventLoop) -> Watcher[Node]:
        cache = self.member.cache
        sink: LoopSink[Node] = LoopSink(
            name="nodes",
            loop=loop,
            on_replace=lambda nodes: self._listed("nodes", cache.replace_nodes, nodes),
            on_put=cache.put_node,
            on_remove=lambda node: cache.remove_node(node.name),
            on_loss=lambda loss, _forbidden: self._see("nodes", loss),
            on_skip=lambda objects: self._sight.skip("nodes", objects),
        )
        watched = Watched(
            name="nodes",
            method=lambda: lister(connect(self._kubeconfig), "/api/v1/nodes"),
            raw=RawNode,
            translate=node_from_raw,
        )
        return self._watcher(watched, sink)

    def _pod_watcher(self, loop: asyncio.AbstractEventLoop) -> Watcher[Pod]:
        cache = self.member.cache
        sink: LoopSink[Pod] = LoopSink(
            name="pods",
            loop=loop,
            on_replace=lambda pods: self._listed("pods", cache.replace_pods, pods),
            on_put=cache.put_pod,
            on_remove=lambda pod: cache.remove_pod(pod.uid),
            on_loss=lambda loss, _forbidden: self._see("pods", loss),
            on_skip=lambda objects: self._sight.skip("pods", objects),
            on_reach=cache.assumptions.reach,
        )
        # Karmada counts pods that ended without a node, so there they must be seen.
        selector = NOT_FAILED if self._node_set is NodeSet.SCHEDULABLE else None
        watched = Watched(
            name="pods",
            method=lambda: lister(connect(self._kubeconfig), "/api/v1/pods"),
            raw=RawPod,
            translate=pod_from_raw,
            field_selector=selector,
        )
        return self._watcher(watched, sink)

    def _quota_watcher(self, loop: asyncio.AbstractEventLoop) -> Watcher[Quota]:
        quotas = self.member.quotas
        sink: LoopSink[Quota] = LoopSink(
            name=QUOTAS,
            loop=loop,
            on_replace=lambda listed: self._listed(QUOTAS, quotas.replace, listed),
            on_put=quotas.put,
            on_remove=quotas.remove,
            on_loss=self._see_quotas,
            on_skip=lambda objects: self._sight.skip(QUOTAS, objects),
        )
        watched = Watched(
            name=QUOTAS,
            method=lambda: lister(connect(self._kubeconfig), "/api/v1/resourcequotas"),
            raw=RawQuota,
            translate=quota_from_raw,
        )
        return self._watcher(watched, sink)

    def _watcher(self, watched: Watched[Value], sink: LoopSink[Value]) -> Watcher[Value]:
        measures = self.member.measures
        return Watcher(watched, sink, self._uniform, self._patience, self._clock, measures)

    def _listed(
        self, name: str, replace: Callable[[list[Value]], None], values: list[Value]
    ) -> None:
        replace(values)
        self._arrived(name)

    def _arrived(self, name: str) -> None:
        self._to_list.discard(name)
        if not self._to_list:
            self.synced.set()

    def _see(self, name: str, loss: Loss | None) -> None:
        if loss is not None:
            self._sight.lose(name, loss)
        else:
            self._sight.find(name)

    def _see_quotas(self, loss: Loss | None, forbidden: bool) -> None:
        """An agent that may not read quotas answers without any, and its picture is current."""
        if forbidden:
            self._listed(QUOTAS, self.member.quotas.replace, [])
            loss = None
        self._see(QUOTAS, loss)


logger = logging.getLogger(__name__)


class LiveSource:
    """A cluster followed through its API server."""

    def __init__(
        self,
        kubeconfig: Path | None,
        node_set: NodeSet,
        *,
        clock: Callable[[], float],
        uniform: Callable[[float], float],
        patience: Patience = DEFAULT_PATIENCE,
    ) -> None:
        self._kubeconfig = kubeconfig
        self._uid = ""
        self._version = ""
        self._apis: frozenset[tuple[str, str]] | None = None
        self._live = LiveCluster(
            kubeconfig, node_set, clock=clock, uniform=uniform, patience=patience
        )

    @property
    def member(self) -> WatchedCluster:
        return self._live.member

    async def identity(self) -> ClusterIdentity:
        """What the API server and the nodes say; ask when ready."""
        nodes = self.member.cache.snapshot().table.nodes
        return identity_of(nodes, uid=self._uid, kubernetes_version=self._version)

    async def ready(self) -> None:
        """Raises Unavailable, and PreconditionFailed when the API server refuses."""
        self._uid, self._version = await asyncio.to_thread(
            lambda: cluster_facts(connect(self._kubeconfig))
        )
        await self._live.synced.wait()

    async def apis(self) -> frozenset[tuple[str, str]] | None:
        """As of now, or the last that could be found out."""
        try:
            self._apis = await asyncio.to_thread(served_apis, self._kubeconfig)
        except (Unavailable, PreconditionFailed) as error:
            logger.warning("which APIs there are is not known anew: %s", error.message)
        return self._apis

    @property
    def is_alive(self) -> bool:
        return self._live.is_alive

    async def follow(self) -> None:
        await self._live.follow()
