"""Threads by kind of work: bounds, and independence of each other."""

from __future__ import annotations

import asyncio
import threading

import pytest

from federation.model.errors import LimitExceeded
from federation.services.threads import Threads


async def test_what_is_too_much_is_refused_and_other_kinds_are_not_concerned() -> None:
    go_on = threading.Event()
    full = Threads("counting", workers=1, most_waiting=1)
    other = Threads("other", workers=1, most_waiting=0)
    waiting = [asyncio.ensure_future(full.run(go_on.wait)) for _ in range(2)]
    await asyncio.sleep(0)
    with pytest.raises(LimitExceeded, match="Too much counting waits"):
        await full.run(int)
    assert await other.run(int, "7") == 7
    go_on.set()
    assert await asyncio.gather(*waiting) == [True, True]
    assert await full.run(int, "8") == 8
    full.close()
    other.close()


async def test_who_gives_up_while_waiting_leaves_room_for_others() -> None:
    go_on = threading.Event()
    full = Threads("counting", workers=1, most_waiting=1)
    first = asyncio.ensure_future(full.run(go_on.wait))
    second = asyncio.ensure_future(full.run(int))
    await asyncio.sleep(0)
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    third = asyncio.ensure_future(full.run(int, "3"))
    go_on.set()
    assert await third == 3
    assert await first
    full.close()
