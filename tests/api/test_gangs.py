"""Gangs: bindings that are placed together or not at all wait for each other, and as one."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import grpc
import pytest

from federation.v1.resource_pb2 import Gang
from federation.v1.scheduling_pb2 import (
    OUTCOME_SCHEDULED,
    OUTCOME_UNSCHEDULABLE,
    WAIT_STATE_GATED,
    WAIT_STATE_UNSCHEDULABLE,
)
from lab.control_planes import refused
from lab.patience import until
from tests.api.world import World

TRAIN = Gang(name="train", size=3)
ONE_HERE = "1 of 3 members of gang train is here"
TWO_HERE = "2 of 3 members of gang train are here"


async def states(world: World) -> dict[str, tuple[int, int, str]]:
    return {
        each.name: (each.wait.state, each.wait.position, each.wait.gate)
        for each in await world.queue()
    }


async def replicas(world: World, *names: str) -> list[int]:
    return [sum((await world.shares(name)).values()) for name in names]


async def ask(world: World, *names: str, **fields: Any) -> None:
    await world.ask(*names, **{"gang": TRAIN, **fields})


async def test_members_wait_for_each_other_and_are_placed_together(world: World) -> None:
    await world.clusters(a=6)
    first = await world.schedule("a", gang=TRAIN)
    assert first.queued
    assert first.decision.outcome == OUTCOME_UNSCHEDULABLE
    assert first.decision.reason == ONE_HERE
    assert (await world.schedule("b", gang=TRAIN)).queued
    assert await states(world) == dict.fromkeys("ab", (WAIT_STATE_GATED, 0, TWO_HERE))
    short = {each.wait.short_of for each in await world.queue()}
    assert short == {"1 member of gang train (here: a, b)"}
    assert not (await world.schedule("c", gang=TRAIN)).queued
    assert await replicas(world, *"abc") == [1, 1, 1]
    assert await world.queued() == []
    # Each goes its own way from there, and a new one needs nobody else.
    assert not (await world.schedule("a", 3, gang=TRAIN)).queued
    await world.delete("b")
    assert await replicas(world, *"ac") == [3, 1]
    assert not (await world.schedule("d", gang=TRAIN)).queued


async def test_a_gang_without_room_waits_as_one_and_is_placed_as_one(world: World) -> None:
    await world.fill()
    await world.ask("before")
    await ask(world, *"abc", replicas=2)
    await world.ask("after")
    await world.settle()
    waits = WAIT_STATE_UNSCHEDULABLE
    assert await states(world) == {
        "before": (waits, 1, ""),
        "a": (waits, 2, ""),
        "b": (waits, 2, ""),
        "c": (waits, 2, ""),
        "after": (waits, 3, ""),
    }
    wait = await world.wait_of("c")
    assert wait.position == 2
    assert wait.short_of.startswith("cpu in 3 clusters")
    # Room for two of three, and for who is small.
    await world.report("a", 11)
    await world.until_queued(*"abc")
    tried = (await world.wait_of("a")).attempts
    await world.report("b", 4)
    await world.settle()
    # Three and one are not enough for three times two, and nobody is tried.
    assert (await world.wait_of("a")).attempts == tried
    await world.report("b", 7)
    await world.until_queued()
    assert await replicas(world, *"abc") == [2, 2, 2]


async def test_a_gang_that_lost_a_member_is_not_tried_until_it_is_complete(world: World) -> None:
    await world.fill()
    await ask(world, *"abc")
    await world.settle()
    await world.delete("a")
    assert await states(world) == dict.fromkeys("bc", (WAIT_STATE_GATED, 0, TWO_HERE))
    await world.report("a", 12)
    await world.settle()
    assert await world.queued() == ["b", "c"]
    # One that leaves the gang is placed by itself.
    assert not (await world.schedule("b")).queued
    assert (await states(world))["c"][2] == ONE_HERE
    await ask(world, "d")
    assert not (await world.schedule("e", gang=TRAIN)).queued
    assert await world.queued() == []


async def test_a_suspended_member_is_not_there(world: World) -> None:
    await world.fill()
    await ask(world, *"abc")
    await world.ask_of("SuspendBinding", "a")
    assert await states(world) == {
        "a": (WAIT_STATE_GATED, 0, "suspended"),
        "b": (WAIT_STATE_GATED, 0, TWO_HERE),
        "c": (WAIT_STATE_GATED, 0, TWO_HERE),
    }
    short = (await world.wait_of("b")).short_of
    assert short == "1 member of gang train (here: b, c, suspended: a)"
    await world.report("a", 12)
    await world.settle()
    assert len(await world.queued()) == 3
    await world.ask_of("SuspendBinding", "a", resume=True)
    await world.until_queued()


async def test_a_change_of_any_member_is_a_reason_to_try_all(world: World) -> None:
    await world.fill()
    await ask(world, *"abc", replicas=2)
    await world.report("a", 9)
    await world.settle()
    assert len(await world.queued()) == 3
    smaller = await world.schedule("b", 1, gang=TRAIN)
    assert smaller.decision.reason == (
        "c of gang train was not placed; short of room for c: cpu in 3 clusters"
    )
    await world.schedule("c", 1, gang=TRAIN)
    await world.report("a", 10)
    await world.until_queued()


async def test_what_does_not_go_together_is_refused_and_nothing_is_written(world: World) -> None:
    await world.clusters(a=6)
    await ask(world, "a")
    refusal = await refused(world.schedule("b", gang=Gang(name="train", size=2)))
    assert refusal.code is grpc.StatusCode.INVALID_ARGUMENT
    assert refusal.violations["spec.gang.size"] == "is 2, and 3 in binding a of the same gang"
    refusal = await refused(world.schedule("b", gang=TRAIN, wait=False))
    assert refusal.violations == {"wait": "must be true with spec.gang: members wait for others"}
    (result,) = await world.batch(world.workload("b", gang=TRAIN), atomic=True)
    (violation,) = result.violations
    assert violation.field == "spec.gang"
    assert violation.rule.startswith("cannot be used in an atomic batch")
    await ask(world, "b")
    await world.schedule("c", gang=TRAIN)
    refusal = await refused(world.schedule("d", gang=TRAIN))
    assert refusal.violations == {"spec.gang.name": "has its 3 members already: a, b, c"}
    assert (await refused(world.got("d"))).code is grpc.StatusCode.NOT_FOUND


async def test_members_of_one_batch_are_decided_together(world: World) -> None:
    await world.clusters(a=6)
    gang = Gang(name="train", size=4)
    results = await world.batch(
        *(world.workload(name, gang=gang) for name in "ab"), world.workload("odd", gang=TRAIN)
    )
    assert {each.decision.reason for each in results[:2]} == {
        "2 of 4 members of gang train are here"
    }
    assert [each.field for each in results[2].violations] == ["spec.gang.size"]
    # One that is asked for twice in a batch is decided twice, in order.
    twice = world.workload("b", 2, gang=gang)
    results = await world.batch(twice, *(world.workload(name, gang=gang) for name in "cd"), twice)
    assert [each.queued for each in results] == [False] * 4
    assert results[0].decision.id == results[3].decision.id
    assert await replicas(world, *"abcd") == [1, 2, 1, 1]
    assert await world.queued() == []


async def test_a_gang_is_read_once_however_many_join_it_at_once(world: World) -> None:
    await world.clusters(a=12)
    gang = Gang(name="wide", size=12)
    before = world.store.statements["bindings.of_gang"]
    results = await world.batch(*(world.workload(f"w{n}", gang=gang) for n in range(12)))
    assert [each.queued for each in results] == [False] * 12
    # To decide, as it is written, and to tell those that wait on.
    assert world.store.statements["bindings.of_gang"] == before + 3


async def test_a_preview_shows_a_member_by_itself_and_commits_nothing(world: World) -> None:
    await world.clusters(a=6)
    shown = await world.schedule("a", gang=TRAIN, preview=True)
    assert shown.decision.outcome == OUTCOME_SCHEDULED
    assert any("gang" in warning for warning in shown.decision.warnings)
    assert not shown.preview_token


async def test_members_that_come_at_the_same_time_find_each_other(world: World) -> None:
    await world.clusters(a=6)
    gang, names = Gang(name="wide", size=6), [f"w{n}" for n in range(6)]
    answers = await asyncio.gather(*(world.schedule(name, gang=gang) for name in names))
    # The last one, with those that came at once.
    assert not all(answer.queued for answer in answers)
    assert await replicas(world, *names) == [1] * 6
    assert await world.queued() == []


async def test_after_its_timeout_a_gang_says_what_is_missing(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    await world.clusters(a=6)
    await ask(world, "a", gang=Gang(name="train", size=3, timeout_seconds=1))
    wait = await world.wait_of("a")
    assert wait.times_out.seconds == wait.since.seconds + 1
    assert not wait.timed_out
    await until(lambda: world.wait_of("a"), lambda found: found.timed_out)
    assert (await world.wait_of("a")).short_of == "2 members of gang train (here: a)"

    async def told() -> list[Any]:
        await world.queue()
        return [each for each in caplog.records if "a gang has waited" in each.message]

    # By the clock of the queue it may not be over yet.
    (line,) = await world.pass_until(told, bool)
    assert vars(line)["fields"]["gang"] == f"{world.namespace}/train"
    # It is told once.
    world.clock.advance(120)
    await world.settle()
    assert len(await told()) == 1


async def test_the_most_urgent_member_counts_for_all(world: World) -> None:
    await world.fill()
    await world.ask("first", priority=5)
    for name, priority in (("a", 0), ("b", 7), ("c", 0)):
        await ask(world, name, priority=priority)
    assert [(each.name, each.wait.position) for each in await world.queue()] == [
        ("a", 1),
        ("b", 1),
        ("c", 1),
        ("first", 2),
    ]
