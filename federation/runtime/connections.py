"""Which connections of a server are open, and that no address has many.

Must not know what is said on them.
"""

from __future__ import annotations

import asyncio


class Connections:
    """The open ones of a server by address; a new one takes the place of the oldest.

    A request that is sent at once is answered however many connections are held that send none.
    """

    def __init__(self, *, per_address: int, in_all: int) -> None:
        self._per_address = per_address
        self._in_all = in_all
        self._count = 0
        self._transports: dict[str, dict[asyncio.Transport, None]] = {}

    def opened(self, address: str, transport: asyncio.Transport) -> None:
        own = self._transports.setdefault(address, {})
        if len(own) >= self._per_address:
            self._end_oldest(address)
        elif self._count >= self._in_all:
            self._end_oldest(max(self._transports, key=lambda each: len(self._transports[each])))
        self._transports.setdefault(address, {})[transport] = None
        self._count += 1

    def closed(self, address: str, transport: asyncio.Transport) -> None:
        """May be told twice of one."""
        own = self._transports.get(address, {})
        if transport in own:
            del own[transport]
            self._count -= 1
        if not own:
            self._transports.pop(address, None)

    def _end_oldest(self, address: str) -> None:
        oldest = next(iter(self._transports[address]))
        self.closed(address, oldest)
        oldest.abort()
