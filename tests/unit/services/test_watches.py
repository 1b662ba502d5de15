"""Watches: whatever the order of commits, applying, cuts and resuming, nothing is missed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any, NamedTuple, cast

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
from federation.services.following import JournalObserver
from federation.services.journal import BindingChanged, Change, Entry, Position
from federation.services.ports import Store
from federation.services.watches import Told, Watches, WatchPace, position_of, version_of

# Every wait for something new ends with a bookmark at once.
EAGER = WatchPace(interval_seconds=0.0, bookmark_seconds=0.0)
SECONDS = 10.0


class Seen(NamedTuple):
    """An event: the object's value, None when it is gone."""

    name: str
    value: int | None


class World:
    """Objects, transactions that change them, the journal of it, and what is applied of that.

    Implements Store as far as watches read, watches.Feed and watches.Subject.
    """

    def __init__(self) -> None:
        self.objects: dict[str, int] = {}
        self.running: dict[int, dict[str, bool]] = {}
        self.entries: list[Entry] = []
        self.position = Position()
        self.horizon = Position()
        self.reads: list[Mapping[str, Change | None]] = []
        self.failure: Exception | None = None
        self.is_behind = False
        # What is changed once these have been read.
        self.meanwhile: dict[frozenset[str], tuple[str, ...]] = {}
        self._observers: list[JournalObserver] = []
        self._xid = 1

    @property
    def store(self) -> Store:
        return cast("Store", self)

    def begin(self, changes: Mapping[str, bool]) -> int:
        """A transaction that will change (True) or delete objects."""
        self._xid += 1
        self.running[self._xid] = dict(changes)
        return self._xid

    def commit(self, xid: int) -> None:
        for name, lives in self.running.pop(xid).items():
            if lives:
                self.objects[name] = len(self.entries)
            else:
                self.objects.pop(name, None)
            change = BindingChanged(namespace="", name=name, deleted=not lives)
            position = Position(xid, len(self.entries) + 1)
            self.entries.append(Entry(position=position, change=change))

    def change(self, *names: str) -> None:
        """Commits and reads."""
        self.commit(self.begin(dict.fromkeys(names, True)))
        self.feed()

    def feed(self) -> None:
        """Reads what can be read in order."""
        for entry in self._readable(self.position):
            self.position = entry.position
            for observer in self._observers:
                observer.changed(entry.change)

    def lose(self) -> None:
        for observer in self._observers:
            observer.lost()

    def _readable(self, after: Position) -> list[Entry]:
        first_running = min(self.running, default=self._xid + 1)
        found = [e for e in self.entries if after < e.position and e.position.xid < first_running]
        return sorted(found, key=lambda each: each.position)

    # Store

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[Any]:
        await asyncio.sleep(0)
        yield _Read(self)

    # Feed

    def observe(self, observer: JournalObserver) -> None:
        self._observers.append(observer)

    # Subject

    def key_of(self, change: Change) -> str | None:
        return change.name if isinstance(change, BindingChanged) else None

    def concerns(self, key: str, scope: str) -> bool:
        return key.startswith(scope)

    async def pages(self, scope: str) -> AsyncIterator[Sequence[str]]:
        names = sorted(filter(lambda name: self.concerns(name, scope), self.objects))
        for first in range(0, len(names), 2):
            await asyncio.sleep(0)
            yield names[first : first + 2]

    def is_current(self) -> bool:
        return not self.is_behind

    async def events(self, changed: Mapping[str, Change | None]) -> Mapping[str, Seen]:
        if self.failure is not None:
            raise self.failure
        self.reads.append(changed)
        for _ in range(5):
            await asyncio.sleep(0)
        found = {name: Seen(name, self.objects.get(name)) for name in changed}
        if meanwhile := self.meanwhile.pop(frozenset(changed), None):
            self.change(*meanwhile)
        for _ in range(5):
            await asyncio.sleep(0)
        return {
            name: seen
            for name, seen in found.items()
            if seen.value is not None or changed[name] is not None
        }


class _Read:
    """A journal as the store has it."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.journal = self

    async def read(self, after: Position, limit: int) -> Sequence[Entry]:
        await asyncio.sleep(0)
        return self._world._readable(after)[: min(limit, 3)]

    async def position(self) -> Position:
        await asyncio.sleep(0)
        return Position(min(self._world.running, default=self._world._xid + 1), 0)

    async def oldest(self) -> Position:
        return self._world.horizon


def watches_of(world: World, pace: WatchPace = EAGER) -> Watches[str, Seen]:
    return Watches(world.store, world, world, pace)


class Follower:
    """A client that keeps what it is told of, and resumes from the last version it was told."""

    def __init__(self, watches: Watches[str, Seen], scope: str = "") -> None:
        self.known: dict[str, int] = {}
        self.version = ""
        self._watches = watches
        self._scope = scope
        self._stream: AsyncGenerator[Told[Seen]] | None = None

    async def hear(self) -> Told[Seen]:
        if self._stream is None:
            if not self.version:
                self.known.clear()
            self._stream = self._watches.watch(self._scope, self.version)
        async with asyncio.timeout(SECONDS):
            told = await anext(self._stream)
        for event in told.events:
            if event.value is None:
                self.known.pop(event.name, None)
            else:
                self.known[event.name] = event.value
        self.version = told.resource_version
        return told

    async def hear_all(self) -> None:
        """Until a bookmark that can be resumed from."""
        while (told := await self.hear()).events or not told.resource_version:
            pass

    async def cut(self) -> None:
        if self._stream is not None:
            await self._stream.aclose()
            self._stream = None


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


async def test_a_version_of_the_future_is_refused(world: World) -> None:
    with pytest.raises(InvalidRequest, match="later than"):
        await anext(watches_of(world).watch("", "999.1"))


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
    assert position_of(version_of(position)) == position


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
