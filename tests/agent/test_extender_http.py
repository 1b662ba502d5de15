"""The extender over HTTP: what hostile, old and impatient callers get, and that it goes on."""

from __future__ import annotations

import asyncio
import gzip
import io
import logging
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest

from estimator.servers import extender_http as module
from estimator.servers.extender_http import LINES_A_PERIOD, MAX_BODY_BYTES, PERIOD_SECONDS
from lab.kubeapi.documents import node, pod
from lab.patience import PATIENCE_SECONDS
from tests.agent.agents import Clock, serving

Reader, Writer = asyncio.StreamReader, asyncio.StreamWriter


@pytest.fixture
async def port(tmp_path: Path) -> AsyncIterator[int]:
    """The port of an agent in a cluster of one node."""
    async with serving(tmp_path, node("a")) as member:
        yield member.ports["extender_listen"]


async def post(port: int, verb: str, body: Any) -> tuple[int, Any]:
    async with aiohttp.ClientSession() as session:
        sent = {"data": body} if isinstance(body, bytes) else {"json": body}
        async with session.post(f"http://127.0.0.1:{port}/{verb}", **sent) as response:
            return response.status, await response.json(content_type=None)


async def is_well(port: int) -> bool:
    status, answer = await post(port, "filter", {"Pod": pod("p"), "NodeNames": ["a"]})
    return status == 200 and answer["NodeNames"] == ["a"]


def records_of(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """What the extender has logged."""
    return [record for record in caplog.records if record.name.startswith("estimator.servers")]


NO_BODIES = [
    b"",
    b"not json",
    b"[]",
    b'{"NodeNames": ["a"]}',
    b'{"Pod": 3, "NodeNames": ["a"]}',
    b'{"Pod": {"metadata": {"name": "p"}}, "NodeNames": "n1"}',
    b'{"Pod": {"metadata": {}, "spec": {"overhead": {"cpu": "much"}}}, "NodeNames": ["a"]}',
    b'{"Pod": ' + b"[" * 100_000,
    b"\xff\xfe",
]


async def test_wrong_body_is_an_error_the_caller_understands(port: int) -> None:
    for body in NO_BODIES:
        status, answer = await post(port, "filter", body)
        assert status == 200
        assert answer["Error"]
        assert set(answer) == {"Error"}
        status, answer = await post(port, "prioritize", body)
        assert status == 400
        assert answer["Error"]
        assert await is_well(port)


POST = b"POST /filter HTTP/1.1\r\nHost: x\r\n"
NO_REQUESTS = {
    "another protocol": b"\x16\x03\x01\x02\x00\x01\xff\xfe\r\n\r\n",
    "no method": b"G\xffT / HTTP/1.1\r\n\r\n",
    "no version": b"GET / HTTP/9.9\r\n\r\n",
    "no target": b"GET http://[::1/x HTTP/1.1\r\nHost: x\r\n\r\n",
    "after a good one": b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n\x1b[2Jno\r\n\r\n",
    "a line without end": b"a" * 200_000,
    "a large header": POST + b"X-A: " + b"a" * 20_000 + b"\r\n\r\n",
    "many headers": POST + b"X-A: b\r\n" * 5_000 + b"\r\n",
    "no header": POST + b"X-A\xff: \x00b\r\n\r\n",
    "no length": POST + b"Content-Length: abc\r\n\r\n",
    "two lengths": POST + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
    "no chunk": POST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
}


async def sent(port: int, content: bytes) -> bytes:
    """What comes back for these bytes until the server hangs up."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(content)
        return await reader.read()
    finally:
        writer.close()


async def test_what_is_no_request_is_one_line(port: int, caplog: pytest.LogCaptureFixture) -> None:
    for name, content in NO_REQUESTS.items():
        caplog.clear()
        caplog.set_level(logging.DEBUG)
        answers = await sent(port, content)
        assert b" 400 Bad Request\r\n" in answers
        refused = [record for record in records_of(caplog) if "refused" in record.getMessage()]
        assert len(refused) == 1, name
        assert refused[0].getMessage().isprintable()
        assert not any(record.exc_info for record in records_of(caplog))
        assert await is_well(port)


async def test_half_a_request_is_not_worth_a_line(
    port: int, caplog: pytest.LogCaptureFixture
) -> None:
    for half in (b"POST /filter HT", POST + b"X", POST + b"Content-Length: 100\r\n\r\nabc"):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(half)
        writer.write_eof()
        assert await reader.read() == b""
        writer.close()
    assert await is_well(port)
    assert records_of(caplog) == []


async def test_compressed_body_is_not_unpacked(port: int) -> None:
    body = gzip.compress(b" " * (3 * MAX_BODY_BYTES))
    head = b"Connection: close\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(body)
    answer = await sent(port, POST + head + body)
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert b"not what an extender is sent" in answer


async def test_many_that_are_no_requests_are_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=clock))
    async with serving(tmp_path, node("a")) as member:
        port = member.ports["extender_listen"]
        for _ in range(LINES_A_PERIOD + 5):
            await sent(port, NO_REQUESTS["no method"])
        assert len(records_of(caplog)) == LINES_A_PERIOD
        clock.now += PERIOD_SECONDS
        await post(port, "filter", b"")
    counted, line = (record.getMessage() for record in records_of(caplog)[LINES_A_PERIOD:])
    assert counted == "extender: 5 more were refused"
    assert line.startswith("extender: refused: filter: ")


@pytest.mark.expected_errors("Error handling request")
async def test_our_own_fault_keeps_its_traceback(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object) -> bytes:
        raise KeyError("ours")

    monkeypatch.setattr("estimator.servers.extender.Extender.filter", fail)
    async with serving(tmp_path, node("a")) as member:
        head = POST + b"Connection: close\r\nContent-Length: 2\r\n\r\n"
        answer = await sent(member.ports["extender_listen"], head + b"{}")
    assert answer.startswith(b"HTTP/1.1 500 ")
    (record,) = records_of(caplog)
    assert record.exc_info is not None


async def held(port: int, said: bytes) -> tuple[Reader, Writer]:
    """A connection on which a request begins and never ends."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(said)
    await writer.drain()
    return reader, writer


async def ended(reader: Reader) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        with suppress(ConnectionResetError):
            await reader.read()


@pytest.mark.parametrize(
    "said", [b"", b"POST /filter HT", POST, b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\nPOST /fil"]
)
async def test_a_connection_without_a_whole_request_does_not_last(
    port: int, monkeypatch: pytest.MonkeyPatch, said: bytes
) -> None:
    monkeypatch.setattr(module, "IDLE_SECONDS", 0.05)
    reader, writer = await held(port, said)
    await ended(reader)
    writer.close()


async def test_held_connections_keep_nobody_out(port: int) -> None:
    connections = [await held(port, POST) for _ in range(module.CONNECTIONS_PER_ADDRESS + 5)]
    assert await is_well(port)
    # The oldest had to go.
    await ended(connections[0][0])
    for _, writer in connections:
        writer.close()


async def test_slow_bodies_keep_nobody_from_being_answered(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "READ_SECONDS", 2 * PATIENCE_SECONDS)
    slow = POST + b"Content-Length: 100\r\n\r\n{"
    connections = [await held(port, slow) for _ in range(2 * module.MAX_CONCURRENT)]
    async with asyncio.timeout(PATIENCE_SECONDS):
        assert await is_well(port)
    for _, writer in connections:
        writer.close()


async def test_body_that_is_too_large_is_refused(port: int) -> None:
    body = io.BytesIO(b" " * (3 * MAX_BODY_BYTES))
    async with aiohttp.ClientSession() as session:
        url = f"http://127.0.0.1:{port}/filter"
        async with session.post(url, data=body) as response:
            assert response.status == 413
    assert await is_well(port)


async def test_unknown_verb_and_method(port: int) -> None:
    status, answer = await post(port, "evict", {})
    assert status == 404
    assert "filter, prioritize, preempt, bind" in answer["Error"]
    async with aiohttp.ClientSession() as session:
        async with session.get(f"http://127.0.0.1:{port}/filter") as response:
            assert response.status == 405
        async with session.get(f"http://127.0.0.1:{port}/healthz") as response:
            assert response.status == 200


async def test_many_callers_at_once(port: int) -> None:
    assert all(await asyncio.gather(*(is_well(port) for _ in range(40))))
