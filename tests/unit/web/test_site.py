"""Addresses beside the page, their sockets, and connections that somebody holds."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import pytest

from federation.certificates import make_certificates
from federation.web import server as web_server
from lab.browser import Browser
from lab.commanded_stores import CommandedStore
from lab.control_planes import RunningControlPlane, running_control_plane
from lab.patience import PATIENCE_SECONDS
from lab.servers import ROOT

# What the first stream that is answered loads on the event loop.
FIRST_STREAM = """
import asyncio, socket, sys, threading
from starlette.responses import StreamingResponse
from federation.web.server import WebServer
from lab.browser import Browser

known = set()

async def site(scope, receive, send):
    async def parts():
        yield b"one"
    known.update(sys.modules)
    await StreamingResponse(parts())(scope, receive, send)

async def main():
    from federation.runtime.addresses import parse_address
    server = WebServer(site, socket.create_server(("127.0.0.1", 0)))
    server.start()
    answer = await Browser(address=parse_address(f"127.0.0.1:{server.port}")).get("/")
    assert answer.status == 200
    print(*(name for name in sys.modules if name not in known))
    await server.stop()

asyncio.run(main())
"""
# The authority is for agents that join from outside; the page and /metrics are not published.
PROBED = (("/healthz", 200), ("/readyz", 200), ("/ca.pem", 404), ("/metrics", 404), ("/ui/", 404))


async def test_alive_says_nothing_about_ready_and_probes_have_a_socket_of_their_own(
    held: RunningControlPlane, commanded: CommandedStore
) -> None:
    assert held.plane.probe_endpoint is not None
    probes = Browser(address=held.plane.probe_endpoint)
    for path, status in (*PROBED, ("/server.key", 404)):
        assert (await probes.get(path)).status == status, path
    commanded.is_reachable = False
    for browser in (probes, Browser(address=held.plane.web_endpoint)):
        assert (await browser.get("/healthz")).status == 200
        answer = await browser.get("/readyz")
        assert (answer.status, answer.headers["cache-control"]) == (503, "no-store")
        assert "database" in answer.body
    commanded.is_reachable = True
    assert (await probes.get("/readyz")).status == 200


async def test_the_ca_is_served_byte_for_byte_where_there_is_one(
    database_url: str, tmp_path: Path
) -> None:
    files = make_certificates(tmp_path / "certs", ["127.0.0.1"])
    tls = {"tls_cert": str(files.cert), "tls_key": str(files.key), "tls_ca": str(files.ca)}
    served = {"probe_listen": "127.0.0.1:0", **tls}
    async with running_control_plane(database_url, tmp_path / "state", **served) as running:
        assert running.plane.probe_endpoint is not None
        for address in (running.plane.web_endpoint, running.plane.probe_endpoint):
            answer = await Browser(address=address).get("/ca.pem")
            assert (answer.status, answer.headers["content-type"]) == (
                200,
                "application/x-pem-file",
            )
            assert answer.body == files.ca.read_text(encoding="ascii")


def test_the_first_stream_waits_for_nothing_to_be_loaded() -> None:
    loaded = subprocess.check_output(
        [sys.executable, "-c", FIRST_STREAM], text=True, cwd=ROOT, timeout=PATIENCE_SECONDS
    )
    assert loaded.split() == []


Reader, Writer = asyncio.StreamReader, asyncio.StreamWriter


async def begun(
    running: RunningControlPlane, said: bytes, own: str = "127.0.0.1"
) -> tuple[Reader, Writer]:
    """A connection from an address on which a request begins and never ends."""
    address = running.plane.web_endpoint
    reader, writer = await asyncio.open_connection(address.host, address.port, local_addr=(own, 0))
    writer.write(said)
    return reader, writer


async def ended(reader: Reader) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        with suppress(ConnectionResetError):
            await reader.read()


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
async def test_a_connection_does_not_last(
    running: RunningControlPlane, monkeypatch: pytest.MonkeyPatch, said: bytes
) -> None:
    monkeypatch.setattr(web_server, "LIFETIME_SECONDS", 0.05)
    reader, writer = await begun(running, said)
    await ended(reader)
    writer.close()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has more than one loopback address")
async def test_held_connections_keep_nobody_out(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The oldest of whoever has most has to go."""
    monkeypatch.setattr(web_server, "PER_ADDRESS", 30)
    monkeypatch.setattr(web_server, "IN_ALL", 40)
    # No connection ends here because of its age.
    monkeypatch.setattr(web_server, "LIFETIME_SECONDS", 2 * PATIENCE_SECONDS)
    async with (
        running_control_plane(database_url, tmp_path) as running,
        AsyncExitStack() as stack,
    ):
        browser = Browser(address=running.plane.web_endpoint)
        readers: dict[str, list[Reader]] = {"127.0.0.2": [], "127.0.0.3": []}
        for own, count in (("127.0.0.2", 35), ("127.0.0.3", 15)):
            for _ in range(count):
                reader, writer = await begun(running, b"GET /healthz HTTP/1.1\r\n", own)
                stack.callback(writer.close)
                readers[own].append(reader)
        assert (await browser.get("/readyz")).status == 200
        for reader in readers["127.0.0.2"][:10]:
            await ended(reader)
        waiting = [asyncio.create_task(each.read()) for each in readers["127.0.0.3"]]
        assert (await browser.get("/readyz")).status == 200
        assert not any(each.done() for each in waiting)
        for each in waiting:
            each.cancel()
