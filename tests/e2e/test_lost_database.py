"""A control plane whose connection to the database falls silent, while others go on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from sqlalchemy import make_url

from federation.v1.scheduling_pb2 import OUTCOME_SCHEDULED
from lab.control_planes import report, running_control_plane
from tests.api.calls import binding, scheduled

# Generous bounds on hanging: 30 s of held locks were the fault.
ANSWERED_SECONDS = 15.0
COMMIT = b"COMMIT"


class Proxy:
    """Passes bytes between control planes and the database, until it falls silent."""

    def __init__(self, database_url: str) -> None:
        self._url = make_url(database_url)
        self._writers: list[asyncio.StreamWriter] = []
        self._passing = asyncio.Event()
        self._passing.set()
        self.silent_at_commit = False
        self.fell_silent = asyncio.Event()
        self.url = ""

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Proxy]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        dialled = self._url.set(host="127.0.0.1", port=port)
        self.url = dialled.difference_update_query(["host", "port"]).render_as_string(
            hide_password=False
        )
        try:
            yield self
        finally:
            self.back()
            server.close()
            for writer in self._writers:
                writer.close()
            await server.wait_closed()

    def fall_silent(self) -> None:
        self._passing.clear()
        self.fell_silent.set()

    def back(self) -> None:
        """What was under way is lost; who dials again gets through."""
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()
        self._passing.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host = str(self._url.query.get("host") or self._url.host)
        port = int(str(self._url.query.get("port") or self._url.port or 5432))
        if host.startswith("/"):
            to, back = await asyncio.open_unix_connection(f"{host}/.s.PGSQL.{port}")
        else:
            to, back = await asyncio.open_connection(host, port)
        self._writers += [writer, back]
        with suppress(OSError, asyncio.CancelledError):
            await asyncio.gather(self._pass_on(reader, back), self._pass_on(to, writer))
        back.close()
        writer.close()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            if self.silent_at_commit and COMMIT in data:
                self.silent_at_commit = False
                self.fall_silent()
            await self._passing.wait()
            writer.write(data)
            await writer.drain()
        writer.close()


@pytest.mark.expected_errors("Exception closing connection")
async def test_a_plane_that_is_cut_off_in_a_commit_does_not_hold_up_the_others(
    fresh_database_url: str, tmp_path: Path
) -> None:
    async with (
        Proxy(fresh_database_url).running() as proxy,
        running_control_plane(fresh_database_url, tmp_path) as there,
        there.connected("member1", report=report()),
        running_control_plane(proxy.url, tmp_path) as here,
    ):
        first = await scheduled(here, binding("first", replicas=1))
        assert first.decision.outcome == OUTCOME_SCHEDULED
        proxy.silent_at_commit = True
        lost = asyncio.create_task(scheduled(here, binding("lost", replicas=1)))
        await proxy.fell_silent.wait()
        async with asyncio.timeout(ANSWERED_SECONDS):
            answer = await scheduled(there, binding("other", replicas=1))
        assert answer.decision.outcome == OUTCOME_SCHEDULED
        lost.cancel()
        await asyncio.gather(lost, return_exceptions=True)
