"""The source of an agent inside, or beside, a running cluster: an informer for each resource.

Must not be asked before it is ready: half a list looks like a small cluster.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar

from estimator.agent.enrolment import ClusterIdentity, identity_of
from estimator.estimation.capacity import NodeSet
from estimator.kube.client import KubeClient
from estimator.kube.decoding import Watched
from estimator.kube.discovery import served_apis
from estimator.kube.informer import DEFAULT_PATIENCE, Informer, Patience, Receiver
from estimator.kube.objects import RawNode, RawPod
from estimator.kube.quotas import RawQuota, quota_from_raw
from estimator.kube.translate import node_from_raw, pod_from_raw
from estimator.sight import Loss, Sight
from estimator.watched_cluster import WatchedCluster
from federation.model.errors import FederationError

# Pods that succeeded are seen: those of a Job are what its promise was for.
NOT_FAILED: Final = "status.phase!=Failed"
QUOTAS: Final = "resourcequotas"

Value = TypeVar("Value")

logger = logging.getLogger(__name__)


class LiveSource:
    """A cluster followed through its API server."""

    def __init__(
        self,
        client: KubeClient,
        node_set: NodeSet,
        *,
        clock: Callable[[], float],
        uniform: Callable[[float], float],
        patience: Patience = DEFAULT_PATIENCE,
    ) -> None:
        self.client = client
        self.synced = asyncio.Event()
        self._sight = Sight(clock)
        self.member = WatchedCluster(node_set, self._sight)
        self._clock = clock
        self._uniform = uniform
        self._patience = patience
        self._to_list = {"nodes", "pods", QUOTAS}
        self._uid = ""
        self._version = ""
        self._apis: frozenset[tuple[str, str]] | None = None
        # Karmada counts pods that ended without a node, so there they must be seen.
        selector = NOT_FAILED if node_set is NodeSet.SCHEDULABLE else None
        self._informers = (self._nodes(), self._pods(selector), self._quotas())

    async def identity(self) -> ClusterIdentity:
        """Return what the API server and the nodes say; to be called when ready."""
        nodes = self.member.cache.snapshot().table.nodes
        return identity_of(nodes, uid=self._uid, kubernetes_version=self._version)

    async def ready(self) -> None:
        """Wait for the first lists. Raises Unavailable, and others when the API server refuses."""
        self._uid, self._version = await self.client.cluster_facts()
        await self.synced.wait()

    async def apis(self) -> frozenset[tuple[str, str]] | None:
        """Return the APIs as of now, or the last that could be read."""
        try:
            self._apis = await served_apis(self.client)
        except FederationError as error:
            logger.warning("which APIs there are is not known anew: %s", error.message)
        return self._apis

    @property
    def is_alive(self) -> bool:
        """False when an informer fails again and again, whatever the API server does."""
        now = asyncio.get_running_loop().time()
        return not any(informer.is_failing_at(now) for informer in self._informers)

    async def follow(self) -> None:
        """Keep in step until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for informer in self._informers:
                tasks.create_task(informer.run())

    def _nodes(self) -> Informer[Any]:
        cache = self.member.cache
        watched = Watched(name="nodes", path="/api/v1/nodes", raw=RawNode, translate=node_from_raw)
        receiver = Receiver(
            replace=lambda nodes: self._listed("nodes", cache.replace_nodes, nodes),
            put=cache.put_node,
            remove=lambda node: cache.remove_node(node.name),
            on_loss=lambda loss, _is_forbidden: self._see("nodes", loss),
            on_skip=lambda objects: self._sight.skip("nodes", objects),
        )
        return self._informer(watched, receiver)

    def _pods(self, selector: str | None) -> Informer[Any]:
        cache = self.member.cache
        watched = Watched(
            name="pods",
            path="/api/v1/pods",
            raw=RawPod,
            translate=pod_from_raw,
            field_selector=selector,
        )
        receiver = Receiver(
            replace=lambda pods: self._listed("pods", cache.replacing_pods, pods),
            put=cache.put_pod,
            remove=lambda pod: cache.remove_pod(pod.uid),
            on_loss=lambda loss, _is_forbidden: self._see("pods", loss),
            on_skip=lambda objects: self._sight.skip("pods", objects),
            on_reach=cache.assumptions.reach,
        )
        return self._informer(watched, receiver)

    def _quotas(self) -> Informer[Any]:
        quotas = self.member.quotas
        watched = Watched(
            name=QUOTAS, path="/api/v1/resourcequotas", raw=RawQuota, translate=quota_from_raw
        )
        receiver = Receiver(
            replace=lambda listed: self._listed(QUOTAS, quotas.replace, listed),
            put=quotas.put,
            remove=quotas.remove,
            on_loss=self._see_quotas,
            on_skip=lambda objects: self._sight.skip(QUOTAS, objects),
        )
        return self._informer(watched, receiver)

    def _informer(self, watched: Watched[Value], receiver: Receiver[Value]) -> Informer[Value]:
        measures = self.member.measures
        uniform, patience = self._uniform, self._patience
        return Informer(self.client, watched, receiver, uniform, patience, self._clock, measures)

    def _listed(
        self,
        name: str,
        replace: Callable[[list[Value]], Iterable[None] | None],
        values: list[Value],
    ) -> Iterable[None]:
        """Take a list slice by slice, and note its end."""
        yield from replace(values) or ()
        self._to_list.discard(name)
        if not self._to_list:
            self.synced.set()

    def _see(self, name: str, loss: Loss | None) -> None:
        if loss is not None:
            self._sight.lose(name, loss)
        else:
            self._sight.find(name)

    def _see_quotas(self, loss: Loss | None, is_forbidden: bool) -> None:
        """An agent that may not read quotas answers without any, and its picture is current."""
        if is_forbidden:
            for _ in self._listed(QUOTAS, self.member.quotas.replace, []):
                pass
            loss = None
        self._see(QUOTAS, loss)
