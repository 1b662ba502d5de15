from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from federation.model.errors import Unavailable
from federation.runtime.batching import Batcher
from lab.patience import PATIENCE_SECONDS


class Writer:
    """Remembers its batches, and refuses those with the item ``bad``."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.error: Exception = ValueError("cannot be written")
        self.has_begun = asyncio.Event()
        self.may_go_on = asyncio.Event()
        self.may_go_on.set()

    async def write(self, items: Sequence[str]) -> list[str]:
        self.batches.append(list(items))
        self.has_begun.set()
        await self.may_go_on.wait()
        if "bad" in items:
            raise self.error
        return [item.upper() for item in items]


async def put(batcher: Batcher[str, str], *items: str) -> list[str | BaseException]:
    """Each item with itself as its key."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        return await asyncio.gather(
            *(batcher.put(item, item) for item in items), return_exceptions=True
        )


async def test_what_comes_within_a_moment_is_written_together_and_answered_one_by_one() -> None:
    writer = Writer()
    batcher = Batcher(writer.write, seconds=0)
    assert await put(batcher, "a", "b", "c") == ["A", "B", "C"]
    assert writer.batches == [["a", "b", "c"]]
    assert await put(batcher, "d") == ["D"]


async def test_a_batch_holds_one_item_of_a_key() -> None:
    writer = Writer()
    batcher = Batcher(writer.write, seconds=0)
    async with asyncio.timeout(PATIENCE_SECONDS):
        answers = await asyncio.gather(
            batcher.put("x", "first"), batcher.put("x", "second"), batcher.put("y", "other")
        )
    assert list(answers) == ["FIRST", "SECOND", "OTHER"]
    assert writer.batches == [["first", "other"], ["second"]]


async def test_what_comes_while_a_batch_is_written_waits_for_the_next() -> None:
    writer = Writer()
    writer.may_go_on.clear()
    batcher = Batcher(writer.write, seconds=0)
    first = asyncio.create_task(batcher.put("a", "a"))
    await writer.has_begun.wait()
    second = asyncio.create_task(batcher.put("b", "b"))
    await asyncio.sleep(0)
    assert len(batcher) == 1
    assert writer.batches == [["a"]]
    writer.may_go_on.set()
    assert [await first, await second] == ["A", "B"]
    assert writer.batches == [["a"], ["b"]]


async def test_an_item_that_cannot_be_written_harms_itself_alone() -> None:
    writer = Writer()
    answers = await put(Batcher(writer.write, seconds=0), "a", "bad", "c")
    assert answers == ["A", writer.error, "C"]


async def test_while_the_store_is_away_nothing_is_tried_one_by_one() -> None:
    writer = Writer()
    writer.error = Unavailable("the store is away")
    answers = await put(Batcher(writer.write, seconds=0), "a", "bad", "c")
    assert answers == [writer.error] * 3
    assert len(writer.batches) == 1


async def test_who_gives_up_stops_neither_its_own_item_nor_the_others() -> None:
    writer = Writer()
    writer.may_go_on.clear()
    batcher = Batcher(writer.write, seconds=0)
    impatient = asyncio.create_task(batcher.put("a", "a"))
    patient = asyncio.create_task(batcher.put("b", "b"))
    await writer.has_begun.wait()
    impatient.cancel()
    with pytest.raises(asyncio.CancelledError):
        await impatient
    writer.may_go_on.set()
    assert await patient == "B"
    assert writer.batches == [["a", "b"]]
