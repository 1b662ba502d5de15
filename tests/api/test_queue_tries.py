"""The queue: what waits is tried when there may be room, in order, and no sooner."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import grpc
import pytest

from federation.v1.resource_pb2 import ClusterAffinity, LabelSelector, ReplicaSchedulingStrategy
from federation.v1.scheduling_pb2 import (
    OUTCOME_PARTIAL,
    WAIT_STATE_BACKOFF,
    WAIT_STATE_GATED,
    WAIT_STATE_UNSCHEDULABLE,
)
from lab.control_planes import Refusal, refused
from lab.patience import until
from tests.api.world import World, shares

TRIED = ["the queue tried it again", "it was never placed"]


async def attempts(world: World, *names: str) -> list[int]:
    return [(await world.wait_of(name)).attempts for name in names]


async def suspend(world: World, name: str, *, resume: bool = False, uid: str = "") -> Any:
    return (await world.ask_of("SuspendBinding", name, resume=resume, uid=uid)).wait


async def reschedule(world: World, name: str, uid: str = "") -> Any:
    return await world.ask_of("RescheduleBinding", name, uid=uid)


async def test_a_report_that_shows_room_places_as_many_as_find_some_in_order(world: World) -> None:
    await world.fill()
    await world.ask("one", "two", "three")
    await world.ask("urgent", priority=5)
    await world.settle()
    before = await attempts(world, "two", "three")
    await world.report("b", 5)
    await world.settle()
    assert await world.queued() == ["two", "three"]
    assert await world.shares("urgent") == await world.shares("one") == {"b": 1}
    assert not (await world.got("urgent")).HasField("wait")
    # When those have taken it, nobody else is even tried.
    assert await attempts(world, "two", "three") == before


async def test_nobody_is_tried_while_nothing_has_grown(world: World) -> None:
    await world.fill()
    await world.ask("one", "two")
    await world.ask("large", replicas=7)
    await world.settle()
    before = await attempts(world, "one", "two", "large")
    await world.report("a", 6)
    await world.report("b", 2)
    await world.settle()
    assert await attempts(world, "one", "two", "large") == before


async def test_a_refusal_in_vain_leaves_the_decision_and_tells_what_is_short_by_now(
    world: World,
) -> None:
    await world.fill()
    await world.ask("large", replicas=14)
    await world.settle()
    before = await world.got("large")
    await world.report("a", 7)
    await world.settle()
    after = await world.got("large")
    assert after.decision.id == before.decision.id
    assert after.wait.attempts == before.wait.attempts + 1
    assert after.wait.short_of == "cpu in 3 clusters"


@pytest.mark.parametrize("is_new", [False, True], ids=["waited too", "came just now"])
async def test_what_is_small_may_overtake_what_is_large_and_that_is_told(
    world: World, is_new: bool
) -> None:
    await world.fill()
    await world.ask("large", replicas=7)
    if not is_new:
        await world.ask("small")
    await world.report("a", 7)
    await world.settle()
    if is_new:
        assert not (await world.schedule("small")).queued
        await world.settle()
    wait = await world.wait_of("large")
    assert wait.HasField("overtaken_since")
    assert wait.overtaken_by == f"{world.namespace}/small"


@pytest.mark.parametrize("how", ["release", "delete", "shrink"])
async def test_what_is_given_back_is_room(world: World, how: str) -> None:
    await world.fill()
    await world.ask("one", "two", "three", "four")
    match how:
        case "release":
            await world.release("on-b")
        case "delete":
            await world.delete("on-b")
        case _:
            assert not (await world.schedule("on-a", 3, only=["a"])).queued
    await world.until_queued("four")


async def test_an_uncordoned_cluster_wakes_who_may_go_there(world: World) -> None:
    await world.fill()
    await world.plane.ask("CordonCluster", name="c", cordoned=True)
    await world.report("c", 4)
    await world.ask("one")
    await world.settle()
    assert await world.queued() == ["one"]
    await world.plane.ask("CordonCluster", name="c")
    await world.until_placed("one", c=1)


async def test_a_decision_of_the_queue_says_that_the_queue_tried_it(world: World) -> None:
    await world.fill()
    await world.ask("one", replicas=2)
    await world.report("b", 5)
    await world.until_placed("one", b=2)
    assert list((await world.got("one")).decision.triggers) == TRIED
    # One that had a place, and waits again: nothing that its owner asks for has changed.
    assert (await world.schedule("one", 2, only=["c"])).queued
    await world.report("c", 8)
    await world.until_placed("one", c=2)
    triggers = list((await world.got("one")).decision.triggers)
    assert triggers[0] == TRIED[0]
    assert "asked again, nothing changed" not in triggers


async def test_what_is_left_of_a_partial_placement_is_placed_when_there_is_room(
    world: World,
) -> None:
    await world.fill()
    await world.report("b", 5)
    await world.ask("part", replicas=4, placement={"partial": True})
    await world.report("c", 5)
    await world.until_placed("part", b=2, c=2)
    await world.until_queued()


async def test_what_is_duplicated_grows_in_a_cluster_that_is_seen_again(world: World) -> None:
    await world.clusters(b=9, c=9)
    everywhere = {
        "replica_scheduling": ReplicaSchedulingStrategy(replica_scheduling_type="Duplicated")
    }
    fields = {"only": ["b", "c"], "placement": everywhere}
    assert not (await world.schedule("everywhere", 2, **fields)).queued
    world.agents["b"].blind = "the API server is gone"
    await world.report("b", 9)
    answer = await world.schedule("everywhere", 4, **fields)
    assert answer.decision.outcome == OUTCOME_PARTIAL
    assert (answer.queued, shares(answer.decision.clusters)) == (True, {"b": 2, "c": 4})
    # No change tells of a heartbeat, so that it is looked for once a second.
    world.agents["b"].blind = ""
    await world.agents["b"].beat()

    await world.pass_until(
        lambda: world.shares("everywhere"), lambda found: found == {"b": 4, "c": 4}
    )
    await world.until_queued()


async def test_a_binding_that_is_changed_or_gone_is_tried_as_it_is_now(world: World) -> None:
    await world.fill()
    await world.ask("gone", "changed")
    await world.delete("gone")
    await world.ask("changed", replicas=2)
    await world.report("b", 5)
    await world.until_placed("changed", b=2)
    await world.until_queued()


async def test_who_fails_for_a_passing_reason_is_tried_after_a_while(world: World) -> None:
    await world.fill()
    await world.ask("one")
    await world.settle()
    world.store.fail_at("bindings.lock_all")
    await world.report("b", 4)
    await until(lambda: world.wait_of("one"), lambda wait: wait.state == WAIT_STATE_BACKOFF)
    assert (await world.wait_of("one")).HasField("next_try")
    # Also by who has just taken over the queue.
    world.plane.plane.parts.keeper.lost()
    await world.settle()
    assert await world.queued() == ["one"]
    await world.pass_until(world.shares_of("one"), lambda placed: placed == {"b": 1})


@pytest.mark.parametrize("statement", ["bindings.find", "waiting.note"])
async def test_a_round_that_the_database_ended_keeps_nobody_from_being_tried(
    world: World, statement: str
) -> None:
    await world.fill()
    await world.ask("one", "two")
    await world.settle()
    failed = world.store.statements[statement]
    world.store.fail_at(statement)
    await world.ask("large", replicas=20)
    await until(world.queued, lambda _: world.store.statements[statement] > failed)
    await world.report("b", 5)
    await world.until_queued("large")


async def test_who_may_go_to_a_cluster_by_now_is_tried_when_that_has_room(world: World) -> None:
    await world.fill()
    gold = ClusterAffinity(label_selector=LabelSelector(match_labels={"tier": "gold"}))
    await world.ask("gold", placement={"cluster_affinity": gold})
    await world.settle()
    before = await attempts(world, "gold")
    b = (await world.plane.ask("GetCluster", name="b")).cluster
    b.metadata.labels["tier"] = "gold"
    await world.plane.ask("UpdateCluster", cluster=b)
    await world.settle()
    # It may go there, and there is no room.
    assert await attempts(world, "gold") == before
    await world.report("b", 5)
    await world.until_placed("gold", b=1)


async def test_who_is_suspended_is_neither_tried_nor_decided_until_it_is_resumed(
    world: World,
) -> None:
    await world.fill()
    await world.ask("one", "two")
    await world.settle()
    before = await world.got("one")
    wait = await suspend(world, "one")
    assert (wait.state, wait.gate, wait.position) == (WAIT_STATE_GATED, "suspended", 0)
    # Suspended twice it is once.
    assert await suspend(world, "one") == wait
    for call in (world.schedule("one"), reschedule(world, "one")):
        refusal = await refused(call)
        assert (refusal.code, refusal.reason) == (
            grpc.StatusCode.FAILED_PRECONDITION,
            "SUSPENDED",
        )
    await world.report("b", 5)
    await world.settle()
    assert await world.queued() == ["one"]
    assert (await world.got("one")).decision.id == before.decision.id
    assert (await suspend(world, "one", resume=True)).state == WAIT_STATE_UNSCHEDULABLE
    await world.until_placed("one", b=1)


async def test_what_runs_stays_where_it_is_while_it_is_suspended(world: World) -> None:
    await world.clusters(a=6)
    await world.schedule("web", 3)
    preview = await world.schedule("web", 2, preview=True)
    await suspend(world, "web")
    assert await world.shares() == {"a": 3}
    refusal = await refused(world.commit(preview))
    assert "suspended meanwhile" in refusal.message
    await suspend(world, "web", resume=True)
    # It waited for nothing before.
    assert not (await world.got()).HasField("wait")
    await suspend(world, "web")
    await world.delete()
    assert (await refused(suspend(world, "web", resume=True))).code is grpc.StatusCode.NOT_FOUND


async def test_what_is_rescheduled_is_divided_anew_as_it_is_stored(world: World) -> None:
    await world.clusters(a=6, b=3, c=3)
    await world.schedule("elsewhere", 3, only=["b"])
    await world.schedule("web", 8, uid="uid-web")
    assert (await world.shares())["a"] > 4
    await world.delete("elsewhere")
    await world.report("b", 60)
    moved = await reschedule(world, "web", "uid-web")
    assert shares(moved.decision.clusters)["b"] > 4
    assert moved.binding.spec.replicas == 8


@pytest.mark.parametrize("act", ["suspend", "resume", "reschedule"])
async def test_what_is_not_there_or_is_another_is_refused(world: World, act: str) -> None:
    async def refusal_of(name: str, uid: str = "") -> Refusal:
        if act == "reschedule":
            return await refused(reschedule(world, name, uid))
        return await refused(suspend(world, name, resume=act == "resume", uid=uid))

    await world.clusters(a=6)
    assert "There is no binding" in (await refusal_of("nobody")).message
    await world.schedule("web-deployment", uid="uid-web")
    decision = (await world.got("web-deployment")).decision.id
    assert f"Is it '{world.namespace}/web-deployment'?" in (await refusal_of("web")).message
    refusal = await refusal_of("web-deployment", "another")
    assert refusal.code is grpc.StatusCode.FAILED_PRECONDITION
    assert "uid-web" in refusal.message
    if act == "resume":
        assert (await refusal_of("web-deployment")).reason == "NOT_SUSPENDED"
    assert (await world.got("web-deployment")).decision.id == decision


async def test_one_of_two_control_planes_tries_what_waits_at_either(
    world: World, rival: World
) -> None:
    await world.fill()
    await rival.plane.follow()
    for plane, name in ((rival, "there"), (world, "here")):
        assert (await plane.schedule(name, 1)).queued
    await world.settle()
    before = await attempts(world, "there", "here")
    await world.report("b", 4)
    await world.until_placed("there", b=1)
    await world.settle()
    # The other one has tried it no sooner, and nobody twice.
    assert await world.queued() == ["here"]
    assert (await attempts(world, "here"))[0] <= before[1] + 1
    # Nor does it know who waits as long as it has not the duty.
    keeper = rival.plane.plane.parts.keeper
    keeper.lost()
    await world.settle()
    assert len(keeper) == 0


async def test_who_may_preempt_is_tried_when_something_to_preempt_was_placed(world: World) -> None:
    await world.fill()
    urgent = {"only": ["b"], "preemption_policy": "PreemptLowerPriority"}
    for name in ("on-a", "on-b", "on-c"):
        cluster = name[-1]
        count = sum((await world.shares(name)).values())
        await world.schedule(name, count, only=[cluster], priority=9)
    await world.ask("urgent", **urgent)
    await world.settle()
    shrunk = world.workload("on-b", 2, only=["b"], priority=9)
    await world.batch(shrunk, world.workload("victim", only=["b"], priority=-5))
    await world.until_placed("urgent", b=1)
    await world.until_queued("victim")


@pytest.mark.expected_errors("no event had told of the room")
async def test_room_that_no_event_tells_of_is_found_in_the_end_and_that_is_told(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    await world.fill()
    await world.ask("one")
    # Entries of how clusters joined, read later, have all that waits looked at. Transactions
    # elsewhere on the server may hold them back.
    parts = world.plane.plane.parts
    ((newest,),) = await world.plane.sql("SELECT max(id) FROM journal")

    async def read_until() -> int:
        await world.plane.follow()
        return parts.fleet.position

    await until(read_until, lambda entry: entry >= newest)
    await world.settle()
    with monkeypatch.context() as patched:
        patched.setattr(parts.fleet, "_observers", defaultdict(list))
        await world.report("b", 5)
    await world.settle()
    assert await world.queued() == ["one"]
    parts.keeper._sweep_at = world.clock.now()
    parts.keeper._wake.set()
    await world.until_placed("one", b=1)
    assert "no event had told of the room of what waits" in caplog.messages
