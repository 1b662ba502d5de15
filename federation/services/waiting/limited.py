"""The namespaces with a quota: what waits there waits for another reason than elsewhere.

Must not know how much a quota is.
"""

from __future__ import annotations

from collections.abc import Collection

from federation.services.ports import Store


class LimitedNamespaces:
    """``names`` are as of the last look."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._version = ""
        self.names: Collection[str] = ()

    async def have_changed(self) -> bool:
        """Whether a quota was set since the last look: who waits for one may be placed."""
        async with self._store.reading() as read:
            version = await read.quotas.version()
            if version == self._version:
                return False
            # Later than the version: what changes in between is seen by the next look.
            self.names = await read.quotas.namespaces()
        self._version = version
        return True
