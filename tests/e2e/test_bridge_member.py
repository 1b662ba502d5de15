"""A bridge that speaks for a cluster, and an agent of the cluster's own that joins meanwhile."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import msgspec
import pytest

from bridge.clusters import cluster_message
from bridge.karmada import KarmadaCluster, RawCluster, cluster_from_raw
from bridge.member import AGENT_VERSION, Line, Member
from federation.client import Client, Target
from federation.model.access import Role
from federation.model.errors import PermissionRefused, Unavailable
from federation.v1.resource_pb2 import Cluster
from lab.control_planes import (
    AgentStream,
    RunningControlPlane,
    channel_to,
    hello,
    report,
    running_control_plane,
)
from lab.karmadas import member, until

SECONDS = 60.0


@pytest.fixture
async def plane(database_url: str, tmp_path: Path) -> AsyncIterator[RunningControlPlane]:
    async with running_control_plane(database_url, tmp_path) as running:
        yield running


class ReadingClient(Client):
    """Something happens whenever a cluster was read."""

    def __init__(self, target: Target, after: Callable[[], Awaitable[None]]) -> None:
        super().__init__(target)
        self._after = after

    async def get_cluster(self, name: str) -> Cluster:
        found = await super().get_cluster(name)
        await self._after()
        return found


def m2() -> KarmadaCluster:
    return cluster_from_raw(msgspec.convert(member("m2"), RawCluster))


EPOCH = int(time.time() * 1000)


async def joined(plane: RunningControlPlane, stack: AsyncExitStack) -> AgentStream:
    """An agent of the cluster's own, which numbers its session by the clock."""
    agent = await plane.enrolled("m2", uid="id-m2")
    stream = await stack.enter_async_context(AgentStream(agent, "m2"))
    await stream.say(hello=hello(EPOCH))
    await stream.hear("welcome")
    return stream


@pytest.mark.parametrize("moment", ["before it enrols", "after it enrolled"])
async def test_it_never_takes_a_cluster_back(plane: RunningControlPlane, moment: str) -> None:
    """The agent came while the bridge was away, or comes when it has just looked for one."""
    token = await plane.token(Role.BRIDGE)
    target = Target(endpoint=str(plane.plane.endpoint), token=token, plaintext=True)
    agents: list[AgentStream] = []
    async with AsyncExitStack() as stack:

        async def join() -> None:
            if not agents:
                agents.append(await joined(plane, stack))

        async def nothing() -> None:
            pass

        if moment == "before it enrols":
            await join()
        client = await stack.enter_async_context(
            ReadingClient(target, join if moment == "after it enrolled" else nothing)
        )
        channel = await stack.enter_async_context(channel_to(plane.plane, None))
        line = Line(
            client=client,
            channel=lambda: channel,
            version=f"{AGENT_VERSION}/test",
            clock=time.time,
            monotonic=time.monotonic,
            listed=asyncio.Event(),
        )
        line.listed.set()
        speaker = Member(line, m2(), cluster_message(m2(), Counter()), print)
        with pytest.raises(PermissionRefused):
            await asyncio.wait_for(speaker.run(), SECONDS)
        # The agent is heard on, and was told nothing.
        (stream,) = agents
        await stream.say(report=report(EPOCH))
        await stream.hear("ack")


async def test_it_dials_again_within_the_time_that_it_is_asked_to(
    plane: RunningControlPlane, caplog: pytest.LogCaptureFixture
) -> None:
    """A thousand members that all dialled at once would meet the next control plane together."""
    caplog.set_level(logging.INFO, logger="bridge.member")
    token = await plane.token(Role.BRIDGE)
    target = Target(endpoint=str(plane.plane.endpoint), token=token, plaintext=True)
    async with Client(target) as client, channel_to(plane.plane, None) as channel:
        line = Line(
            client=client,
            channel=lambda: channel,
            version=f"{AGENT_VERSION}/test",
            clock=time.time,
            monotonic=time.monotonic,
            listed=asyncio.Event(),
        )
        line.listed.set()
        speaker = Member(line, m2(), cluster_message(m2(), Counter()), print)
        speaking = asyncio.create_task(speaker.run())
        await asyncio.wait_for(speaker.reported.wait(), SECONDS)
        plane.plane.parts.sessions.send_away(Unavailable("the control plane is stopping"))
        await until(lambda: "the control plane is stopping; dialling again in" in caplog.text)
        speaking.cancel()
        await asyncio.gather(speaking, return_exceptions=True)
