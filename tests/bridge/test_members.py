"""A bridge that speaks for a cluster, and an agent of the cluster's own that joins meanwhile."""

from __future__ import annotations

import logging
import time
from contextlib import AsyncExitStack
from typing import Any

import pytest

from federation.client import Client
from federation.model.errors import Unavailable
from lab.control_planes import AgentStream, hello, report
from lab.karmadas import binding, member, until
from tests.bridge.worlds import World, only

EPOCH = int(time.time() * 1000)


@pytest.mark.parametrize("moment", ["before it enrols", "after it enrolled"])
async def test_it_never_takes_a_cluster_back(
    world: World, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """The agent came while the bridge was away, or comes when it has just looked for one."""
    streams: list[AgentStream] = []
    read = Client.get_cluster
    async with AsyncExitStack() as stack:

        async def join() -> None:
            """An agent of the cluster's own, which numbers its session by the clock."""
            agent = await world.plane.enrolled("m2", uid="id-m2")
            streams.append(await stack.enter_async_context(AgentStream(agent, "m2")))
            await streams[0].say(hello=hello(EPOCH))
            await streams[0].hear("welcome")

        async def read_and_join(client: Client, name: str) -> Any:
            found = await read(client, name)
            if not streams:
                await join()
            return found

        if moment == "before it enrols":
            await join()
        else:
            monkeypatch.setattr(Client, "get_cluster", read_and_join)
        world.put(member("m2"), binding("web", placement=only("m2")))
        async with world.bridging():
            await until(lambda: bool(streams) and bool(world.condition("web")))
            # The agent is heard on, and its report is the one that counts.
            await streams[0].say(report=report(EPOCH))
            await streams[0].hear("ack")
            await until(lambda: world.is_settled("web"))
            assert await world.certificates("web") == {"m2": "careful"}


async def test_it_dials_again_within_the_time_that_it_is_asked_to(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """A thousand members that all dialled at once would meet the next control plane together."""
    caplog.set_level(logging.INFO, logger="estimator.agent.session")
    world.put(member("m1"), binding("web"))
    async with world.bridging():
        await until(lambda: world.is_settled("web"))
        world.plane.plane.parts.sessions.send_away(Unavailable("the control plane is stopping"))
        await until(lambda: "the control plane is stopping; dialling again in" in caplog.text)
