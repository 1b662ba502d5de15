"""The handles of a control plane: a clock that stands still, a store on command, fake agents."""

from __future__ import annotations

import asyncio
from pathlib import Path

import grpc
import pytest

from federation.v1.estimates_pb2 import ESTIMATE_SOURCE_EXACT, EstimateReplicasRequest
from federation.v1.resource_pb2 import ReplicaRequirements
from lab.control_planes import running_control_plane
from lab.databases import Databases
from lab.fake_agents import FakeAgent, fits
from lab.held_clocks import HeldClock
from lab.patience import until
from tests.api.world import World, code_of, shares

pytestmark = pytest.mark.asyncio(loop_scope="module")
UNAVAILABLE = grpc.StatusCode.UNAVAILABLE


async def test_a_clock_shows_what_it_is_told_and_wakes_who_pauses_until_then() -> None:
    clock = HeldClock(100.0)
    first, second = (asyncio.create_task(clock.sleep(seconds)) for seconds in (3600, 7200))
    await asyncio.sleep(0)
    assert clock.now() == 100.0
    await clock.run(3600, step_seconds=600)
    await first
    assert clock.now() == 3700.0
    assert not second.done()
    clock.advance(3600)
    await second
    # As much of the machine's time does as well.
    await clock.sleep(0.0)


async def test_decisions_are_made_at_the_time_that_the_clock_shows(world: World) -> None:
    await world.clusters(a=6)
    world.clock.advance(1000)
    ages = []
    for name in ("web", "other"):
        answer = await world.schedule(name)
        (traced,) = (await world.decision(answer.decision.id)).trace.clusters
        ages.append(traced.report_age_seconds)
        world.clock.advance(1000)
    assert ages[1] - ages[0] == pytest.approx(1000)


async def test_a_stalled_store_lets_calls_wait(world: World) -> None:
    await world.clusters(a=6)
    world.store.stall()
    asking = asyncio.create_task(world.schedule("web"))
    assert await asyncio.wait((asking,), timeout=0.1) == (set(), {asking})
    world.store.go_on()
    assert shares((await asking).decision.clusters) == {"a": 1}


async def test_lost_connections_come_back(world: World) -> None:
    await world.clusters(a=6)
    await world.plane.lose_connections()
    assert shares((await world.schedule("web", 2)).decision.clusters) == {"a": 2}


@pytest.mark.expected_errors("the database went back", "the database cannot be used")
async def test_a_database_goes_back(
    databases: Databases, fresh_database_url: str, tmp_path: Path
) -> None:
    async with running_control_plane(fresh_database_url, tmp_path):
        pass
    copy = databases.copy("handles", fresh_database_url)
    async with running_control_plane(fresh_database_url, tmp_path) as plane:
        async with await FakeAgent.joined(plane, "a"):
            await asyncio.to_thread(databases.put_back, fresh_database_url, copy)

        async def code() -> grpc.StatusCode:
            return await code_of(plane.admin.ask("GetCluster", name="a"))

        await until(code, lambda found: found is grpc.StatusCode.NOT_FOUND)


async def test_an_agent_answers_questions_and_what_it_sees_is_counted(world: World) -> None:
    await world.clusters(a=6)
    agent = world.agents["a"]
    agent.estimate = fits(4)
    question = EstimateReplicasRequest(
        clusters=["a"],
        shapes=[ReplicaRequirements(resource_request={"cpu": "1"})],
        highest_source=ESTIMATE_SOURCE_EXACT,
    )
    admin = world.plane.admin
    estimates = await admin.call(admin.estimates.EstimateReplicas, question)
    assert list(estimates.replicas) == [4]
    await world.schedule("web", 3)
    await agent.report(cores=6, sees={f"{world.namespace}/web": 2})
    (held,) = (await world.got("web")).reservations
    assert (held.bound, held.outstanding) == (2, 1)


async def test_an_agent_starts_again(world: World) -> None:
    await world.clusters(a=6)
    await world.agents["a"].restart()
    await world.agents["a"].report(cores=2)
    await world.agents["a"].beat()
    assert (await world.schedule("web", 3)).queued


async def test_a_report_that_was_not_stored_is_sent_again(world: World) -> None:
    await world.clusters(a=2)
    world.store.fail_at("reports.advance")
    await world.agents["a"].report(cores=6)
    assert shares((await world.schedule("web", 6)).decision.clusters) == {"a": 6}
