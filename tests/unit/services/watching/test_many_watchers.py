"""Many watchers at once: what one caller may take, and what resuming costs."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from federation.model.errors import Conflict, LimitExceeded
from federation.services.journal import Position
from federation.services.watching.watches import WatchPace
from tests.unit.services.watching.test_watches import until_all_wait
from tests.watch_worlds import Follower, World, watches_of


@pytest.fixture
def world() -> World:
    return World()


async def test_a_watcher_takes_half_of_what_others_leave(world: World) -> None:
    watches = watches_of(world, WatchPace(interval_seconds=0.0, bookmark_seconds=0.0, watchers=8))
    streams = []

    async def watch(actor: str) -> None:
        stream = watches.watch("", "", actor)
        await anext(stream)
        streams.append(stream)

    taken = {}
    for actor in ("greedy", "next", "last", "late"):
        with suppress(LimitExceeded):
            while len(streams) < 9:
                await watch(actor)
        taken[actor] = len(streams) - sum(taken.values())
    # The last one took the last free place: then there is none.
    assert taken == {"greedy": 4, "next": 2, "last": 1, "late": 1}
    await streams.pop(0).aclose()
    with pytest.raises(LimitExceeded, match="half of those that others leave free"):
        await watch("next")
    await watch("another")
    for stream in streams:
        await stream.aclose()
    assert watches.size == 0


async def test_those_who_resume_at_once_read_the_journal_together(world: World) -> None:
    for number in range(40):
        world.change(f"n{number % 7}")
    watches = watches_of(world)
    newest = Follower(watches)
    await newest.hear_all()
    reads = world.journal_reads
    followers = [Follower(watches) for _ in range(30)]
    for number, follower in enumerate(followers):
        follower.version = f"{2 + number % 20}.1"
    await asyncio.gather(*(follower.hear_all() for follower in followers))
    # Each part has three entries of the 40.
    assert world.journal_reads - reads <= 2 * 14
    for number, follower in enumerate(followers):
        # Of those that changed after its version it knows what is there now.
        assert follower.known.items() <= newest.known.items()
        assert len(follower.known) == min(7, 40 - number % 20)
        await follower.cut()
    await newest.cut()


async def test_one_who_goes_or_is_too_late_harms_nobody_that_resumes(world: World) -> None:
    for number in range(30):
        world.change(f"n{number}")
    watches = watches_of(world)
    stays, goes, late = (Follower(watches) for _ in range(3))
    stays.version, goes.version, late.version = "20.1", "3.1", "999.1"
    leaving = asyncio.create_task(goes.hear())
    staying = asyncio.create_task(stays.hear_all())
    await asyncio.sleep(0)
    leaving.cancel()
    with pytest.raises(Conflict, match="later than"):
        await late.hear()
    await staying
    with pytest.raises(asyncio.CancelledError):
        await leaving
    assert stays.known
    await stays.cut()


async def test_what_is_pruned_while_it_is_read_is_listed_again(world: World) -> None:
    for number in range(30):
        world.change(f"n{number}")
    watches = watches_of(world)
    old, new = Follower(watches), Follower(watches)
    old.version, new.version = "3.1", "25.1"
    world.prune_at_read = 2, Position(20, 1)
    reading = asyncio.create_task(new.hear_all())
    with pytest.raises(Conflict, match="too old") as raised:
        await old.hear()
    assert raised.value.reason == "RELIST"
    await reading
    assert new.known
    await new.cut()


async def test_a_round_tells_those_first_who_have_waited_longest(world: World) -> None:
    pace = WatchPace(interval_seconds=0.0, bookmark_seconds=3600.0, events=3, round_events=3)
    watches = watches_of(world, pace)
    followers = [Follower(watches) for _ in range(5)]
    for follower in followers:
        await follower.hear_all()
    hearing = [asyncio.create_task(follower.hear()) for follower in followers]
    await until_all_wait()
    world.change("a", "b", "c")
    reads = len(world.reads)
    done, _ = await asyncio.wait(hearing, return_when=asyncio.FIRST_COMPLETED)
    assert done == {hearing[0]}
    await asyncio.gather(*hearing)
    assert len(world.reads) - reads == 5
    for follower in followers:
        await follower.cut()
