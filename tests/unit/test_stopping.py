"""A start that somebody ends before it is over."""

from __future__ import annotations

import asyncio

import pytest

from federation.model.errors import Unavailable
from federation.serving import unless_stopped


async def test_a_start_that_lasts_is_left_when_it_is_to_stop() -> None:
    begun, stop = asyncio.Event(), asyncio.Event()
    undone: list[str] = []

    async def start() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            undone.append("start")

    starting = asyncio.create_task(unless_stopped(start(), stop))
    await begun.wait()
    stop.set()
    assert not await starting
    assert undone == ["start"]


async def test_a_start_that_ends_is_told_with_what_it_raised() -> None:
    async def start() -> None:
        await asyncio.sleep(0)

    async def fail() -> None:
        raise Unavailable

    assert await unless_stopped(start(), asyncio.Event())
    with pytest.raises(Unavailable):
        await unless_stopped(fail(), asyncio.Event())


async def test_who_waits_for_a_start_and_gives_up_ends_it() -> None:
    begun = asyncio.Event()
    ended = asyncio.Event()

    async def start() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    starting = asyncio.create_task(unless_stopped(start(), asyncio.Event()))
    await begun.wait()
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert ended.is_set()
