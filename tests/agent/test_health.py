"""What the kubelet and Prometheus are told, and who cannot keep them out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import pytest

from estimator.servers.health import MAX_CONNECTIONS, REQUEST_BYTES
from estimator.sight import TOLERATED_SECONDS
from lab.kubeapi.documents import node
from lab.kubeapi.server import ADMIN_TOKEN
from lab.patience import PATIENCE_SECONDS, until
from tests.agent.agents import Member, serving

PORTS = ("health_listen", "extender_listen")


@pytest.fixture
async def member(tmp_path: Path) -> AsyncIterator[Member]:
    async with serving(tmp_path, node("a"), ports=PORTS) as member:
        yield member


async def answer(member: Member, sent: bytes | str) -> bytes:
    """What comes back for these bytes, or for a path, until the agent hangs up."""
    reader, writer = await asyncio.open_connection("127.0.0.1", member.ports["health_listen"])
    head = sent if isinstance(sent, bytes) else f"GET {sent} HTTP/1.1\r\nHost: a\r\n\r\n".encode()
    writer.write(head)
    try:
        return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()


async def test_it_tells_live_from_ready(member: Member) -> None:
    async def ready() -> bytes:
        member.clock.now += TOLERATED_SECONDS / 5
        return await answer(member, "/readyz")

    assert (await until(ready, lambda got: b" 200 " in got)).count(b"\r\n\r\n") == 1
    page = await answer(member, "/metrics")
    assert page.startswith(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4")
    assert b"\nfedsched_agent_blind 0.0\n" in page
    for sent in (b"\r\n\r\n", b"POST /livez HTTP/1.1\r\n\r\n", b"\xff\r\n\r\n", "/elsewhere"):
        assert (await answer(member, sent)).startswith(b"HTTP/1.1 404 ")
    # It sees its cluster no more: it lives, and is not ready.
    server = member.server
    await asyncio.to_thread(server.wait_for_watches, "nodes", "pods", "resourcequotas")
    server.tokens = {"second": server.tokens[ADMIN_TOKEN]}
    server.end_watches()
    await until(ready, lambda got: b" 503 Service Unavailable\r\n" in got)
    assert (await answer(member, "/livez")).startswith(b"HTTP/1.1 200 ")


async def test_connections_that_ask_nothing_keep_nobody_out(
    member: Member, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The oldest has to go at once: time ends none of them here.
    monkeypatch.setattr("estimator.servers.health.REQUEST_SECONDS", 10 * PATIENCE_SECONDS)
    assert await answer(member, b"x" * (2 * REQUEST_BYTES)) == b""
    async with AsyncExitStack() as stack:
        held = []
        for _ in range(MAX_CONNECTIONS + 5):
            port = member.ports["health_listen"]
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            stack.callback(writer.close)
            writer.write(b"GET /livez HTTP/1.1\r\n")
            held.append(reader)
        assert (await answer(member, "/livez")).startswith(b"HTTP/1.1 200 ")
        for reader in held[:5]:
            with suppress(ConnectionError):
                assert await asyncio.wait_for(reader.read(), PATIENCE_SECONDS) == b""
