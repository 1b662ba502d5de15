"""The source of an agent inside, or beside, a running cluster.

Must not read nodes and pods itself: ``estimator.kube.live`` does.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from estimator.agent.enrolment import ClusterIdentity, identity_of
from estimator.estimation.capacity import NodeSet
from estimator.kube.client import cluster_facts, connect
from estimator.kube.discovery import served_apis
from estimator.kube.live import LiveCluster
from estimator.kube.reading import DEFAULT_PATIENCE, Patience
from estimator.watched_cluster import WatchedCluster
from federation.model.errors import PreconditionFailed, Unavailable

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
