"""Streams whose callers are looked at again and again, while the store is away and after it."""

from __future__ import annotations

import asyncio

import pytest

from federation.model.errors import Unavailable
from federation.rpc import guards
from federation.rpc.guards import while_admitted
from lab.patience import PATIENCE_SECONDS


class Door:
    """Lets in the first times; then the store is away."""

    def __init__(self, times: int) -> None:
        self.asked = 0
        self.times = times

    async def admit(self) -> None:
        self.asked += 1
        if self.asked > self.times:
            raise Unavailable("the database cannot be reached")


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guards, "ADMITTED_SECONDS", 0.0)


async def test_a_stream_ends_once_nobody_could_tell_for_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(guards, "OUTAGE_SECONDS", 0.0)
    door, never = Door(3), asyncio.Event()
    with pytest.raises(Unavailable):
        async with asyncio.timeout(PATIENCE_SECONDS):
            await while_admitted(_wait(never), door.admit)
    assert door.asked > door.times


async def test_a_stream_goes_on_while_the_store_is_away_for_a_while() -> None:
    door, over = Door(0), asyncio.Event()

    async def admit() -> None:
        if door.asked == 20:
            over.set()
        await door.admit()

    async with asyncio.timeout(PATIENCE_SECONDS):
        await while_admitted(_wait(over), admit)
    assert door.asked >= 20


async def _wait(event: asyncio.Event) -> None:
    await event.wait()
