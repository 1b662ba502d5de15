"""A watcher of pods in its thread, and what it tells of.

Must not judge what is told.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from estimator.kube.client import connect, lister
from estimator.kube.objects import RawPod
from estimator.kube.reading import DEFAULT_PATIENCE, ObjectChange, Patience, Watched
from estimator.kube.translate import pod_from_raw
from estimator.kube.watch import Watcher
from estimator.live import NOT_FAILED
from estimator.nodes import Pod
from estimator.sight import Loss
from lab.kubeapi.server import KubeApiServer
from lab.patience import PATIENCE_SECONDS

WAIT_SECONDS = PATIENCE_SECONDS


class Seen:
    """Takes what a watcher sees, in the order it sees it."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.losses: list[tuple[Loss, bool]] = []
        self._events: asyncio.Queue[tuple[str, Any]] = asyncio.Queue()

    def replace(self, values: list[Pod]) -> None:
        self._put("replace", [value.name for value in values])

    def apply(self, changes: list[ObjectChange[Pod]]) -> None:
        for change in changes:
            if change.value is None:
                continue
            if change.is_removal:
                self._put("remove", change.value.name)
            else:
                self._put("put", (change.value.name, change.value.node))

    def reach(self, version: str) -> None:
        """Versions are looked at elsewhere."""

    def find(self) -> None:
        self._put("contact", "made")

    def lose(self, loss: Loss, *, forbidden: bool) -> None:
        self.losses.append((loss, forbidden))
        self._put("contact", "lost")

    def skip(self, objects: int) -> None:
        self._put("skip", objects)

    def _put(self, kind: str, what: object) -> None:
        self._loop.call_soon_threadsafe(self._events.put_nowait, (kind, what))

    async def next(self, *, contact: bool = False, skip: bool = False) -> tuple[str, Any]:
        """The next thing seen; whether there is contact, and what is skipped, when asked for."""
        async with asyncio.timeout(WAIT_SECONDS):
            while True:
                event = await self._events.get()
                if (contact or event[0] != "contact") and (skip or event[0] != "skip"):
                    return event

    async def until_lost(self) -> None:
        while await self.next(contact=True) != ("contact", "lost"):
            pass


@asynccontextmanager
async def following(
    server: KubeApiServer,
    tmp_path: Path,
    uniform: Callable[[float], float] = lambda _ceiling: 0.0,
    patience: Patience = DEFAULT_PATIENCE,
) -> AsyncIterator[Seen]:
    """A watcher of pods in its thread that tries again at once."""
    kubeconfig = server.kubeconfig(tmp_path / "kubeconfig")
    seen = Seen()
    watched = Watched(
        name="pods",
        method=lambda: lister(connect(kubeconfig), "/api/v1/pods"),
        raw=RawPod,
        translate=pod_from_raw,
        field_selector=NOT_FAILED,
    )
    watcher = Watcher(watched, seen, uniform, patience)
    thread = threading.Thread(target=watcher.run)
    thread.start()
    try:
        yield seen
    finally:
        watcher.stop()
        await asyncio.to_thread(thread.join, 10)
        assert not thread.is_alive()
