"""What a control plane appended itself is applied once, whatever comes of the commit's answer."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import pytest

from federation.services.fleet import journal_memory as module
from federation.services.fleet.journal_memory import Appending, OwnEntries
from federation.services.fleet.journal_reader import Following
from federation.services.fleet.registry import FleetOwner
from federation.services.journal import BindingChanged, Change
from federation.store.postgres import PostgresStore

CHANGE = BindingChanged(namespace="shop", name="web", uid="uid-web", decision="first")


class Plane:
    """A fleet that follows, what was applied to it, and what was told of the journal."""

    def __init__(self, store: PostgresStore) -> None:
        self.store = store
        self.fleet = FleetOwner(store)
        self.following = Following(store, self.fleet)
        self.applied: list[Change] = []
        self.told: list[Change] = []
        self.fleet.observe(self.applied.append)
        self.following.observe(self)

    def changed(self, change: Change) -> None:
        self.told.append(change)

    def lost(self) -> None:
        """Nothing is pruned."""

    async def commit(self, own: Appending, *changes: Change) -> None:
        async with self.store.transaction() as tx:
            own.announce(await tx.journal.append(changes), changes)


def until_asked(own: OwnEntries, monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Set once somebody asks for entries that can be read."""
    asked, arrived = asyncio.Event(), own.arrived

    async def ask(ids: Iterable[int]) -> None:
        asked.set()
        await arrived(ids)

    monkeypatch.setattr(own, "arrived", ask)
    return asked


@pytest.fixture
async def plane(store: PostgresStore) -> Plane:
    made = Plane(store)
    await made.fleet.load(grace_until=0.0)
    return made


async def test_what_was_applied_is_told_and_not_applied_again(plane: Plane) -> None:
    other = BindingChanged(namespace="shop", name="db")
    with plane.following.appending() as own:
        await plane.commit(own, CHANGE)
        plane.fleet.apply(CHANGE)
    async with plane.store.transaction() as tx:
        await tx.journal.append([other])
    await plane.following.follow()
    assert plane.applied == [CHANGE, other]
    assert plane.told == [CHANGE, other]
    assert plane.told[0] is CHANGE
    position = plane.fleet.position
    await plane.following.follow()
    assert plane.fleet.position == position


async def test_what_is_read_before_the_commit_is_answered_waits_for_that(
    plane: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_COMMIT_WAIT_SECONDS", 3600.0)
    asked = until_asked(plane.following._own, monkeypatch)
    position = plane.fleet.position
    with plane.following.appending() as own:
        await plane.commit(own, CHANGE)
        following = asyncio.create_task(plane.following.follow())
        await asked.wait()
        assert (plane.applied, plane.told, plane.fleet.position) == ([], [], position)
        plane.fleet.apply(CHANGE)
    await following
    assert plane.applied == plane.told == [CHANGE]
    assert plane.fleet.position > position


async def test_a_commit_whose_answer_takes_too_long_is_not_waited_for(
    plane: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_COMMIT_WAIT_SECONDS", 0.0)
    with plane.following.appending() as own:
        await plane.commit(own, CHANGE)
        await plane.following.follow()
        assert plane.applied == plane.told == [CHANGE]


def test_what_nobody_reads_is_forgotten_in_the_end() -> None:
    entries = OwnEntries()
    for first in range(0, 3 * module.MAX_OWN_CHANGES, 100):
        with entries.appending() as own:
            own.announce(range(first, first + 100), [CHANGE] * 100)
    assert list(entries.changes) == [*range(2 * module.MAX_OWN_CHANGES, 3 * module.MAX_OWN_CHANGES)]
