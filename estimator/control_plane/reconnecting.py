"""A control plane that asks to be dialled again, after a while that its clients share.

Must not dial: callers do.
"""

from __future__ import annotations

import asyncio
from typing import Final

MAX_AFTER_SECONDS: Final = 600.0


class Reconnecting(Exception):
    """The control plane asks to be dialled again, some time within ``after_seconds``."""

    def __init__(self, reason: str, after_seconds: float) -> None:
        super().__init__(reason)
        self.after_seconds = after_seconds


async def wait_until(event: asyncio.Event, seconds: float) -> None:
    """Wait until it is set, at most so long."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return
