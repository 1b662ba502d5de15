"""What the kubelet is told, over a real socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from estimator.health import MAX_CONNECTIONS, REQUEST_BYTES, HealthServer


@asynccontextmanager
async def serving(*, alive: bool = True, ready: bool = True) -> AsyncIterator[int]:
    server = HealthServer(is_alive=lambda: alive, is_ready=lambda: ready)
    yield await server.start("127.0.0.1", 0)
    server.stop()


async def answer(port: int, sent: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(sent)
    try:
        return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()


@pytest.mark.parametrize(
    ("path", "alive", "ready", "status"),
    [
        ("/livez", True, False, 200),
        ("/livez", False, True, 503),
        ("/readyz", True, False, 503),
        ("/readyz", True, True, 200),
        ("/metrics", True, True, 404),
    ],
)
async def test_it_tells_live_from_ready(
    path: str, *, alive: bool, ready: bool, status: int
) -> None:
    async with serving(alive=alive, ready=ready) as port:
        got = await answer(port, f"GET {path} HTTP/1.1\r\nHost: agent\r\n\r\n".encode())
    assert got.startswith(f"HTTP/1.1 {status} ".encode())
    assert got.count(b"\r\n\r\n") == 1


@pytest.mark.parametrize("sent", [b"\r\n\r\n", b"POST /livez HTTP/1.1\r\n\r\n", b"\xff\r\n\r\n"])
async def test_what_is_no_question_is_not_found(sent: bytes) -> None:
    async with serving() as port:
        assert (await answer(port, sent)).startswith(b"HTTP/1.1 404 ")


async def test_metrics_are_told_where_there_are_some() -> None:
    page = b"# TYPE writes counter\nwrites 1.0\n"
    server = HealthServer(lambda: True, lambda: True, lambda: (page, "text/plain; version=0.0.4"))
    port = await server.start("127.0.0.1", 0)
    got = await answer(port, b"GET /metrics HTTP/1.1\r\n\r\n")
    assert got.startswith(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\n")
    assert got.endswith(page)
    server.stop()


async def test_a_head_without_end_is_dropped_and_the_next_is_answered() -> None:
    async with serving() as port:
        assert await answer(port, b"x" * (2 * REQUEST_BYTES)) == b""
        assert (await answer(port, b"GET /livez HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 200 ")


async def test_connections_that_ask_nothing_keep_nobody_out() -> None:
    async with serving() as port, AsyncExitStack() as stack:
        held = []
        for _ in range(MAX_CONNECTIONS + 5):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            stack.callback(writer.close)
            writer.write(b"GET /livez HTTP/1.1\r\n")
            held.append(reader)
        assert (await answer(port, b"GET /livez HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
        # The oldest had to go at once: time alone would let all of them go together.
        ended = [asyncio.create_task(reader.read()) for reader in held]
        done, waiting = await asyncio.wait(ended, return_when=asyncio.FIRST_COMPLETED)
        assert ended[0] in done
        assert waiting
        for task in waiting:
            task.cancel()
