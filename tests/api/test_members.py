"""Which agents count while time passes and the database is away: trusted, silent or blind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest
import pytest_asyncio

from federation.services.members.identity import (
    MEMBER_OUTAGE_SECONDS,
    OUTAGE_SECONDS,
    TRUSTED_SECONDS,
)
from federation.v1.agents_pb2 import Report, Sight
from federation.v1.resource_pb2 import ReplicaRequirements
from federation.v1.scheduling_pb2 import OUTCOME_SCHEDULED
from lab.commanded_stores import CommandedStore
from lab.control_planes import (
    AgentStream,
    Plane,
    graded,
    heartbeat,
    hello,
    report,
    running_control_plane,
)
from lab.held_clocks import HeldClock
from lab.patience import PATIENCE_SECONDS, until
from tests.api.calls import VIEWER, binding, made, scheduled
from tests.api.world import code_of

OK, UNAVAILABLE = grpc.StatusCode.OK, grpc.StatusCode.UNAVAILABLE
UNAUTHENTICATED = grpc.StatusCode.UNAUTHENTICATED
HEARTBEAT_SECONDS = 600.0
ONE_CORE = ReplicaRequirements(resource_request={"cpu": "1"})


@pytest.fixture(scope="module")
def flags() -> dict[str, str]:
    # Clocks go on by hours here, and no stream ends of age meanwhile.
    return {"heartbeat_seconds": str(HEARTBEAT_SECONDS), "max_stream_seconds": "86400"}


@pytest_asyncio.fixture(loop_scope="module")
async def away(api: Plane, commanded: CommandedStore) -> AsyncIterator[CommandedStore]:
    """The store, which can be reached again when the test ends."""
    yield commanded
    commanded.is_reachable = True


async def ready(api: Plane, name: str = "member1") -> tuple[str, str]:
    """The status of the condition Ready, and why."""
    cluster = (await api.ask("GetCluster", name=name)).cluster
    (condition,) = [each for each in cluster.status.conditions if each.type == "Ready"]
    return condition.status, condition.reason


async def gives_itself_away(api: Plane, caller: Any) -> grpc.StatusCode:
    """The code of a call that needs no database."""
    return await code_of(caller.ask("WhoAmI"))


async def test_callers_stay_known_while_the_database_is_away_but_not_for_ever(
    api: Plane, clock: HeldClock, away: CommandedStore
) -> None:
    viewer, _ = await made(api, VIEWER)
    agent = await api.enrolled("member1")
    assert await gives_itself_away(api, viewer) is OK
    assert await opens(agent) is OK
    away.is_reachable = False
    clock.advance(TRUSTED_SECONDS + 1)
    assert await gives_itself_away(api, viewer) is OK
    secret = viewer.metadata[0][1].removeprefix("Bearer ")
    assert await gives_itself_away(api, api.caller(secret + "x")) is UNAUTHENTICATED
    assert await gives_itself_away(api, api.caller("somebody.else")) is UNAVAILABLE
    clock.advance(OUTAGE_SECONDS)
    assert await gives_itself_away(api, viewer) is UNAVAILABLE
    # Agents are believed for longer: the database is needed for what they say, not for them.
    assert "credential" not in await why_not(agent)
    clock.advance(MEMBER_OUTAGE_SECONDS - OUTAGE_SECONDS)
    away.is_reachable = True
    assert await gives_itself_away(api, viewer) is OK


async def opens(agent: Any) -> grpc.StatusCode:
    async with AgentStream(agent, "member1") as stream:
        await stream.say(hello=hello())
        return await code_of(stream.hear("welcome"))


async def why_not(agent: Any) -> str:
    """Why a stream of the agent ends."""
    async with AgentStream(agent, "member1") as stream:
        await stream.say(hello=hello())
        _, refusal = await stream.end()
        assert refusal is not None
        return refusal.message


async def test_an_enrolment_that_fails_at_its_last_step_has_not_spent_the_token(
    api: Plane, commanded: CommandedStore
) -> None:
    token = (await api.ask("CreateJoinToken", cluster="member1")).token
    join = {"cluster": "member1", "cluster_uid": "uid", "token": token}
    anybody = api.caller(None)
    commanded.fail_at("credentials.add")
    assert await code_of(anybody.ask("EnrollCluster", **join)) is UNAVAILABLE
    assert await code_of(api.ask("GetCluster", name="member1")) is grpc.StatusCode.NOT_FOUND
    await anybody.ask("EnrollCluster", **join)


async def test_a_report_of_the_cluster_before_is_not_taken_for_the_new_ones(
    api: Plane, commanded: CommandedStore
) -> None:
    is_replaced = asyncio.Event()

    async def replace() -> None:
        await api.ask("ReplaceCluster", name="member1", cluster_uid="uid-new")
        is_replaced.set()

    async with api.connected("member1", report=report()) as stream:
        commanded.before("reports.advance", replace)
        await stream.say(report=report(sequence=2))
        await is_replaced.wait()
        _, refusal = await stream.end()
    assert refusal is not None
    assert "replaced" in refusal.message
    status = (await api.ask("GetCluster", name="member1")).cluster.status
    assert not status.HasField("resource_summary")
    ((reports,),) = await api.sql("SELECT count(*) FROM cluster_report")
    assert reports == 0


async def test_a_cluster_that_joins_again_at_once_is_not_removed_with_the_one_before(
    api: Plane, commanded: CommandedStore
) -> None:
    seen: list[grpc.StatusCode] = []
    is_read = asyncio.Event()

    async def join() -> None:
        token = (await api.ask("CreateJoinToken", cluster="member1")).token
        enrollment = {"cluster": "member1", "cluster_uid": "uid", "token": token}
        await api.caller(None).ask("EnrollCluster", **enrollment)

    async def look() -> None:
        seen.append(await code_of(api.ask("GetCluster", name="member1")))
        is_read.set()

    async def join_again() -> None:
        await join()
        commanded.before("clusters.lock", look)

    await join()
    # The reader of the journal then looks whether the cluster is still there.
    commanded.before("journal.position", join_again)
    await api.ask("DeleteCluster", name="member1")
    await asyncio.wait_for(is_read.wait(), PATIENCE_SECONDS)
    assert seen == [grpc.StatusCode.OK]


async def test_a_cluster_that_joins_again_takes_nothing_of_the_one_before_for_its_own(
    api: Plane, other: Plane, commanded: CommandedStore
) -> None:
    rooms: list[list[int]] = []
    is_read = asyncio.Event()
    streams = AsyncExitStack()

    async def join_twice() -> None:
        async with api.connected("member1", report=report()):
            await until(
                lambda: scheduled(other, binding(replicas=3)),
                lambda answer: answer.decision.outcome == OUTCOME_SCHEDULED,
            )
        await api.ask("DeleteCluster", name="member1", force=True)
        stream = await streams.enter_async_context(api.connected("member1"))
        commanded.before("journal.position", partial(report_again, stream))

    async def report_again(stream: AgentStream) -> None:
        await stream.say(report=report())
        await stream.hear("ack")
        estimates = await api.ask("EstimateReplicas", shapes=[ONE_CORE])
        rooms.append(list(estimates.replicas))
        is_read.set()

    # The reader of the journal then meets both clusters' entries at once.
    commanded.before("journal.read", join_twice)
    async with streams:
        await asyncio.wait_for(is_read.wait(), PATIENCE_SECONDS)
    assert rooms == [[16]]


async def test_while_the_database_is_away_reports_are_asked_for_again_and_then_taken(
    api: Plane, away: CommandedStore, caplog: pytest.LogCaptureFixture
) -> None:
    async def logged() -> str:
        await asyncio.sleep(0)
        return caplog.text

    async with api.connected("member1") as stream:
        away.is_reachable = False
        await stream.say(report=report())
        await until(logged, lambda text: "reports not stored" in text)
        await stream.say(heartbeat=heartbeat(1, "hash-1-1"))
        await stream.hear("resync")
        away.is_reachable = True
        await stream.say(report=report(sequence=2))
        assert (await stream.hear("ack")).sequence == 2


async def test_grades_must_sum_to_the_nodes_that_were_graded(api: Plane) -> None:
    async with api.connected("member1") as stream:
        for counts, rule in (
            ({2: 1, 3: 6}, "gradeCounts: must sum to gradedNodes, 8"),
            ({2: -1, 3: 9}, "gradeCounts[0].count: must be at least 0"),
        ):
            await stream.say(report=graded("h", counts, nodes=8))
            assert rule in (await stream.hear("refusal")).reason


async def test_many_reports_are_written_together(api: Plane, commanded: CommandedStore) -> None:
    names = [f"c{number:02}" for number in range(20)]
    streams = await asyncio.gather(*(entered(api, name) for name in names))
    # All wait for the first one: they are written together then.
    commanded.stall()
    for stream in streams:
        await stream.say(report=report())
    before = commanded.statements["reports.advance"]
    commanded.go_on()
    for stream in streams:
        assert (await stream.hear("ack")).sequence == 1
        await stream.hang_up()
    assert commanded.statements["reports.advance"] - before < len(names) / 2


async def entered(api: Plane, name: str) -> AgentStream:
    stream = AgentStream(await api.enrolled(name), name)
    await stream.__aenter__()
    await stream.say(hello=hello())
    await stream.hear("welcome")
    return stream


async def test_a_cluster_that_was_never_heard_gets_nothing(api: Plane) -> None:
    await api.enrolled("member1")
    assert await ready(api) == ("Unknown", "AgentSilent")
    placed = await scheduled(api, binding(), preview=True)
    assert "is stale: its agent is silent" in str(placed.decision)


async def test_a_blind_agent_is_heard_and_gets_nothing_new(api: Plane, clock: HeldClock) -> None:
    blind = Sight(picture_age_seconds=40.0, blind=True, message="nodes: refused")
    async with api.connected("member1", report=report()) as stream:

        async def beats(sight: Sight, sequence: int = 1) -> None:
            beat = heartbeat(sequence, f"hash-1-{sequence}")
            beat.sight.CopyFrom(sight)
            await stream.say(heartbeat=beat)

        await beats(blind)
        found = await until(lambda: ready(api), lambda found: found[0] == "Unknown")
        assert found[1] == "ApiServerUnreachable"
        placed = await scheduled(api, binding(), preview=True)
        assert "cannot be seen since" in str(placed.decision)
        await beats(Sight())
        await until(lambda: ready(api), lambda found: found == ("True", ""))
        # One that comes back blind says so before it reports.
    async with AgentStream(stream.agent, "member1") as stream:
        await stream.say(hello=hello(2, sight=blind))
        await stream.hear("welcome")
        assert (await ready(api))[0] == "Unknown"
        await stream.say(report=Report(epoch=2, sequence=1, content_hash="h"))


async def test_a_report_that_is_never_confirmed_is_no_picture_for_ever(
    database_url: str, tmp_path: Path, flags: dict[str, str]
) -> None:
    clock = HeldClock()
    async with (
        running_control_plane(database_url, tmp_path, clock=clock, **flags) as plane,
        plane.connected("member1", report=report()) as stream,
    ):
        for number in range(5):
            beat = heartbeat(2, "of a report that is refused")
            beat.sight.SetInParent()
            await stream.say(heartbeat=beat)
            await stream.hear("resync")
            expected = ("True", "") if number < 3 else ("Unknown", "ReportMissing")
            assert number == 3 or await ready(plane) == expected, number
            clock.advance(HEARTBEAT_SECONDS)
        await stream.say(report=report(sequence=3))
        await stream.hear("ack")
        assert await ready(plane) == ("True", "")


async def test_watchers_are_told_when_a_cluster_goes_stale_and_when_it_is_back(
    api: Plane, clock: HeldClock
) -> None:
    async with (
        api.connected("member1", report=report()) as stream,
        api.connected("member2", report=report()) as other,
    ):
        watch = api.admin.watch("WatchClusters")
        told: list[tuple[str, str]] = []

        async def until_told(*wanted: tuple[str, str]) -> None:
            while not {*wanted} <= {*told}:
                for event in (await watch.read()).events:
                    name, found = event.cluster.metadata.name, event.cluster.status.conditions
                    told.extend((name, each.status) for each in found if each.type == "Ready")

        await until_told(("member1", "True"), ("member2", "True"))
        told.clear()
        for _ in range(3):
            await clock.run(HEARTBEAT_SECONDS)
            await other.say(heartbeat=heartbeat(1, "hash-1-1"))
            await until(lambda: heard_at(api, "member2"), int(clock.now()).__eq__)
        await clock.run(2)
        await until_told(("member1", "Unknown"))
        await stream.say(heartbeat=heartbeat(1, "hash-1-1"))
        await until_told(("member1", "True"))
        # Once, and of nobody else.
        assert told.count(("member1", "Unknown")) == 1
        assert ("member2", "Unknown") not in told
        watch.cancel()


async def heard_at(api: Plane, name: str) -> int:
    agent = (await api.ask("GetCluster", name=name)).cluster.status.agent
    return int(agent.last_heartbeat_time.seconds)
