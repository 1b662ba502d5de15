"""Whether the database is still the one whose history this control plane knows.

Must not apply anything: who asks drops what it knows, and reads everything anew.
"""

from __future__ import annotations

import logging
import math
from time import monotonic

from federation.model.errors import Unavailable
from federation.services.journal import Bookmark, Position, new_nonce
from federation.services.ports import Store, Transaction

CHECK_SECONDS = 1.0
WENT_BACK = (
    "The database is in an earlier state than this control plane knew: everything is read anew, "
    "and nothing is promised in a cluster until its agent has reported again; try again later."
)

logger = logging.getLogger(__name__)


class Continuity:
    """Checks by what was read last, and begins another history once that is gone.

    ``why_broken`` says what was seen; from then on nothing in memory may be relied on.
    """

    def __init__(self, store: Store) -> None:
        self.why_broken = ""
        self._store = store
        # All that were ever seen, the newest last: another one was begun by somebody else.
        self._ids: list[str] = []
        self._bookmark: Bookmark | None = None
        self._checked_at = -math.inf
        self._has_believed = False

    @property
    def history(self) -> str:
        """The id of the history that is known; empty before ``begin``."""
        return self._ids[-1] if self._ids else ""

    async def begin(self) -> None:
        """At a start, before anything is read: what happened meanwhile nobody saw. Raises
        Unavailable.
        """
        async with self._store.transaction() as tx:
            await tx.histories.ensure()
            history = await tx.histories.lock()
            if history.is_moved:
                begun = await tx.histories.forget(new_nonce())
            else:
                begun = history.id
                await tx.histories.settle()
            self._bookmark = await tx.histories.bookmark(await tx.journal.position())
        self._ids.append(begun)
        if history.is_moved:
            _tell("it was restored, copied or failed over while no control plane ran")

    async def check(self, read: Transaction, position: Position) -> None:
        """Every second, and with every connection that is new. Raises Unavailable when what was
        read up to a position is not there any more.
        """
        if self.why_broken:
            # One that was emptied meanwhile says so: it has to be restored first.
            await read.histories.get()
            raise Unavailable(WENT_BACK)
        is_late = monotonic() - self._checked_at >= CHECK_SECONDS
        if not is_late and self in read.histories.known_to:
            return
        history = await read.histories.get()
        if self._ids and history.id != self._ids[-1]:
            self.broke("another control plane began another history")
        elif history.is_moved:
            self.broke("it is another database than before, or another server leads")
        elif self._bookmark and not await read.histories.holds(self._bookmark):
            self.broke(f"entry {self._bookmark.position.id} of the journal is gone")
        if self.why_broken:
            raise Unavailable(WENT_BACK)
        if not self._ids:
            self._ids.append(history.id)
        self._bookmark = await read.histories.bookmark(position)
        self._checked_at = monotonic()
        read.histories.known_to.add(self)

    def believe(self, why: str) -> bool:
        """An agent knows what the database does not know. Once: an agent may be lying, and
        everybody has to report anew.
        """
        if self._has_believed:
            return False
        self._has_believed = True
        self.broke(why)
        return True

    def broke(self, why: str) -> None:
        if not self.why_broken:
            self.why_broken = why
            _tell(why)

    async def mend(self) -> str:
        """Begin another history, unless somebody did; its id, for ``mended`` once everything was
        read anew. Raises Unavailable.
        """
        async with self._store.transaction() as tx:
            history = await tx.histories.lock()
            begun = history.id
            if history.is_moved or begun in self._ids or not self._ids:
                begun = await tx.histories.forget(new_nonce())
        self._bookmark = None
        return begun

    def mended(self, begun: str) -> None:
        self._ids.append(begun)
        self.why_broken = ""


def _tell(why: str) -> None:
    logger.error(
        "the database went back to an earlier state: everything is read anew, and nothing is "
        "promised in a cluster until its agent has reported again",
        extra={"fields": {"why": why, "check": "tokens that were revoked may be valid again"}},
    )
