"""What open pages load anew, drawn once for all who may see the same.

Must not know who asks: a fragment is made of its view, and of nothing else.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from federation.model.access import Role, Scope
from federation.services.ports import Clock

# Pages hear of changes at most every six seconds, so that this makes them little older.
SHARED_SECONDS: Final = 2.0
MOST_FRAGMENTS: Final = 100


class SharedView(NamedTuple):
    """What is looked at, and by whom as far as that changes what is seen. ``role`` is None for who
    gave no token.
    """

    path: str
    query: bytes
    role: Role | None
    scope: Scope


class _Drawing(NamedTuple):
    at: float
    work: asyncio.Future[str]

    def is_new_at(self, now: float) -> bool:
        """What is not drawn yet is not drawn twice, however long it takes."""
        return not self.work.done() or 0 <= now - self.at < SHARED_SECONDS


class Fragments:
    """Those of the last moments; of too many the oldest are forgotten."""

    def __init__(self, clock: Clock, draw: Callable[[SharedView], Awaitable[str]]) -> None:
        self._clock = clock
        self._draw = draw
        self._newest: OrderedDict[SharedView, _Drawing] = OrderedDict()

    async def find(self, view: SharedView) -> str:
        """Raises what drawing it raises."""
        now = self._clock.now()
        drawing = self._newest.get(view)
        if drawing is None or not drawing.is_new_at(now):
            drawing = _Drawing(now, asyncio.ensure_future(self._draw(view)))
            drawing.work.add_done_callback(lambda work: self._ended(view, work))
            self._newest[view] = drawing
            self._newest.move_to_end(view)
            self._forget(now)
        # Who gives up must not take it from the others.
        return await asyncio.shield(drawing.work)

    def _forget(self, now: float) -> None:
        """What is old, or too much."""
        while len(self._newest) > MOST_FRAGMENTS or not self._oldest.is_new_at(now):
            self._newest.popitem(last=False)

    @property
    def _oldest(self) -> _Drawing:
        return next(iter(self._newest.values()))

    def _ended(self, view: SharedView, work: asyncio.Future[str]) -> None:
        """What could not be drawn is nobody else's answer."""
        failed = work.cancelled() or work.exception() is not None
        if failed and (drawing := self._newest.get(view)) and drawing.work is work:
            del self._newest[view]
