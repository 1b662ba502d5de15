from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from federation.runtime.connections import Connections
from federation.web import connections as module
from federation.web.server import WebServer
from federation.web.site import make_probe_site
from tests.unit.web.test_site import Readiness, http_get

SECONDS = 60.0


@asynccontextmanager
async def serving() -> AsyncIterator[int]:
    server = WebServer(
        make_probe_site(ca_pem=None, why_not_ready=Readiness().why_not),
        socket.create_server(("127.0.0.1", 0)),
    )
    server.start()
    try:
        yield server.port
    finally:
        await server.stop()


async def held(port: int, said: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection on which a request begins and never ends."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(said)
    return reader, writer


async def ended(reader: asyncio.StreamReader) -> None:
    async with asyncio.timeout(SECONDS):
        try:
            await reader.read()
        except ConnectionResetError:
            return


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"GET /healthz HT",
        b"GET /healthz HTTP/1.1\r\nHost: x\r\n",
        b"POST /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nx",
        b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\nGET /healthz HT",
    ],
)
async def test_a_connection_does_not_last(monkeypatch: pytest.MonkeyPatch, said: bytes) -> None:
    monkeypatch.setattr(module, "LIFETIME_SECONDS", 0.05)
    async with serving() as port:
        reader, writer = await held(port, said)
        await ended(reader)
        writer.close()


async def test_held_connections_keep_nobody_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LIFETIME_SECONDS", SECONDS)
    async with AsyncExitStack() as stack:
        port = await stack.enter_async_context(serving())
        readers = []
        for _ in range(module.PER_ADDRESS + 20):
            reader, writer = await held(port, b"GET /healthz HTTP/1.1\r\n")
            stack.callback(writer.close)
            readers.append(reader)
        assert (await http_get(port, "/readyz"))[0] == 200
        # The oldest had to go.
        await ended(readers[0])


class Transport:
    """Of a connection that may be aborted."""

    is_aborted = False

    def abort(self) -> None:
        self.is_aborted = True


def test_the_oldest_of_whoever_has_most_has_to_go() -> None:
    connections = Connections(per_address=3, in_all=4)
    transports: dict[str, Any] = {name: Transport() for name in ("a1", "a2", "a3", "b1", "c1")}
    for name, transport in transports.items():
        connections.opened(name[0], transport)
    assert [name for name, each in transports.items() if each.is_aborted] == ["a1"]


def test_a_connection_that_ended_leaves_its_place() -> None:
    connections = Connections(per_address=1, in_all=10)
    first: Any = Transport()
    second: Any = Transport()
    connections.opened("a", first)
    connections.closed("a", first)
    connections.closed("a", first)
    connections.opened("a", second)
    assert not first.is_aborted
