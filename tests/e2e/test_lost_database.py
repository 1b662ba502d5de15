"""A control plane whose connection to the database falls silent, while others go on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import grpc
import pytest
from sqlalchemy import make_url

from federation import app
from federation.v1.clusters_pb2 import ListClustersRequest
from federation.v1.resource_pb2 import (
    ObjectMeta,
    ObjectReference,
    Placement,
    ReplicaRequirements,
    ResourceBinding,
    ResourceBindingSpec,
)
from federation.v1.scheduling_pb2 import OUTCOME_SCHEDULED, ScheduleRequest
from lab.control_planes import (
    AgentStream,
    Caller,
    RunningControlPlane,
    heartbeat,
    hello,
    report,
    running_control_plane,
)
from lab.patience import PATIENCE_SECONDS, until

# Generous bounds on hanging: 30 s of held locks were the fault.
ANSWERED_SECONDS = 15.0
BACK_SECONDS = PATIENCE_SECONDS
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


def scheduled(running: RunningControlPlane, name: str) -> Any:
    binding = ResourceBinding(
        metadata=ObjectMeta(namespace="shop", name=name),
        spec=ResourceBindingSpec(
            resource=ObjectReference(api_version="apps/v1", kind="Deployment", name=name),
            replicas=1,
            replica_requirements=ReplicaRequirements(resource_request={"cpu": "100m"}),
            placement=Placement(),
        ),
    )
    request = ScheduleRequest(binding=binding)
    return running.admin.scheduling.Schedule(
        request, timeout=BACK_SECONDS, metadata=running.admin.metadata
    )


@asynccontextmanager
async def beating(running: RunningControlPlane) -> AsyncIterator[None]:
    """The agent of member1, which is heard all the time."""
    async with beating_by(await running.enrolled("member1")):
        yield


@asynccontextmanager
async def beating_by(agent: Caller, sequence: int = 1) -> AsyncIterator[AgentStream]:
    """The same with the credential of an agent, and the stream that it is heard by."""
    async with AgentStream(agent, "member1") as stream:
        await stream.say(hello=hello())
        await stream.hear("welcome")
        await stream.say(report=report(sequence=sequence))
        await stream.hear("ack")

        async def beat() -> None:
            while True:
                await stream.say(heartbeat=heartbeat(sequence, f"hash-1-{sequence}"))
                await asyncio.sleep(0.3)

        beating = asyncio.create_task(beat())
        try:
            yield stream
        finally:
            beating.cancel()


async def conditions(running: RunningControlPlane) -> Mapping[str, str]:
    """The statuses of the conditions of member1, by type."""
    listed = await running.admin.call(running.admin.clusters.ListClusters, ListClustersRequest())
    return {each.type: each.status for found in listed.clusters for each in found.status.conditions}


@asynccontextmanager
async def two_planes(
    database_url: str, tmp_path: Path
) -> AsyncIterator[tuple[RunningControlPlane, RunningControlPlane, Proxy]]:
    """One behind a proxy, and one that the agent is connected to; both know the cluster."""
    often = {"heartbeat_seconds": "1"}
    async with (
        Proxy(database_url).running() as proxy,
        running_control_plane(database_url, tmp_path / "there", **often) as there,
        beating(there),
        running_control_plane(proxy.url, tmp_path / "there", **often) as here,
    ):
        await until(
            lambda: scheduled(here, "first"),
            lambda answer: answer.decision.outcome == OUTCOME_SCHEDULED,
        )
        yield here, there, proxy


@pytest.mark.expected_errors("Exception closing connection")
async def test_a_plane_that_is_cut_off_in_a_commit_does_not_hold_up_the_others(
    fresh_database_url: str, tmp_path: Path
) -> None:
    async with two_planes(fresh_database_url, tmp_path) as (here, there, proxy):
        proxy.silent_at_commit = True
        lost = asyncio.ensure_future(scheduled(here, "lost"))
        await proxy.fell_silent.wait()
        async with asyncio.timeout(ANSWERED_SECONDS):
            answer = await scheduled(there, "other")
        assert answer.decision.outcome == OUTCOME_SCHEDULED
        lost.cancel()


async def test_who_is_back_calls_no_agent_silent_that_others_heard(
    fresh_database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # After a start nobody is silent for a while, which would hide the fault.
    monkeypatch.setattr(app, "DIAL_AGAIN_SECONDS", 0.0)
    async with two_planes(fresh_database_url, tmp_path) as (here, there, proxy):
        proxy.fall_silent()
        # Long enough for an agent to count as silent that is not heard for so long.
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await scheduled(here, "lost")
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        assert (await scheduled(there, "other")).decision.outcome == OUTCOME_SCHEDULED
        assert (await conditions(here))["Ready"] == "True"
        proxy.back()
        answered = 0
        while answered < 10:
            try:
                answer = await scheduled(here, f"back-{answered}")
            except grpc.aio.AioRpcError as error:
                if error.code() is not grpc.StatusCode.UNAVAILABLE:
                    raise
                continue
            assert answer.decision.outcome == OUTCOME_SCHEDULED, answer.decision.reason
            answered += 1


async def test_an_agent_of_a_plane_that_is_cut_off_is_sent_to_another_before_it_is_lost(
    fresh_database_url: str, tmp_path: Path
) -> None:
    often = {"heartbeat_seconds": "1", "lost_seconds": "20"}
    async with (
        Proxy(fresh_database_url).running() as proxy,
        running_control_plane(fresh_database_url, tmp_path / "there", **often) as there,
        running_control_plane(proxy.url, tmp_path / "there", **often) as here,
    ):
        agent = await here.enrolled("member1")
        async with beating_by(agent) as stream:
            await until(lambda: conditions(there), lambda each: each.get("Ready") == "True")
            proxy.fall_silent()
            assert "dial another" in (await stream.hear("reconnect")).reason
            assert "Lost" not in await conditions(there)
        elsewhere = there.caller(None)
        elsewhere.metadata = agent.metadata
        async with beating_by(elsewhere, sequence=2):
            await until(lambda: conditions(there), lambda each: each.get("Ready") == "True")
