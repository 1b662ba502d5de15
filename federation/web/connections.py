"""HTTP connections that do not last, and of which no address has many.

Must not know what is asked on them.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

# All pages are small, and asked for one by one: whoever needs longer keeps a connection for itself.
LIFETIME_SECONDS = 10.0
PER_ADDRESS = 100
IN_ALL = 500


class Connections:
    """The open ones of a server by address; a new one takes the place of the oldest.

    A request that is sent at once is answered however many connections are held that send none.
    """

    def __init__(self, *, per_address: int = PER_ADDRESS, in_all: int = IN_ALL) -> None:
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


def protocol_of(connections: Connections) -> type[asyncio.Protocol]:
    """What uvicorn is to speak on connections that are counted there."""

    class Brief(H11Protocol):
        _address = ""
        _end: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            peer = transport.get_extra_info("peername")
            self._address = str(peer[0]) if peer else ""
            self._end = self.loop.call_later(LIFETIME_SECONDS, transport.abort)
            connections.opened(self._address, transport)

        def connection_lost(self, exc: Exception | None) -> None:
            if self._end is not None:
                self._end.cancel()
            connections.closed(self._address, self.transport)
            super().connection_lost(exc)

    return Brief
