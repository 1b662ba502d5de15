"""Tells people at the pod what became of it, behind the work and never in its way.

Must not repeat itself: a pod hears the same only once.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from estimator.binder.ports import ClusterWrites
from estimator.placing.incoming import PodEvent
from federation.model.errors import FederationError

MAX_WAITING: Final = 2_000
WRITERS: Final = 2

logger = logging.getLogger(__name__)


class Telling:
    """Queues events and writes them. What does not fit in the queue is dropped."""

    def __init__(self, writes: ClusterWrites) -> None:
        self._writes = writes
        self._waiting: asyncio.Queue[PodEvent] = asyncio.Queue(MAX_WAITING)
        self._last: dict[str, str] = {}

    def tell(self, event: PodEvent) -> None:
        uid = event.pod.uid
        if self._last.get(uid) == event.message:
            return
        self._last[uid] = event.message
        try:
            self._waiting.put_nowait(event)
        except asyncio.QueueFull:
            logger.warning("event of pod %s dropped: too many wait", uid)

    def forget(self, uid: str) -> None:
        self._last.pop(uid, None)

    async def run(self) -> None:
        """Write until cancelled."""
        async with asyncio.TaskGroup() as writers:
            for _ in range(WRITERS):
                writers.create_task(self._write())

    async def _write(self) -> None:
        while True:
            event = await self._waiting.get()
            try:
                await self._writes.tell(event)
            except FederationError as error:
                logger.warning("event of pod %s not written: %s", event.pod.uid, error.message)
