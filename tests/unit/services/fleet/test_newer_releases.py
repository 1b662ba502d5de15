"""What a newer release wrote: what can be read of it is, and the rest is told."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from sqlalchemy import bindparam, text
from sqlalchemy.ext.asyncio import AsyncEngine

from federation.history.bodies import NewerBody
from federation.services.journal import (
    Change,
)
from lab.patience import PATIENCE_SECONDS
from tests.unit.services.fleet.planes import (
    Plane,
    assert_equal,
    settle,
)

NEWER_ENTRY = text("UPDATE journal SET body = :body WHERE id = (SELECT max(id) FROM journal)")
NEWER = bindparam("body", msgspec.msgpack.encode({"v": 2, "name": ["of another type"]}))


class Told:
    """Implements JournalObserver."""

    def __init__(self) -> None:
        self.kinds: list[str] = []

    def changed(self, change: Change) -> None:
        self.kinds.append(type(change).__name__)

    def lost(self) -> None:
        self.kinds.append("lost")


async def until_ready(plane: Plane, *, is_ready: bool) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while (plane.following.why_not_ready is None) != is_ready:
            async with plane.store.reading() as read:
                await read.journal.position()


async def test_a_change_of_a_newer_version_is_read_from_the_tables_with_an_alarm(
    planes: tuple[Plane, Plane], engine: AsyncEngine, caplog: pytest.LogCaptureFixture
) -> None:
    one, other = planes
    told = Told()
    other.following.observe(told)
    await one.decide("web", {"a": 3})
    async with engine.begin() as connection:
        await connection.execute(NEWER_ENTRY.bindparams(NEWER))
    async with other.store.transaction() as tx:
        await other.following.catch_up(tx, await tx.journal.lock(["a"]))
    assert other.fleet.holdings("shop/web") == ("a",)
    await settle(other)
    assert told.kinds == ["lost"]
    assert "of an unknown kind or version are passed over" in caplog.text
    await one.decide("db", {"a": 2, "b": 1})
    await settle(other)
    assert told.kinds == ["lost", "BindingChanged"]
    assert other.fleet.snapshot.outstanding == one.fleet.snapshot.outstanding
    assert "went back" not in caplog.text


async def test_who_cannot_read_a_report_is_not_ready_until_one_comes_that_it_can_read(
    planes: tuple[Plane, Plane], engine: AsyncEngine
) -> None:
    one, other = planes
    await one.report("a", 2, {})
    async with engine.begin() as connection:
        await connection.execute(text("""UPDATE cluster_report SET body = '{"v": 2}'"""))
    async with other.store.transaction() as tx:
        with pytest.raises(NewerBody, match="reports of version 2"):
            await other.following.catch_up(tx, await tx.journal.lock(["a"]))
    running = asyncio.create_task(other.following.run())
    try:
        await until_ready(other, is_ready=False)
        assert "reports of version 2" in (other.following.why_not_ready or "")
        await one.report("a", 3, {})
        await until_ready(other, is_ready=True)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    assert_equal(one, other)
