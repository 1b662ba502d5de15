"""Watchers that resume from a place in the journal, all of them in one pass over it.

Must not hold a connection between two parts of a pass, nor run two passes at once. A hundred
watchers that resume cost as much as one, and decisions go on meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from federation.model.errors import Conflict
from federation.runtime.futures import fail
from federation.services.journal import Change, Position
from federation.services.ports import Store

RELIST: Final = "RELIST"
# Entries of one part, and notes of watchers in it: about 5 ms of the event loop.
MAX_PART_ENTRIES: Final = 500
MAX_PART_NOTES: Final = 10_000
MIN_PART_ENTRIES: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Resume:
    """A watcher that waits for changes after ``since``; ``note`` takes them, or raises.

    It gets all after ``read`` elsewhere, too, so that this pass reads at least as far.
    """

    since: Position
    read: Position
    note: Callable[[Change], None]
    done: asyncio.Future[None]

    def take(self, position: Position, change: Change) -> None:
        if position > self.since and not self.done.done():
            try:
                self.note(change)
            except Conflict as error:
                fail(self.done, error)


class Resumes:
    """Watchers that resume. Belongs to one event loop."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: list[_Resume] = []
        self._passing: asyncio.Task[None] | None = None

    async def resume(self, since: Position, read: Position, note: Callable[[Change], None]) -> None:
        """Return once ``note`` has taken all changes after ``since`` that can be read by now.

        The journal was read up to ``read`` before.

        Raises Conflict with reason RELIST for a place that is too old, or later than anything, and
        what ``note`` raises as Conflict.
        """
        done = asyncio.get_running_loop().create_future()
        self._waiting.append(_Resume(since=since, read=read, note=note, done=done))
        if self._passing is None:
            self._passing = asyncio.create_task(self._pass())
        await done

    async def close(self) -> None:
        if self._passing is not None:
            self._passing.cancel()
            await asyncio.gather(self._passing, return_exceptions=True)

    async def _pass(self) -> None:
        """Do one pass after the other, until no watcher waits."""
        resumes: list[_Resume] = []
        try:
            while self._waiting:
                resumes, self._waiting = self._waiting, []
                try:
                    await self._read(resumes)
                except Exception as error:  # noqa: BLE001 - each watcher answers for it
                    _fail(resumes, error)
        finally:
            self._passing = None
            for resume in (*resumes, *self._waiting):
                resume.done.cancel()

    async def _read(self, resumes: Sequence[_Resume]) -> None:
        async with self._store.reading() as read:
            bounds = await read.journal.bounds()
        # Such a place was given out before the database was restored.
        late = [resume for resume in resumes if resume.since > bounds.newest]
        _fail(late, relist("the resource version is later than anything that happened"))
        last = min((resume.since for resume in _open(resumes)), default=bounds.newest)
        while open_resumes := _open(resumes):
            size = max(MIN_PART_ENTRIES, MAX_PART_NOTES // len(open_resumes))
            async with self._store.reading() as read:
                entries = await read.journal.read(
                    last,
                    min(size, MAX_PART_ENTRIES),
                    settled=max(resume.read for resume in resumes),
                )
                # Second, because entries that were pruned before the read are missing in it.
                oldest = await read.journal.oldest()
            behind = [resume for resume in open_resumes if max(resume.since, last) < oldest]
            _fail(behind, relist("the resource version is too old"))
            if not entries:
                break
            for entry in entries:
                for resume in open_resumes:
                    resume.take(entry.position, entry.change)
            last = entries[-1].position
            await asyncio.sleep(0)
        for resume in _open(resumes):
            resume.done.set_result(None)


def relist(why: str) -> Conflict:
    """Return a refusal after which a watcher lists anew."""
    return Conflict(f"{why}: list again, and watch from there", reason=RELIST)


def _open(resumes: Sequence[_Resume]) -> list[_Resume]:
    """Return the watchers that still wait."""
    return [resume for resume in resumes if not resume.done.done()]


def _fail(resumes: Sequence[_Resume], error: Exception) -> None:
    for resume in _open(resumes):
        fail(resume.done, error)
