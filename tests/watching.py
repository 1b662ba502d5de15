"""An informer of pods, and what its receiver takes.

Must not judge what is taken.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from estimator.kube.client import KubeClient
from estimator.kube.decoding import Watched
from estimator.kube.informer import DEFAULT_PATIENCE, Informer, Patience, Receiver
from estimator.kube.objects import RawPod
from estimator.kube.translate import pod_from_raw
from estimator.live import NOT_FAILED
from estimator.nodes import Pod
from estimator.sight import Loss
from lab.kubeapi.server import KubeApiServer
from lab.patience import PATIENCE_SECONDS

WAIT_SECONDS = PATIENCE_SECONDS
PODS = Watched(
    name="pods",
    path="/api/v1/pods",
    raw=RawPod,
    translate=pod_from_raw,
    field_selector=NOT_FAILED,
)


class Seen:
    """Takes what an informer sees, in the order it sees it."""

    def __init__(self) -> None:
        self.losses: list[tuple[Loss, bool]] = []
        # Raised instead of taking lists, the last one first.
        self.failures: list[Exception] = []
        self._events: asyncio.Queue[tuple[str, Any]] = asyncio.Queue()
        self.receiver: Receiver[Pod] = Receiver(
            replace=self._replace,
            put=lambda pod: self._put("put", (pod.name, pod.node)),
            remove=lambda pod: self._put("remove", pod.name),
            on_loss=self._on_loss,
            on_skip=lambda objects: self._put("skip", objects),
        )

    def _replace(self, pods: list[Pod]) -> None:
        if self.failures:
            raise self.failures.pop()
        self._put("replace", [pod.name for pod in pods])

    def _on_loss(self, loss: Loss | None, is_forbidden: bool) -> None:
        if loss is not None:
            self.losses.append((loss, is_forbidden))
        self._put("contact", "made" if loss is None else "lost")

    def _put(self, kind: str, content: object) -> None:
        self._events.put_nowait((kind, content))

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
    """An informer of pods that tries again at once."""
    seen = Seen()
    async with (
        KubeClient(server.kubeconfig(tmp_path / "kubeconfig")) as client,
        asyncio.TaskGroup() as tasks,
    ):
        informer = Informer(client, PODS, seen.receiver, uniform, patience)
        running = tasks.create_task(informer.run())
        yield seen
        running.cancel()
