"""Two control planes on one database, each with a clock and a store on command of its own.

    pair.a, pair.b                         their clocks are a day apart, and both stand still
    async with stream_at(pair.b, agent)    the agent of member1, connected to b
    await pair.pass_time(60)               on both clocks
    pair.stores[0].is_reachable = False    a is cut off from the database

They tell each other many times a second whom they hear.
Must not check anything but that a stream is welcome and a report stored.
"""

from __future__ import annotations

import asyncio
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Self

import grpc
import pytest
import pytest_asyncio

from federation.services.fleet import journal_reader
from federation.services.members import presences
from federation.v1.agents_pb2 import Heartbeat, Sight
from lab.commanded_stores import CommandedStore
from lab.control_planes import (
    AgentStream,
    Caller,
    Plane,
    heartbeat,
    hello,
    report,
    running_control_plane,
)
from lab.held_clocks import HeldClock
from lab.patience import until
from tests.api.conftest import emptied
from tests.api.world import LONGEST_TURN_SECONDS

HEARTBEAT_SECONDS, LOST_SECONDS = 60.0, 100.0
ROUND_SECONDS, DAY_SECONDS = 0.3, 86_400.0
STEP_SECONDS, TURNS = 5.0, 5
SILENT = ("Unknown", "AgentSilent")
FLAGS = {"heartbeat_seconds": f"{HEARTBEAT_SECONDS}", "lost_seconds": f"{LOST_SECONDS}"}


class Pair:
    """Control planes ``a`` and ``b``; ``third`` starts another one on their database."""

    def __init__(self, url: str, folder: Path, stack: AsyncExitStack) -> None:
        now = float(int(time.time()))
        self.clocks = [HeldClock(now), HeldClock(now + DAY_SECONDS)]
        self.stores = [CommandedStore(), CommandedStore()]
        self.planes: list[Plane] = []
        self._url, self._folder, self._stack = url, folder, stack

    async def start(self) -> Self:
        for clock, store in zip(self.clocks, self.stores, strict=True):
            self.planes.append(await self._stack.enter_async_context(self._running(clock, store)))
        # After a start nobody counts as silent for a while.
        for clock in self.clocks:
            clock.advance(10_000)
        return self

    @property
    def a(self) -> Plane:
        return self.planes[0]

    @property
    def b(self) -> Plane:
        return self.planes[1]

    @asynccontextmanager
    async def third(
        self, *, store: CommandedStore | None = None, **flags: str
    ) -> AsyncIterator[tuple[Plane, HeldClock]]:
        """One that starts now, and its clock."""
        clock = HeldClock(self.clocks[0].now() + 100)
        async with self._running(clock, store, **flags) as plane:
            yield plane, clock

    def _running(self, clock: HeldClock, store: CommandedStore | None, **flags: str) -> Any:
        given: Any = {**FLAGS, **flags}
        return running_control_plane(self._url, self._folder, clock=clock, store=store, **given)

    async def pass_time(self, seconds: float, *clocks: HeldClock) -> None:
        """On both clocks or these, in steps that no loop takes for sleep."""
        while seconds > 0:
            for clock in clocks or self.clocks:
                clock.advance(min(seconds, STEP_SECONDS))
            seconds -= STEP_SECONDS
            for _ in range(TURNS):
                await asyncio.sleep(0)

    async def until_silent(self, plane: Plane, *clocks: HeldClock) -> None:
        """Return when member1's agent counts as silent there; meanwhile these clocks go on.

        What a control plane could not hear because its machine was slow, it forgives.
        """

        async def ready_later() -> tuple[str, str]:
            await self.pass_time(1, *clocks)
            return await ready_at(plane)

        await until(ready_later, SILENT.__eq__, longest_pause_seconds=LONGEST_TURN_SECONDS)


@pytest.fixture(scope="module")
def shares_often() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        for name in ("MIN_ROUND_SECONDS", "MAX_ROUND_SECONDS"):
            patch.setattr(presences, name, ROUND_SECONDS)
        patch.setattr(journal_reader, "POLL_SECONDS", ROUND_SECONDS)
        yield


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def started_pair(
    module_database_url: str, module_folder: Path, shares_often: None
) -> AsyncIterator[Pair]:
    async with AsyncExitStack() as stack:
        yield await Pair(module_database_url, module_folder, stack).start()


@pytest_asyncio.fixture(loop_scope="module")
async def pair(started_pair: Pair) -> AsyncIterator[Pair]:
    """Both control planes, without clusters."""
    # What is heard in this test was not heard at the very moment of another one.
    await started_pair.pass_time(1)
    yield started_pair
    for store in started_pair.stores:
        store.is_reachable = True
        store.go_on()
    await emptied(started_pair.a)

    async def nothing_left() -> list[Any]:
        return list((await started_pair.b.ask("ListClusters")).clusters)

    await until(nothing_left, lambda clusters: not clusters)


def at(plane: Plane, caller: Caller) -> Caller:
    """The same caller at another control plane."""
    return plane.caller(caller.metadata[0][1].removeprefix("Bearer "))


@asynccontextmanager
async def stream_at(
    plane: Plane, agent: Caller, epoch: int = 1, *, sequence: int = 0, **said: Any
) -> AsyncIterator[AgentStream]:
    """The stream of member1's agent there, which has reported unless ``sequence`` is 0."""
    async with AgentStream(at(plane, agent), "member1") as stream:
        await stream.say(hello=hello(epoch, **said))
        await stream.hear("welcome")
        if sequence:
            await stream.say(report=report(epoch, sequence))
            await stream.hear("ack")
        yield stream


def beat(epoch: int = 1, sequence: int = 1, sight: Sight | None = None, **fields: Any) -> Heartbeat:
    """A heartbeat that stands by a report."""
    made = heartbeat(sequence, fields.get("content_hash", f"hash-{epoch}-{sequence}"))
    made.sight.CopyFrom(sight or Sight())
    return made


async def heard(stream: AgentStream, kind: str) -> Any:
    """The next message of that kind, whatever the agent is asked before."""
    while (message := await stream.next()) is not None:
        if message.WhichOneof("message") == kind:
            return getattr(message, kind)
    raise AssertionError(f"no {kind}")


async def cluster_at(plane: Plane) -> Any:
    return (await plane.ask("GetCluster", name="member1")).cluster


async def agent_at(plane: Plane) -> Any:
    """What a control plane says of member1's agent."""
    return (await cluster_at(plane)).status.agent


async def ready_at(plane: Plane) -> tuple[str, str]:
    """The status of member1's condition Ready there, and why."""
    conditions = (await cluster_at(plane)).status.conditions
    (ready,) = [each for each in conditions if each.type == "Ready"]
    return ready.status, ready.reason


async def once_joined(ask: Callable[[], Awaitable[Any]]) -> Any:
    """The answer, None before that control plane has read that member1 joined."""
    try:
        return await ask()
    except grpc.aio.AioRpcError as error:
        if error.code() is not grpc.StatusCode.NOT_FOUND:
            raise
        return None


async def until_ready(plane: Plane, *expected: str) -> None:
    """Return when the condition Ready of member1 is this; without arguments True."""
    told = expected or ("True", "")
    await until(lambda: once_joined(lambda: ready_at(plane)), lambda found: found == told)


async def until_connected(plane: Plane, *, is_connected: bool = True) -> None:
    await until(
        lambda: once_joined(lambda: agent_at(plane)),
        lambda agent: agent is not None and agent.connected is is_connected,
    )


async def readiness(plane: Plane) -> tuple[int, str]:
    """The page of the readiness probe."""

    def ask() -> tuple[int, str]:
        url = f"http://{plane.plane.web_endpoint}/readyz"
        try:
            with urllib.request.urlopen(url) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    return await asyncio.to_thread(ask)
