"""Writes together what several callers bring within a moment: one transaction for many.

Must not answer a caller before what it brought is written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from federation.model.errors import Unavailable
from federation.runtime.futures import fail

Item = TypeVar("Item")
Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True, eq=False)
class _Entry(Generic[Item, Answer]):
    key: str
    item: Item
    answer: asyncio.Future[Answer]


class Batcher(Generic[Item, Answer]):
    """One batch after the other, each with one item of every key at most.

    ``write`` answers the items in their order. ``seconds``: how long the first of a batch waits so
    that others can join it.
    """

    def __init__(
        self, write: Callable[[Sequence[Item]], Awaitable[Sequence[Answer]]], *, seconds: float
    ) -> None:
        self._write = write
        self._seconds = seconds
        self._waiting: list[_Entry[Item, Answer]] = []
        self._writer: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        """How many items wait for their batch."""
        return len(self._waiting)

    async def put(self, key: str, item: Item) -> Answer:
        """Returns when the item is written, and raises what writing it raises.

        What a caller brought is written also when the caller gives up.
        """
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Entry(key, item, answer))
        if self._writer is None:
            self._writer = asyncio.create_task(self._write_all())
        return await answer

    async def _write_all(self) -> None:
        try:
            while self._waiting:
                await asyncio.sleep(self._seconds)
                await self._write_batch(self._take_batch())
        finally:
            self._writer = None

    def _take_batch(self) -> list[_Entry[Item, Answer]]:
        """The first item of every key, in order of arrival; further ones wait."""
        batch: dict[str, _Entry[Item, Answer]] = {}
        self._waiting = [
            entry for entry in self._waiting if batch.setdefault(entry.key, entry) is not entry
        ]
        return list(batch.values())

    async def _write_batch(self, batch: Sequence[_Entry[Item, Answer]]) -> None:
        try:
            answers = await self._write([entry.item for entry in batch])
        except Exception as error:  # noqa: BLE001 - each caller gets it
            if len(batch) > 1 and not isinstance(error, Unavailable):
                # One item cannot be written: it must not harm the others.
                for entry in batch:
                    await self._write_batch([entry])
                return
            for entry in batch:
                fail(entry.answer, error)
        else:
            for entry, answer in zip(batch, answers, strict=True):
                if not entry.answer.done():
                    entry.answer.set_result(answer)
