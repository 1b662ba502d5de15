"""The pods of one scheduler, bound or not, told to a binder as they come and go.

Must not judge them. Pods that have ended are not told of.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

from estimator.kube.access import connect, lister
from estimator.kube.incoming import RawIncoming, incoming_from_raw
from estimator.kube.loop import LoopSink, WatcherThreads
from estimator.kube.reading import DEFAULT_PATIENCE, Patience, Watched
from estimator.kube.watch import Watcher
from estimator.placing.incoming import IncomingPod

NOT_ENDED: Final = "status.phase!=Succeeded,status.phase!=Failed"


class PodAudience(Protocol):
    """Who is told. Called on the loop."""

    def replace_pods(self, pods: list[IncomingPod]) -> None: ...

    def put_pod(self, pod: IncomingPod) -> None: ...

    def remove_pod(self, pod: IncomingPod) -> None: ...


class PendingPods:
    """Follows the pods whose ``schedulerName`` is ``scheduler_name``."""

    def __init__(
        self,
        kubeconfig: Path | None,
        scheduler_name: str,
        audience: PodAudience,
        *,
        uniform: Callable[[float], float],
        patience: Patience = DEFAULT_PATIENCE,
    ) -> None:
        self._audience = audience
        self._uniform = uniform
        self._patience = patience
        self._watched = Watched(
            name=f"pods of {scheduler_name}",
            method=lambda: lister(connect(kubeconfig), "/api/v1/pods"),
            raw=RawIncoming,
            translate=incoming_from_raw,
            field_selector=f"spec.schedulerName={scheduler_name},{NOT_ENDED}",
        )

    async def follow(self) -> None:
        """Keep telling until cancelled."""
        # The nodes' watch tells when the API server is out of reach.
        sink: LoopSink[IncomingPod] = LoopSink(
            name=self._watched.name,
            loop=asyncio.get_running_loop(),
            on_replace=self._audience.replace_pods,
            on_put=self._audience.put_pod,
            on_remove=self._audience.remove_pod,
        )
        watcher = Watcher(self._watched, sink, self._uniform, self._patience)
        await WatcherThreads([watcher], self._uniform).run()
