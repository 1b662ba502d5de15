"""Karmada's objects as they come and go, told to the loop: one watcher thread for each kind.

Must not keep objects, nor decide what an empty list means.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from estimator.kube.access import connect, lister
from estimator.kube.loop import LoopSink, WatcherThreads
from estimator.kube.objects import RawStored
from estimator.kube.reading import DEFAULT_PATIENCE, Patience, Watched
from estimator.kube.watch import Watcher
from estimator.sight import Loss
from federation.bridge.karmada import (
    KarmadaBinding,
    KarmadaCluster,
    RawBinding,
    RawCluster,
    binding_from_raw,
    cluster_from_raw,
)
from federation.runtime.backoff import uniform

BINDINGS: Final = "/apis/work.karmada.io/v1alpha2/resourcebindings"
CLUSTER_BINDINGS: Final = "/apis/work.karmada.io/v1alpha2/clusterresourcebindings"
CLUSTERS: Final = "/apis/cluster.karmada.io/v1alpha1/clusters"

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchTarget:
    """Who is told of one kind of objects; ``replace`` of everything there is."""

    replace: Callable[[list[Any]], None]
    put: Callable[[Any], None]
    remove: Callable[[Any], None]


class KarmadaWatches:
    """Watches the three kinds. ``are_current`` says whether all that was told is still so."""

    def __init__(
        self,
        kubeconfig: Path | None,
        *,
        clusters: WatchTarget,
        bindings: WatchTarget,
        cluster_bindings: WatchTarget,
        clock: Callable[[], float],
        patience: Patience = DEFAULT_PATIENCE,
    ) -> None:
        self._kubeconfig = kubeconfig
        self._clock = clock
        self._patience = patience
        self._lost: dict[str, Loss] = {}
        self._threads: WatcherThreads | None = None
        self._told: dict[str, tuple[WatchTarget, type[RawStored], Callable[[Any], Any]]] = {
            CLUSTERS: (clusters, RawCluster, cluster_from_raw),
            BINDINGS: (bindings, RawBinding, binding_from_raw),
            CLUSTER_BINDINGS: (cluster_bindings, RawBinding, binding_from_raw),
        }

    @property
    def are_current(self) -> bool:
        return not self._lost

    async def follow(self) -> None:
        """Keep in step until cancelled."""
        loop = asyncio.get_running_loop()
        watchers = [self._watcher(path, loop) for path in self._told]
        self._threads = WatcherThreads(watchers, uniform)
        await self._threads.run()

    def are_alive(self) -> bool:
        """Whether no watcher ends again and again: another process may do better."""
        threads = self._threads
        return threads is None or not threads.are_failing_at(asyncio.get_running_loop().time())

    def _watcher(
        self, path: str, loop: asyncio.AbstractEventLoop
    ) -> Watcher[KarmadaBinding | KarmadaCluster]:
        told, raw, translate = self._told[path]
        name = path.rpartition("/")[2]
        sink: LoopSink[Any] = LoopSink(
            name=name,
            loop=loop,
            on_replace=told.replace,
            on_put=told.put,
            on_remove=told.remove,
            on_loss=lambda loss, _forbidden: self._see(name, loss),
        )
        watched: Watched[Any] = Watched(
            name=name,
            method=lambda: lister(connect(self._kubeconfig), path),
            raw=raw,
            translate=translate,
        )
        return Watcher(watched, sink, uniform, self._patience, self._clock)

    def _see(self, name: str, loss: Loss | None) -> None:
        if loss is None:
            self._lost.pop(name, None)
        else:
            self._lost[name] = loss
