from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from federation.web.server import WebServer
from federation.web.site import make_probe_site, make_site
from lab.patience import PATIENCE_SECONDS
from lab.servers import ROOT

CA = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
# What the first stream that is answered loads on the event loop.
FIRST_STREAM = """
import asyncio, socket, sys, threading
from starlette.responses import StreamingResponse
from federation.web.server import WebServer
from tests.unit.web.test_site import http_get

known = set()

async def site(scope, receive, send):
    async def parts():
        yield b"one"
    known.update(sys.modules)
    await StreamingResponse(parts())(scope, receive, send)

async def main():
    server = WebServer(site, socket.create_server(("127.0.0.1", 0)))
    server.start()
    assert (await http_get(server.port, "/"))[0] == 200
    print(*(name for name in sys.modules if name not in known))
    await server.stop()

asyncio.run(main())
"""
Get = Callable[[str], Awaitable[tuple[int, str, bytes]]]


async def http_get(port: int, path: str) -> tuple[int, str, bytes]:
    """Status, content type and body, as any HTTP/1.1 client would see them."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    head, _, body = answer.partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines[1:])
    return int(lines[0].split()[1]), headers.get("content-type", ""), body


class Readiness:
    reason: str | None = None

    async def why_not(self) -> str | None:
        return self.reason


@pytest.fixture
def readiness() -> Readiness:
    return Readiness()


@pytest.fixture(params=[CA, None], ids=["tls", "plain"])
async def get(
    request: pytest.FixtureRequest, readiness: Readiness
) -> AsyncIterator[tuple[bytes | None, Get]]:
    ca_pem = None if request.param is None else lambda: CA
    site = make_site(ca_pem=ca_pem, why_not_ready=readiness.why_not)
    server = WebServer(site, socket.create_server(("127.0.0.1", 0)))
    server.start()
    yield request.param, lambda path: http_get(server.port, path)
    await server.stop()


async def test_the_ca_is_served_byte_for_byte_and_only_where_there_is_one(
    get: tuple[bytes | None, Get],
) -> None:
    ca, fetch = get
    status, kind, body = await fetch("/ca.pem")
    if ca is None:
        assert status == 404
        return
    assert (status, kind, body) == (200, "application/x-pem-file", ca)


async def test_alive_says_nothing_about_ready(
    get: tuple[bytes | None, Get], readiness: Readiness
) -> None:
    _, fetch = get
    readiness.reason = "the database cannot be reached"
    assert (await fetch("/healthz"))[0] == 200
    status, _, body = await fetch("/readyz")
    assert (status, body) == (503, b"the database cannot be reached\n")
    readiness.reason = None
    assert (await fetch("/readyz"))[0] == 200


async def test_there_is_nothing_else(get: tuple[bytes | None, Get]) -> None:
    _, fetch = get
    assert (await fetch("/"))[0] == 404
    assert (await fetch("/server.key"))[0] == 404


# The authority is for agents that join from outside; the page and /metrics are not published.
PROBED = (("/healthz", 200), ("/readyz", 200), ("/ca.pem", 200), ("/metrics", 404), ("/ui/", 404))


async def test_probes_have_a_socket_of_their_own(readiness: Readiness) -> None:
    server = WebServer(
        make_probe_site(ca_pem=lambda: b"PEM", why_not_ready=readiness.why_not),
        socket.create_server(("127.0.0.1", 0)),
    )
    server.start()
    try:
        for page, status in PROBED:
            assert (await http_get(server.port, page))[0] == status
    finally:
        await server.stop()


def test_the_first_stream_waits_for_nothing_to_be_loaded() -> None:
    loaded = subprocess.check_output(
        [sys.executable, "-c", FIRST_STREAM], text=True, cwd=ROOT, timeout=PATIENCE_SECONDS
    )
    assert loaded.split() == []
