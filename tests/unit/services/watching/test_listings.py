"""What begins watches: read once for all who begin, as it is then, and bounded."""

from __future__ import annotations

import asyncio

import pytest

from federation.services.watching import listings
from tests.watch_worlds import Follower, World, watches_of


@pytest.fixture
def world() -> World:
    made = World()
    made.change("a", "b", "c", "d", "e")
    return made


async def cut_all(*followers: Follower) -> None:
    for follower in followers:
        await follower.cut()


async def test_all_who_begin_share_one_listing(world: World) -> None:
    watches = watches_of(world)
    followers = [Follower(watches) for _ in range(9)]
    async with asyncio.TaskGroup() as listing:
        for follower in followers:
            listing.create_task(follower.hear_all())
    assert [list(read) for read in world.reads] == [["a", "b"], ["c", "d"], ["e"]]
    assert all(follower.known == world.objects for follower in followers)
    await cut_all(*followers)


async def test_who_begins_later_has_what_changed_since(world: World) -> None:
    watches = watches_of(world)
    first, later, other_scope = Follower(watches), Follower(watches), Follower(watches, "b")
    await first.hear_all()
    world.reads.clear()
    # One is changed, one deleted, one new, and of another this process did not read yet.
    world.change("b", "bb")
    world.commit(world.begin({"d": False}))
    world.commit(world.begin({"a": True}))
    await later.hear_all()
    assert later.known == world.objects
    assert [sorted(read) for read in world.reads] == [["a", "b"], ["d"], ["bb"]]
    await other_scope.hear_all()
    assert sorted(other_scope.known) == ["b", "bb"]
    await cut_all(first, later, other_scope)


async def test_what_is_too_large_to_keep_is_read_by_each(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listings, "MOST_BYTES", 3)
    watches = watches_of(world)
    one, other = Follower(watches), Follower(watches)
    for follower in (one, other):
        await follower.hear_all()
        assert follower.known == world.objects
    assert [list(read) for read in world.reads] == 2 * [["a", "b"], ["c", "d"], ["e"]]
    await cut_all(one, other)


async def test_an_old_listing_is_made_anew(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listings, "SHARED_SECONDS", -1.0)
    watches = watches_of(world)
    one, other = Follower(watches), Follower(watches)
    await one.hear_all()
    world.reads.clear()
    await other.hear_all()
    assert len(world.reads) == 3
    assert other.known == world.objects
    await cut_all(one, other)


@pytest.mark.parametrize("steps", range(30))
async def test_who_goes_away_while_it_lists_harms_nobody(world: World, steps: int) -> None:
    watches = watches_of(world)
    goes, stays = Follower(watches), Follower(watches)
    going = asyncio.create_task(goes.hear())
    staying = asyncio.create_task(stays.hear_all())
    for _ in range(steps):
        await asyncio.sleep(0)
    going.cancel()
    await asyncio.gather(going, return_exceptions=True)
    await goes.cut()
    await staying
    assert stays.known == world.objects
    await stays.cut()
    assert watches.size == 0


async def test_a_lost_journal_ends_what_is_shared(world: World) -> None:
    watches = watches_of(world)
    first, later = Follower(watches), Follower(watches)
    await first.hear_all()
    # Changed, and nobody is told of it.
    world.objects["a"] = 99
    world.lose()
    await later.hear_all()
    assert later.known == world.objects
    await cut_all(first, later)
