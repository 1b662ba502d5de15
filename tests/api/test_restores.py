"""A database that is put back to an earlier state, under control planes that know better."""

from __future__ import annotations

import itertools
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import grpc
import pytest
import pytest_asyncio

from lab.commanded_stores import CommandedStore
from lab.control_planes import AgentStream, Plane, hello, refused, report, running_control_plane
from lab.databases import Databases
from lab.fake_agents import FakeAgent
from lab.patience import until
from tests.api.calls import in_namespace, scheduled
from tests.api.pairs import at, heard

# While a copy takes the place of a database there is none for a moment.
pytestmark = pytest.mark.expected_errors("the database went back", "There is no such database")

CORES = 4
WENT_BACK = "the database went back to an earlier state"
EMPTY = "TRUNCATE database_incarnation, cluster, reservation, journal CASCADE"
UNAVAILABLE = grpc.StatusCode.UNAVAILABLE
numbers = itertools.count()


class World:
    """A database of its own with member1, of four cores; control planes on it, and its copies."""

    def __init__(self, databases: Databases, url: str, folder: Path, stack: AsyncExitStack) -> None:
        self._databases, self._url, self._folder = databases, url, folder
        self._stack = stack
        self._ends: dict[int, AsyncExitStack] = {}

    async def start(self, store: CommandedStore | None = None) -> Plane:
        ends = await self._stack.enter_async_context(AsyncExitStack())
        plane = await ends.enter_async_context(
            running_control_plane(self._url, self._folder, store=store, heartbeat_seconds="60")
        )
        self._ends[id(plane)] = ends
        return plane

    async def stop(self, plane: Plane) -> None:
        await self._ends.pop(id(plane)).aclose()

    async def joined(self, plane: Plane) -> FakeAgent:
        """The agent of member1, which has reported its cores, as all that it says later."""
        agent = await FakeAgent.joined(plane, "member1", cores=CORES)
        self._stack.push_async_callback(agent.leave)
        return agent

    # Both hold the event loop, so that no control plane connects meanwhile.
    def copy(self) -> str:
        return self._databases.copy(f"copy{next(numbers)}_{id(self)}", self._url)

    def put_back(self, copy: str) -> None:
        self._databases.put_back(self._url, copy)


@pytest_asyncio.fixture(loop_scope="module")
async def world(
    databases: Databases, fresh_database_url: str, tmp_path: Path
) -> AsyncIterator[World]:
    async with AsyncExitStack() as stack:
        yield World(databases, fresh_database_url, tmp_path, stack)


async def answer_of(plane: Plane, name: str, replicas: int) -> Any:
    """The answer to Schedule without waiting, None where nothing can be decided now."""
    try:
        return await scheduled(plane, in_namespace("shop", name, replicas), wait=False)
    except grpc.aio.AioRpcError as error:
        if error.code() is not UNAVAILABLE:
            raise
        return None


async def is_placed(plane: Plane, name: str, replicas: int) -> bool:
    """Whether that is promised, once something can be decided."""
    answer = await until(lambda: answer_of(plane, name, replicas), lambda found: found is not None)
    return bool(answer.decision.clusters)


async def promised(plane: Plane) -> dict[str, int]:
    """Replicas by binding, as stored."""

    async def stored() -> Sequence[Any] | None:
        try:
            async with plane.plane.parts.store.reading() as read:
                return await read.reservations.all()
        except Exception:  # noqa: BLE001 - its connection was cut off
            return None

    rows = await until(stored, lambda found: found is not None)
    assert rows is not None
    return {row.name: sum(each.replicas for each in row.reservations) for row in rows}


async def test_nothing_is_promised_after_a_restore_before_the_agent_has_reported(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    one = await world.start()
    agent = await world.joined(one)
    other = await world.start()
    copy = world.copy()
    assert await is_placed(one, "lost", 1)
    world.put_back(copy)
    assert not await is_placed(other, "web", 1)
    assert not await is_placed(one, "web", 1)
    assert WENT_BACK in caplog.text
    # What the agent was told before is not too new.
    await agent.report()
    assert any(WENT_BACK in reason for reason in agent.resyncs)
    assert await is_placed(one, "web", 4)
    assert not await is_placed(other, "more", 1)
    assert await promised(other) == {"web": 4}


@pytest.mark.parametrize("later", [0, 1])
@pytest.mark.parametrize("has_followed", [False, True])
async def test_a_version_of_another_history_is_not_built_on(
    world: World, later: int, *, has_followed: bool
) -> None:
    """One that starts on the copy promises under the versions of what is lost."""
    store = CommandedStore()
    one = await world.start()
    agent = await world.joined(one)
    other = await world.start(store)
    await other.follow()
    copy = world.copy()
    maker = one if has_followed else other
    assert await is_placed(maker, "lost", 1)
    if has_followed:
        await until(lambda: fits(other), lambda cores: cores == CORES - 1)
    store.is_reachable = False
    world.put_back(copy)
    await world.stop(one)
    unaware = await world.start()
    async with FakeAgent(AgentStream(at(unaware, agent.caller), "member1"), epoch=2) as moved:
        await moved.connect()
        await moved.report(cores=CORES)
        assert await is_placed(unaware, "web", 3)
        for number in range(later):
            await unaware.ask("ReleaseReservation", namespace="shop", name="web")
            assert await is_placed(unaware, f"web{number}", 3)
        store.is_reachable = True
        before = await promised(unaware)
        assert not await is_placed(other, "more", 3)
        assert await promised(unaware) == before
        # What the agent says counts again, and what is promised by then.
        await moved.report()
        assert not await is_placed(other, "more", 3)
        assert await is_placed(other, "little", 1)


async def fits(plane: Plane) -> int:
    answer = await plane.ask(
        "EstimateReplicas", shapes=[{"resource_request": {"cpu": "1"}}], clusters=["member1"]
    )
    return int(answer.replicas[0])


async def test_a_restore_while_nothing_runs_is_seen_at_the_start(world: World) -> None:
    one = await world.start()
    agent = await world.joined(one)
    copy = world.copy()
    await is_placed(one, "lost", 1)
    await world.stop(one)
    world.put_back(copy)
    late = await world.start()
    assert not await is_placed(late, "web", 1)
    async with FakeAgent(AgentStream(at(late, agent.caller), "member1"), epoch=2) as back:
        await back.connect()
        await back.report(cores=CORES)
        assert await is_placed(late, "web", 3)
        # It is seen once.
        again = await world.start()
        assert await is_placed(again, "more", 1)


async def test_another_server_may_lack_what_nobody_here_knows(world: World) -> None:
    one = await world.start()
    agent = await world.joined(one)
    # As after the promotion of a standby: nothing that is known here is lost.
    await one.sql("UPDATE database_incarnation SET database = database || '0'")
    await one.lose_connections()
    assert not await is_placed(one, "web", 1)
    await agent.report()
    assert await is_placed(one, "web", 1)
    assert [WENT_BACK in reason for reason in agent.resyncs].count(True) == 1


async def unsuspecting(world: World) -> tuple[Plane, Any]:
    """One on a copy that nothing but agents can tell from its database, and the agent's caller."""
    one = await world.start()
    agent = await world.joined(one)
    await agent.leave()
    copy = world.copy()
    assert await is_placed(one, "lost", 1)
    await world.stop(one)
    world.put_back(copy)
    await one.sql("UPDATE database_incarnation SET database = ''")
    late = await world.start()
    return late, at(late, agent.caller)


async def test_an_agent_that_knows_of_a_later_report_is_believed_once(world: World) -> None:
    plane, caller = await unsuspecting(world)
    for sequence, is_believed in ((5, True), (99, False)):
        async with AgentStream(caller, "member1") as stream:
            await stream.say(hello=hello(acknowledged_sequence=sequence))
            await stream.hear("welcome")
            assert await is_placed(plane, f"web{sequence}", 1) is not is_believed
            await stream.say(report=report(sequence=sequence + 1, nodes=1))
            await heard(stream, "ack")
            assert await is_placed(plane, f"more{sequence}", 1)


async def test_an_agent_that_was_told_of_a_later_version_is_believed_once(world: World) -> None:
    plane, caller = await unsuspecting(world)
    told = plane.plane.parts.fleet.ledger("member1").version + 1
    async with AgentStream(caller, "member1") as stream:
        await stream.say(hello=hello())
        await stream.hear("welcome")
        await stream.say(report=report(sequence=2, nodes=1, interest_version=told))
        await heard(stream, "resync")
        assert not await is_placed(plane, "web", 1)
        await stream.say(report=report(sequence=3, nodes=1, interest_version=told))
        while (message := await stream.next()) is not None and not message.HasField("ack"):
            if message.HasField("resync"):
                await stream.say(report=report(sequence=4, nodes=1, interest_version=told))
        assert await is_placed(plane, "web", 1)
        await stream.say(report=report(sequence=5, interest_version=told + 2**40))
        assert "interestVersion" in (await heard(stream, "refusal")).reason


@pytest.mark.expected_errors("the database cannot be used")
async def test_an_emptied_database_is_told_as_that(world: World) -> None:
    one = await world.start()
    await world.joined(one)
    await one.sql(EMPTY)

    async def why() -> str:
        try:
            await scheduled(one, in_namespace("shop"))
        except grpc.aio.AioRpcError as error:
            return f"{error.code().name}: {error.details()}"
        return "as before"

    await until(why, lambda told: "UNAVAILABLE: The database was emptied: restore it" in told)
    # Nobody is called unknown there, and one that starts on it begins anew.
    stranger = one.caller("0123456789abcdef.secret")
    assert "was emptied" in (await refused(stranger.ask("WhoAmI"))).message
    late = await world.start()
    await world.joined(late)
    assert await is_placed(late, "web", 4)


@pytest.mark.parametrize("seed", [6, 7])
async def test_whatever_is_put_back_no_core_is_promised_twice(world: World, seed: int) -> None:
    choices = random.Random(seed)
    planes = [await world.start()]
    agent = await world.joined(planes[0])
    planes += [await world.start(), await world.start()]
    names, copies, has_reported = itertools.count(), list[str](), True
    is_lost, placed_after_losses = False, 0
    kinds = {"schedule": 40, "report": 25, "release": 10, "start": 5, "copy": 10, "put back": 10}
    for _ in range(40):
        # The agent stays with the first.
        plane = choices.choice(planes)
        match choices.choices([*kinds], [*kinds.values()])[0]:
            case "schedule":
                is_promised = await is_placed(plane, f"b{next(names)}", choices.randint(1, 3))
                assert has_reported or not is_promised
                placed_after_losses += is_promised and is_lost
            case "report":
                await agent.report()
                has_reported = True
            case "release":
                await release_any(plane)
            case "start":
                await world.stop(planes[-1])
                planes[-1] = await world.start()
            case "copy":
                copies.append(world.copy())
            case _ if copies:
                before = await promised(plane)
                world.put_back(copies.pop(choices.randrange(len(copies))))
                has_reported = False
                is_lost |= before != await promised(plane)
        held = await promised(plane)
        assert sum(held.values()) <= CORES, held
    # The seeds are such that something is promised after promises were lost.
    assert placed_after_losses
    await agent.report()
    left = CORES - sum((await promised(planes[0])).values())
    has_asked = len(agent.resyncs)

    async def fits_after_reports(plane: Plane) -> int:
        """What fits, once the agent has answered whoever noticed a restore after its report."""
        nonlocal has_asked
        if len(agent.resyncs) > has_asked:
            has_asked = len(agent.resyncs)
            await agent.report()
        return await fits(plane)

    for plane in planes:
        await until(lambda of=plane: fits_after_reports(of), lambda cores: cores == left)


async def release_any(plane: Plane) -> None:
    for name in sorted(await promised(plane))[:1]:

        async def code(of: str = name) -> grpc.StatusCode:
            try:
                await plane.ask("ReleaseReservation", namespace="shop", name=of)
            except grpc.aio.AioRpcError as error:
                return error.code()
            return grpc.StatusCode.OK

        await until(code, lambda found: found is not UNAVAILABLE)
