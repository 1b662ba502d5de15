"""How long tests wait for what must happen.

A bound on hanging, never an expectation of speed: machines are slow when much runs beside.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

PATIENCE_SECONDS = 180.0
# Who asks again and again without a pause takes the turn of what it waits for. The first pauses
# are short, for what happens at once.
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS, PAUSE_GROWTH = 0.001, 0.05, 1.3

Answer = TypeVar("Answer")


async def until(
    ask: Callable[[], Awaitable[Answer]],
    holds: Callable[[Answer], bool],
    *,
    longest_pause_seconds: float = LONGEST_PAUSE_SECONDS,
) -> Answer:
    """The first answer that holds; what is asked for is asked again, after longer and longer."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    pause_seconds = 0.0
    while not holds(answer := await ask()):
        assert time.monotonic() < deadline, answer
        await asyncio.sleep(pause_seconds)
        pause_seconds = max(FIRST_PAUSE_SECONDS, PAUSE_GROWTH * pause_seconds)
        pause_seconds = min(pause_seconds, longest_pause_seconds)
    return answer
