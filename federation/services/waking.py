"""A wait that ends with an event or with time, whichever comes first.

Must not know who waits.
"""

from __future__ import annotations

import asyncio

from federation.services.ports import Timer


async def wait_for_wake(wake: asyncio.Event, timer: Timer, seconds: float | None) -> None:
    """Return when ``wake`` is set, or when the clock has moved on by ``seconds``, if given."""
    if seconds is None:
        await wake.wait()
        return
    waking = asyncio.ensure_future(wake.wait())
    sleeping = asyncio.ensure_future(timer.sleep(seconds))
    try:
        await asyncio.wait((waking, sleeping), return_when=asyncio.FIRST_COMPLETED)
    finally:
        waking.cancel()
        sleeping.cancel()
