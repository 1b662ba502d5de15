"""Watches: whatever the order of commits, applying, cuts and resuming, nothing is missed."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from federation.model.errors import (
    Conflict,
    Unavailable,
)
from federation.services.journal import Position
from federation.services.watching.watches import WatchPace, position_of
from tests.watch_worlds import Follower, World, watches_of


async def until_all_wait() -> None:
    """Everything that can run has run: nothing here waits for anything but other coroutines."""
    for _ in range(100):
        await asyncio.sleep(0)


NAMES = st.sampled_from(["a", "b", "c", "d", "e"])
STEP = st.one_of(
    st.tuples(st.just("begin"), st.dictionaries(NAMES, st.booleans(), min_size=1)),
    st.tuples(st.just("commit"), st.integers(0, 3)),
    st.tuples(st.just("change"), NAMES),
    st.tuples(st.just("feed"), st.none()),
    st.tuples(st.just("hear"), st.integers(0, 1)),
    st.tuples(st.just("cut"), st.integers(0, 1)),
    st.tuples(st.just("pass"), st.sampled_from([1, 3, 9, 30])),
)


class Listener:
    """A follower that hears while other things happen, until it is cut."""

    def __init__(self, follower: Follower) -> None:
        self.follower = follower
        self._hearing: asyncio.Task[None] | None = None

    def start(self) -> None:
        if self._hearing is None:
            self._hearing = asyncio.create_task(self._hear())

    async def cut(self) -> None:
        if self._hearing is not None:
            self._hearing.cancel()
            await asyncio.gather(self._hearing, return_exceptions=True)
            self._hearing = None
        await self.follower.cut()

    async def has_heard(self, position: Position) -> None:
        """Until everything before a place was told."""
        for _ in range(1000):
            version = self.follower.version
            if version and position_of(version) >= position:
                return
            await asyncio.sleep(0)
        raise AssertionError(f"{position} is not heard")

    async def _hear(self) -> None:
        while True:
            await self.follower.hear()


async def _step(world: World, listeners: Sequence[Listener], step: str, value: Any) -> None:
    match step:
        case "begin":
            world.begin(value)
        case "commit" if world.running:
            world.commit(sorted(world.running)[value % len(world.running)])
        case "change":
            world.commit(world.begin({value: True}))
        case "feed":
            world.feed()
        case "hear":
            listeners[value].start()
        case "cut":
            await listeners[value].cut()
        case "pass":
            for _ in range(value):
                await asyncio.sleep(0)


@settings(max_examples=300)
@given(st.lists(STEP, max_size=80))
def test_nothing_is_missed_in_any_order(steps: Sequence[tuple[str, Any]]) -> None:
    async def scenario() -> None:
        world = World()
        world.change("a", "b", "c")
        pace = WatchPace(interval_seconds=0.0, bookmark_seconds=0.0, events=2)
        watches = watches_of(world, pace)
        listeners = [Listener(Follower(watches)), Listener(Follower(watches))]
        await listeners[0].follower.hear_all()
        for step, value in steps:
            await _step(world, listeners, step, value)
        for xid in sorted(world.running):
            world.commit(xid)
        world.feed()
        for listener in listeners:
            listener.start()
            await listener.has_heard(world.position)
            await listener.cut()
            assert listener.follower.known == world.objects
        assert watches.size == 0
        await watches.close()

    asyncio.run(scenario())


@pytest.fixture
def world() -> World:
    made = World()
    made.change("a", "b", "c")
    return made


async def test_while_memory_is_behind_the_journal_nothing_is_resumed_from_later(
    world: World,
) -> None:
    follower = Follower(watches_of(world))
    await follower.hear_all()
    await follower.hear_all()
    before = follower.version
    world.is_behind = True
    world.change("a")
    assert (await follower.hear()).resource_version == before
    world.is_behind = False
    assert position_of((await follower.hear()).resource_version) == world.position
    await follower.cut()


async def test_when_the_journal_was_lost_everybody_has_to_list_again(world: World) -> None:
    follower = Follower(watches_of(world))
    await follower.hear_all()
    world.lose()
    with pytest.raises(Conflict) as raised:
        await follower.hear()
    assert raised.value.reason == "RELIST"


async def test_closing_ends_every_watch_and_refuses_new_ones(world: World) -> None:
    watches = watches_of(world, WatchPace(interval_seconds=0.0))
    waiting, listing = Follower(watches), Follower(watches)
    await waiting.hear_all()
    await listing.hear()
    hearing = asyncio.create_task(waiting.hear())
    await until_all_wait()
    await watches.close()
    for ending in (hearing, listing.hear(), Follower(watches).hear()):
        with pytest.raises(Unavailable):
            await ending
    assert watches.size == 0
