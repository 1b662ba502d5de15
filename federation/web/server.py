"""The HTTP ports of a control plane, as guests on a loop that belongs to somebody else.

Must not touch signals, logging configuration or the loop's life.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from federation.model.errors import Unavailable
from federation.runtime.addresses import Address
from federation.runtime.connections import Connections

# What is needed for the first file or stream that is answered, and takes a tenth of a second to
# load: nobody else on the loop is to wait for that.
STREAMING = "anyio._backends._asyncio"
STOP_SECONDS = 2
KEEP_ALIVE_SECONDS = 5
# So many connections wait to be taken; who opens more than that at once dials again.
WAITING_CONNECTIONS = 2048
# The next one is taken in the next step of the loop, after what others wait for: each takes 0.2 ms.
TAKEN_AT_ONCE = 1


class _Listener(socket.socket):
    """Event loops take as many connections in one step as they let wait."""

    def listen(self, backlog: int = WAITING_CONNECTIONS, /) -> None:
        super().listen(max(backlog, WAITING_CONNECTIONS))


def listening_on(address: Address) -> socket.socket:
    """Raises Unavailable."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    try:
        made = socket.create_server((address.host, address.port), family=family)
        return _Listener(fileno=made.detach())
    except OSError as error:
        raise Unavailable(f"cannot listen on {address}: {error.strerror or error}") from error


class _Guest(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """The process's signals are handled where the process is."""
        yield


class WebServer:
    """Serves an application on a bound socket between ``start`` and ``stop``."""

    def __init__(self, site: ASGIApp, listener: socket.socket) -> None:
        self._listener = listener
        self._server = _Guest(
            uvicorn.Config(
                site,
                lifespan="off",
                ws="none",
                log_config=None,
                access_log=False,
                server_header=False,
                # Tokens are bound to the address that asks, whatever it says of others.
                proxy_headers=False,
                backlog=TAKEN_AT_ONCE,
                timeout_keep_alive=KEEP_ALIVE_SECONDS,
                timeout_graceful_shutdown=STOP_SECONDS,
                # What strangers send that is no HTTP is their affair.
                log_level="error",
                http=protocol_of(Connections(per_address=PER_ADDRESS, in_all=IN_ALL)),
            )
        )
        self._serving: asyncio.Task[None] | None = None

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    def start(self) -> None:
        """Connections are queued by the socket from its making on: nothing to wait for."""
        self._serving = asyncio.create_task(self._serve())

    async def _serve(self) -> None:
        await asyncio.to_thread(import_module, STREAMING)
        await self._server.serve(sockets=[self._listener])

    async def stop(self) -> None:
        if self._serving is None:
            return
        self._server.should_exit = True
        with suppress(TimeoutError):
            async with asyncio.timeout(STOP_SECONDS + 1):
                await self._serving
        self._serving = None
        self._listener.close()


class WebPorts:
    """The addresses that are served, until they are stopped."""

    def __init__(self) -> None:
        self._servers: list[WebServer] = []

    def serve(self, address: Address, site: ASGIApp) -> Address:
        """Where it is served, with the port that was chosen. Raises Unavailable."""
        server = WebServer(site, listening_on(address))
        server.start()
        self._servers.append(server)
        return Address(host=address.host, port=server.port)

    async def stop(self) -> None:
        for each in self._servers:
            await each.stop()


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
