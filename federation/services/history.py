"""The history of decisions: what was decided, when, and why.

Must not decide anything, nor unpack traces for a list.
"""

from __future__ import annotations

from federation.services.listed_decisions import DecisionFilter, DecisionPage, DecisionPlace
from federation.services.ports import Store


class DecisionHistory:
    """Decisions as they were made."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def list_decisions(
        self, wanted: DecisionFilter, after: DecisionPlace | None, limit: int
    ) -> DecisionPage:
        """The newest first, those that come after ``after``."""
        async with self._store.reading() as read:
            return await read.decisions.page(wanted, after, limit)
