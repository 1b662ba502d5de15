"""How long tests wait for what must happen.

A bound on hanging, never an expectation of speed: machines are slow when much runs beside.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

PATIENCE_SECONDS = 180.0

Answer = TypeVar("Answer")


async def until(ask: Callable[[], Awaitable[Answer]], holds: Callable[[Answer], bool]) -> Answer:
    """The first answer that holds; what is asked for is asked again and again."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not holds(answer := await ask()):
        assert time.monotonic() < deadline, answer
    return answer
