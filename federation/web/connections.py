"""HTTP connections that do not last, and of which no address has many.

Must not know what is asked on them.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from federation.runtime.connections import Connections

# All pages are small, and asked for one by one: whoever needs longer keeps a connection for itself.
LIFETIME_SECONDS = 10.0
PER_ADDRESS = 100
IN_ALL = 500


def protocol_of(connections: Connections) -> type[asyncio.Protocol]:
    """What uvicorn is to speak on connections that are counted there."""

    class Brief(H11Protocol):
        _address = ""
        _end: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            peer = transport.get_extra_info("peername")
            self._address = str(peer[0]) if peer else ""
            # Who answers may use it for longer: ``request.state.keep_open``.
            self.app_state = {**self.app_state, "keep_open": self.keep_open}
            self.keep_open(LIFETIME_SECONDS)
            connections.opened(self._address, transport)

        def keep_open(self, seconds: float) -> None:
            """It ends so much later than now."""
            if self._end is not None:
                self._end.cancel()
            self._end = self.loop.call_later(seconds, self.transport.abort)

        def connection_lost(self, exc: Exception | None) -> None:
            if self._end is not None:
                self._end.cancel()
            connections.closed(self._address, self.transport)
            super().connection_lost(exc)
            # It leads back here: what is in a cycle as the garbage collector looks is never freed.
            self.app_state = {}

    return Brief
