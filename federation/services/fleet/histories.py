"""Detection of a database that went back: restored, copied, or failed over with losses.

Must not change the fleet: the caller drops it, and reads everything from the store again.
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
    """A check that the last journal entry that was read is still in the database.

    Once it is gone, ``why_broken`` says how that was noticed, and nothing in memory counts until
    another history has begun.
    """

    def __init__(self, store: Store) -> None:
        self.why_broken = ""
        self._store = store
        # Histories that this process has seen, the newest last. Another process began any other.
        self._ids: list[str] = []
        self._bookmark: Bookmark | None = None
        self._checked_at = -math.inf
        self._has_trusted_agent = False

    @property
    def history(self) -> str:
        """The id of the newest history; empty before ``begin``."""
        return self._ids[-1] if self._ids else ""

    async def begin(self) -> None:
        """Take or begin the database's history before anything is read. Raises Unavailable.

        The database may have gone back while no control plane ran.
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
            _log("it was restored, copied or failed over while no control plane ran")

    async def check(self, read: Transaction, position: Position) -> None:
        """Raise Unavailable if entries before ``position`` are gone from the database.

        Look at most once a second, and on every new connection.
        """
        if self.why_broken:
            # Raises another error for an empty database, which has to be restored first.
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
            self.broke(f"entry {self._bookmark.position} of the journal is gone")
        if self.why_broken:
            raise Unavailable(WENT_BACK)
        if not self._ids:
            self._ids.append(history.id)
        self._bookmark = await read.histories.bookmark(position)
        self._checked_at = monotonic()
        read.histories.known_to.add(self)

    def believe(self, why: str) -> bool:
        """Trust an agent that knows a later state than the database; return whether it is trusted.

        Only the first one is: an agent may lie, and every agent has to report anew for it.
        """
        if self._has_trusted_agent:
            return False
        self._has_trusted_agent = True
        self.broke(why)
        return True

    def broke(self, why: str) -> None:
        """Note and log that the database went back, and how that was noticed."""
        if not self.why_broken:
            self.why_broken = why
            _log(why)

    async def mend(self) -> str:
        """Begin another history unless a process did so; return its id. Raises Unavailable.

        The caller reads everything anew, and then calls ``mended`` with the id.
        """
        async with self._store.transaction() as tx:
            history = await tx.histories.lock()
            begun = history.id
            if history.is_moved or begun in self._ids or not self._ids:
                begun = await tx.histories.forget(new_nonce())
        self._bookmark = None
        return begun

    def mended(self, begun: str) -> None:
        """Note that everything was read anew under this history."""
        self._ids.append(begun)
        self.why_broken = ""


def _log(why: str) -> None:
    logger.error(
        "the database went back to an earlier state: everything is read anew, and nothing is "
        "promised in a cluster until its agent has reported again",
        extra={"fields": {"why": why, "check": "tokens that were revoked may be valid again"}},
    )
