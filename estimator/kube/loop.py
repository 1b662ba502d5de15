"""Watchers and the loop they report to: threads that are started and stopped with it.

Must not know what is watched.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from estimator.kube.reading import Change
from estimator.kube.watch import Watcher

STOP_SECONDS: Final = 5.0

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopSink(Generic[Value]):
    """Hands what a watcher's thread sees to the loop that owns what is made of it."""

    loop: asyncio.AbstractEventLoop
    on_replace: Callable[[list[Value]], None]
    on_put: Callable[[Value], None]
    on_remove: Callable[[Value], None]
    on_contact: Callable[[bool], None]

    def replace(self, values: list[Value]) -> None:
        self.loop.call_soon_threadsafe(self.on_replace, values)

    def apply(self, changes: list[Change[Value]]) -> None:
        self.loop.call_soon_threadsafe(self._apply, changes)

    def contact(self, *, lost: bool) -> None:
        self.loop.call_soon_threadsafe(self.on_contact, lost)

    def _apply(self, changes: list[Change[Value]]) -> None:
        for change in changes:
            if change.value is None:
                continue
            if change.is_removal:
                self.on_remove(change.value)
            else:
                self.on_put(change.value)


async def run_watchers(watchers: Sequence[Watcher[Any]]) -> None:
    """A thread for each of them, until cancelled."""
    threads = [threading.Thread(target=watcher.run, daemon=True) for watcher in watchers]
    for thread in threads:
        thread.start()
    try:
        await asyncio.get_running_loop().create_future()
    finally:
        for watcher in watchers:
            watcher.stop()
        # They still hand things to this loop: it must not end before them.
        joins = (asyncio.to_thread(thread.join, STOP_SECONDS) for thread in threads)
        await asyncio.gather(*joins)
