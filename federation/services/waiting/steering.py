"""What callers ask of the queue.

Must not decide anything: the pipeline does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from federation.services.journal import Position
from federation.services.ports import Store
from federation.services.waiting_ports import Place, QueuedBinding


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuePage:
    """Waiting bindings in the order in which they are tried; ``is_last``: no other follows.

    Nothing that happened after ``position`` is missed by who follows the journal from there.
    """

    bindings: Sequence[QueuedBinding]
    is_last: bool
    position: Position


class Queueing:
    """The queue, for callers."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def list(
        self, namespace: str, priority: int | None, after: Place | None, limit: int
    ) -> QueuePage:
        """Those that come after ``after``; of one namespace, and of one priority, if given."""
        async with self._store.reading() as read:
            position = await read.journal.position()
            found = await read.waiting.page(namespace, priority, after, limit + 1)
        return QueuePage(bindings=found[:limit], is_last=len(found) <= limit, position=position)
