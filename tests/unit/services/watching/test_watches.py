"""Watches: whatever the order of commits, applying, cuts and resuming, nothing is missed."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from federation.model.errors import (
    Conflict,
    FederationError,
    InvalidRequest,
    LimitExceeded,
    Unavailable,
)
from federation.services.journal import Position
from federation.services.watching.watches import WatchPace, position_of, version_of
from tests.watch_worlds import Follower, Seen, World, watches_of


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


async def test_what_is_there_comes_first_then_a_bookmark_then_changes(world: World) -> None:
    follower = Follower(watches_of(world))
    versions = []
    while not (told := await follower.hear()).resource_version:
        versions.append([each.name for each in told.events])
    assert versions == [["a", "b"], ["c"]]
    assert told.events == ()
    await follower.hear_all()
    world.change("b")
    told = await follower.hear()
    assert [each.name for each in told.events] == ["b"]
    assert position_of(told.resource_version) == world.position
    await follower.cut()


async def test_several_changes_of_one_object_are_one_event(world: World) -> None:
    follower = Follower(watches_of(world))
    await follower.hear_all()
    await follower.hear_all()
    for _ in range(5):
        world.change("a")
    world.change("b")
    told = await follower.hear()
    assert told.events == (Seen("a", world.objects["a"]), Seen("b", world.objects["b"]))
    await follower.cut()


async def test_what_changed_is_read_once_for_all_watchers(world: World) -> None:
    watches = watches_of(world, WatchPace(interval_seconds=0.0))
    followers = [Follower(watches) for _ in range(9)]
    for follower in followers:
        await follower.hear_all()
    hearing = [asyncio.create_task(follower.hear()) for follower in followers]
    await until_all_wait()
    world.reads.clear()
    world.change("a", "c")
    told = await asyncio.gather(*hearing)
    assert [list(read) for read in world.reads] == [["a", "c"]]
    assert {each.events for each in told} == {
        (Seen("a", world.objects["a"]), Seen("c", world.objects["c"]))
    }
    for follower in followers:
        await follower.cut()


async def test_a_message_that_cannot_tell_all_is_resumed_from_before_it(world: World) -> None:
    pace = WatchPace(interval_seconds=0.0, bookmark_seconds=0.0, events=2)
    follower = Follower(watches_of(world, pace))
    await follower.hear_all()
    await follower.hear_all()
    before = follower.version
    world.change("a", "b", "c")
    told = await follower.hear()
    assert (len(told.events), told.resource_version) == (2, before)
    told = await follower.hear()
    assert len(told.events) == 1
    assert position_of(told.resource_version) == world.position
    await follower.cut()


async def test_a_scope_is_told_of_its_own_alone(world: World) -> None:
    follower = Follower(watches_of(world), scope="b")
    await follower.hear_all()
    assert list(follower.known) == ["b"]
    world.change("a", "c")
    assert (await follower.hear()).events == ()
    assert position_of((await follower.hear()).resource_version) == world.position
    world.change("bb")
    await follower.hear()
    assert sorted(follower.known) == ["b", "bb"]
    await follower.cut()


async def test_what_changes_while_it_is_read_is_told_the_next_time(world: World) -> None:
    watches = watches_of(world)
    follower = Follower(watches)
    await follower.hear_all()
    await follower.hear_all()
    world.meanwhile[frozenset({"a"})] = ("a", "b")
    world.change("a")
    first = (await follower.hear()).resource_version
    assert position_of(first) < world.position
    await follower.cut()
    await follower.hear_all()
    assert follower.known == world.objects
    await follower.cut()


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


async def test_a_slow_watcher_has_to_list_again_and_keeps_nothing(world: World) -> None:
    pace = WatchPace(interval_seconds=0.0, bookmark_seconds=0.0, buffer_keys=10)
    watches = watches_of(world, pace)
    follower = Follower(watches)
    await follower.hear_all()
    (watcher,) = watches._watchers
    world.change(*(f"n{number}" for number in range(10)))
    assert len(watcher._pending) == 10
    world.change("one more")
    assert not watcher._pending
    world.change("a")
    assert not watcher._pending
    with pytest.raises(Conflict, match="list again") as raised:
        await follower.hear()
    assert raised.value.reason == "RELIST"
    assert watches.size == 0


async def test_resuming_over_more_than_is_kept_is_listing_again(world: World) -> None:
    pace = WatchPace(interval_seconds=0.0, bookmark_seconds=0.0, buffer_keys=10)
    follower = Follower(watches_of(world, pace))
    await follower.hear_all()
    await follower.cut()
    world.change(*(f"n{number}" for number in range(11)))
    with pytest.raises(Conflict) as raised:
        await follower.hear()
    assert raised.value.reason == "RELIST"


@pytest.mark.parametrize(
    "version",
    [
        "x",
        "1",
        "1.",
        ".1",
        "1.2.3",
        "-1.2",
        "01.2",
        "1.02",
        " 1.2",
        "1.2\n",
        "1.2\0",
        "٣.٤",
        "9" * 20,
    ],
)
async def test_a_version_that_was_never_given_out_is_refused(world: World, version: str) -> None:
    watches = watches_of(world)
    with pytest.raises(InvalidRequest) as raised:
        await anext(watches.watch("", version))
    assert [each.field for each in raised.value.violations] == ["resourceVersion"]
    assert watches.size == 0


async def test_a_version_of_the_future_is_listing_again(world: World) -> None:
    """It was given out before the database was put back to an earlier state."""
    with pytest.raises(Conflict, match="later than") as raised:
        await anext(watches_of(world).watch("", "999.1"))
    assert raised.value.reason == "RELIST"


async def test_a_version_from_before_what_was_pruned_is_listing_again(world: World) -> None:
    world.horizon = Position(2, 2)
    watches = watches_of(world)
    with pytest.raises(Conflict) as raised:
        await anext(watches.watch("", "2.1"))
    assert raised.value.reason == "RELIST"
    follower = Follower(watches)
    follower.version = "2.2"
    await follower.hear_all()
    assert list(follower.known) == ["c"]
    await follower.cut()


@given(st.integers(0, 2**63 - 1), st.integers(0, 2**63 - 1))
def test_versions_are_read_as_they_were_written(xid: int, number: int) -> None:
    position = Position(xid, number)
    for history in ("", "5f1d0a2b-7c3e-4d52-9f0e-2f3f5c1d7a90"):
        assert position_of(version_of(position, history)) == position


async def test_a_version_of_a_database_that_was_put_back_is_listing_again(world: World) -> None:
    """The place is there again, with other changes before it."""
    world.change("a", "b")
    watches = watches_of(world)
    version = watches.resource_version(Position(2, 1))
    await anext(watches.watch("", version))
    world.history = "0c2e4a6b-8d1f-4a3c-b5d7-e9f1a3c5d7e9"
    with pytest.raises(Conflict, match="put back") as raised:
        await anext(watches.watch("", version))
    assert raised.value.reason == "RELIST"


async def test_only_so_many_watch_at_a_time(world: World) -> None:
    pace = WatchPace(interval_seconds=0.0, bookmark_seconds=0.0, watchers=2)
    watches = watches_of(world, pace)
    one, other, third = (Follower(watches) for _ in range(3))
    await one.hear()
    await other.hear()
    with pytest.raises(LimitExceeded):
        await third.hear()
    await one.cut()
    third = Follower(watches)
    await third.hear()
    await other.cut()
    await third.cut()


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


async def test_what_cannot_be_read_ends_the_watch_and_can_be_resumed(world: World) -> None:
    watches = watches_of(world)
    follower = Follower(watches)
    await follower.hear_all()
    await follower.hear_all()
    world.failure = Unavailable()
    world.change("a")
    with pytest.raises(FederationError):
        await follower.hear()
    world.failure = None
    again = Follower(watches)
    again.version, again.known = follower.version, follower.known
    await again.hear_all()
    assert again.known == world.objects
    await again.cut()


async def test_a_watcher_that_goes_away_while_it_is_told_harms_nobody(world: World) -> None:
    watches = watches_of(world, WatchPace(interval_seconds=0.0))
    stays, goes = Follower(watches), Follower(watches)
    for follower in (stays, goes):
        await follower.hear_all()
    hearing = asyncio.create_task(stays.hear())
    leaving = asyncio.create_task(goes.hear())
    await until_all_wait()
    world.change("a")
    leaving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaving
    assert [each.name for each in (await hearing).events] == ["a"]
    async with aclosing(watches.watch("", "")):
        pass
    await stays.cut()
    assert watches.size == 0
