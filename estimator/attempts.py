"""Work that waits for others: until they answer, until told to stop, all of it or none.

Must not know what is waited for.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar

from federation.model.errors import Unavailable
from federation.runtime.backoff import Backoff

logger = logging.getLogger(__name__)


Answer = TypeVar("Answer")


async def together(coroutines: Sequence[Coroutine[Any, Any, None]]) -> None:
    """Run all of them until all have ended; the first that fails ends the others."""
    tasks = [asyncio.create_task(coroutine) for coroutine in coroutines]
    try:
        for task in asyncio.as_completed(tasks):
            await task
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def unless_stopped(
    preparing: Coroutine[Any, Any, Answer], stopping: asyncio.Event
) -> Answer | None:
    """Return the result of ``preparing``; None when a stop came first, which just ends it."""
    working = asyncio.create_task(preparing)
    stopped = asyncio.create_task(stopping.wait())
    try:
        await asyncio.wait({working, stopped}, return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        for task in (working, stopped):
            task.cancel()
        await asyncio.gather(working, stopped, return_exceptions=True)


async def patiently(attempt: Callable[[], Awaitable[Answer]]) -> Answer:
    """Try until it works; what cannot be reached now may be reached later."""
    backoff = Backoff()
    while True:
        try:
            return await attempt()
        except Unavailable as error:
            seconds = backoff.next_seconds()
            logger.warning("%s; again in %.1f s", error.message, seconds)
            await asyncio.sleep(seconds)
