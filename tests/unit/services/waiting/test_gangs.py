"""Gangs: bindings that are placed together or not at all wait for each other, and as one."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from federation.model.errors import InvalidRequest
from federation.model.placement import Binding, Gang
from federation.model.waiting import WaitState
from federation.scheduler.decision import GANG, Outcome
from federation.scheduler.plugins.profile import DEFAULT_PROFILE, Profiles
from federation.services.journal import BindingChanged, Change
from federation.services.scheduling.batches import BatchItem, schedule_batch
from federation.services.scheduling.bindings import Scheduling
from federation.services.values import Scheduled
from federation.services.waiting.steering import Queueing
from federation.store.bindings import BindingStatements
from federation.store.postgres import PostgresStore
from lab.services import Deciders, apply, decided
from tests.unit.services.conftest import ControlPlane, only
from tests.unit.services.waiting.conftest import World, binding

TRAIN = Gang(name="train", size=3)


def member(name: str, **fields: Any) -> Binding:
    return binding(name, **{"gang": TRAIN, **fields})


async def states(world: World) -> dict[str, tuple[WaitState, int, str]]:
    return {
        each.name: (each.wait.state, each.position, each.wait.gate) for each in await world.waits()
    }


async def refusal(scheduling: Scheduling, wanted: Binding) -> str:
    with pytest.raises(InvalidRequest) as refused:
        await apply(scheduling, wanted)
    return str(refused.value)


async def test_members_wait_for_each_other_and_are_placed_together(
    deciders: Deciders, store: PostgresStore
) -> None:
    first = await apply(deciders.scheduling, member("a"))
    second = await apply(deciders.scheduling, member("b"))
    assert first.queued
    assert second.queued
    assert first.record.decision.outcome is Outcome.UNSCHEDULABLE
    assert first.record.decision.reason == "1 of 3 members of gang train is here"
    async with store.reading() as read:
        rows = await read.waiting.page("", None, None, 10)
    gate = "2 of 3 members of gang train are here"
    assert [(each.name, each.wait.gate, each.position) for each in rows] == [
        ("a", gate, 0),
        ("b", gate, 0),
    ]
    assert {each.wait.short_of for each in rows} == {"1 member of gang train (here: a, b)"}
    last = await apply(deciders.scheduling, member("c"))
    assert not last.queued
    assert sum(decided(last).values()) == 1
    assert [each.record.name for each in last.others] == ["a", "b"]
    for name in "abc":
        view = await deciders.scheduling.get_binding("shop", name)
        assert view.wait is None
        assert sum(each.replicas for each in view.binding.clusters) == 1


async def test_a_gang_without_room_waits_as_one_and_is_placed_as_one(world: World) -> None:
    await world.ask("before")
    for name in "abc":
        await world.ask(name, gang=TRAIN, replicas=2)
    await world.ask("after")
    await world.settle()
    unschedulable = WaitState.UNSCHEDULABLE
    assert await states(world) == {
        "before": (unschedulable, 1, ""),
        "a": (unschedulable, 2, ""),
        "b": (unschedulable, 2, ""),
        "c": (unschedulable, 2, ""),
        "after": (unschedulable, 3, ""),
    }
    shop = world.deciders.scheduling
    view = await shop.get_binding("shop", "c")
    assert view.position == 2
    assert view.wait is not None
    assert view.wait.short_of.startswith("cpu in 3 clusters")
    # Room for two of three, and for who is small.
    await world.report("a", 11)
    await world.settle()
    assert world.placed == ["before", "after"]
    assert list(await states(world)) == ["a", "b", "c"]
    tried = len(world.tries.attempts)
    await world.report("b", 4)
    await world.settle()
    # Three and one are not enough for three times two, and nobody is tried.
    assert len(world.tries.attempts) == tried
    await world.report("b", 7)
    await world.settle()
    assert await states(world) == {}
    assert world.placed[2:] == ["a"]


async def test_a_gang_that_lost_a_member_is_not_tried_until_it_is_complete(world: World) -> None:
    scheduling = world.deciders.scheduling
    for name in "abc":
        await world.ask(name, gang=TRAIN)
    await world.settle()
    await scheduling.delete_binding("shop", "a")
    gate = "2 of 3 members of gang train are here"
    assert await states(world) == dict.fromkeys("bc", (WaitState.GATED, 0, gate))
    await world.report("a", 12)
    assert await world.settle() == []
    # One that leaves the gang is placed by itself.
    assert not (await apply(scheduling, binding("b"))).queued
    assert (await states(world))["c"][2] == "1 of 3 members of gang train is here"
    await apply(scheduling, member("d"))
    assert not (await apply(scheduling, member("e"))).queued
    assert await states(world) == {}


async def test_a_suspended_member_is_not_there(world: World) -> None:
    queueing = Queueing(world.store, world.fleet, world.deciders.pipeline)
    for name in "abc":
        await world.ask(name, gang=TRAIN)
    await queueing.suspend("shop", "a")
    assert await states(world) == {
        "a": (WaitState.GATED, 0, "suspended"),
        "b": (WaitState.GATED, 0, "2 of 3 members of gang train are here"),
        "c": (WaitState.GATED, 0, "2 of 3 members of gang train are here"),
    }
    view = await world.deciders.scheduling.get_binding("shop", "b")
    assert view.wait is not None
    assert view.wait.short_of == "1 member of gang train (here: b, c, suspended: a)"
    await world.report("a", 12)
    assert await world.settle() == []
    await queueing.resume("shop", "a")
    await world.settle()
    assert await states(world) == {}


async def test_what_is_placed_of_a_gang_goes_its_own_way(deciders: Deciders) -> None:
    scheduling = deciders.scheduling
    for name in "abc":
        await apply(scheduling, member(name))
    grown = await apply(scheduling, member("a", replicas=3))
    assert sum(decided(grown).values()) == 3
    await scheduling.delete_binding("shop", "b")
    view = await scheduling.get_binding("shop", "c")
    assert sum(each.replicas for each in view.binding.clusters) == 1
    # Who takes the place of one that is gone needs nobody else.
    assert not (await apply(scheduling, member("d"))).queued


async def test_a_change_of_any_member_is_a_reason_to_try_all(world: World) -> None:
    for name in "abc":
        await world.ask(name, gang=TRAIN, replicas=2)
    await world.settle()
    await world.report("a", 9)
    await world.settle()
    assert len(await states(world)) == 3
    smaller = await apply(world.deciders.scheduling, member("b", replicas=1))
    assert smaller.record.decision.reason == (
        "c of gang train was not placed; short of room for c: cpu in 3 clusters"
    )
    await apply(world.deciders.scheduling, member("c", replicas=1))
    await world.report("a", 10)
    await world.settle()
    assert await states(world) == {}


async def test_what_does_not_go_together_is_refused_and_nothing_is_written(
    deciders: Deciders, store: PostgresStore
) -> None:
    scheduling = deciders.scheduling
    await apply(scheduling, member("a"))
    other_size = member("b", gang=replace(TRAIN, size=2))
    assert await refusal(scheduling, other_size) == (
        "spec.gang.size: is 2, and 3 in binding a of the same gang"
    )
    with pytest.raises(InvalidRequest, match=r"wait: must be true with spec\.gang"):
        await scheduling.schedule(member("b"), adopt=False, wait=False)
    (answer,) = await schedule_batch(scheduling, [BatchItem(binding=member("b"))], atomic=True)
    assert isinstance(answer, InvalidRequest)
    assert str(answer).startswith("spec.gang: cannot be used in an atomic batch")
    await apply(scheduling, member("b"))
    await apply(scheduling, member("c"))
    assert await refusal(scheduling, member("d")) == (
        "spec.gang.name: has its 3 members already: a, b, c"
    )
    async with store.reading() as read:
        assert [each.name for each in await read.bindings.page("shop", None, 10)] == ["a", "b", "c"]


async def test_members_of_one_batch_are_decided_together(
    deciders: Deciders, store: PostgresStore
) -> None:
    gang = replace(TRAIN, size=4)
    odd, twice = member("odd", gang=TRAIN), member("b", gang=gang, replicas=2)

    async def ask(*wanted: Binding) -> list[Any]:
        items = [BatchItem(binding=each) for each in wanted]
        return await schedule_batch(deciders.scheduling, items)

    first, second, refused = await ask(member("a", gang=gang), member("b", gang=gang), odd)
    assert isinstance(refused, InvalidRequest)
    assert {first.record.decision.reason, second.record.decision.reason} == {
        "2 of 4 members of gang train are here"
    }
    # One that is asked for twice in a batch is decided twice, in order.
    again, *others = await ask(twice, member("c", gang=gang), member("d", gang=gang), twice)
    assert not any(each.queued for each in (again, *others))
    assert [each.record.name for each in again.others] == ["a"]
    for name, replicas in zip("abcd", (1, 2, 1, 1), strict=True):
        view = await deciders.scheduling.get_binding("shop", name)
        assert sum(each.replicas for each in view.binding.clusters) == replicas
        assert view.wait is None
    assert others[-1].record.id == again.record.id
    (extra,) = await ask(member("e", gang=gang))
    assert "has its 4 members already: a, b, c, d" in str(extra)


async def test_a_gang_is_read_once_however_many_join_it_at_once(
    deciders: Deciders, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    of_gang = BindingStatements.of_gang

    async def counted(self: BindingStatements, namespace: str, gang: str) -> Any:
        read.append(gang)
        return await of_gang(self, namespace, gang)

    monkeypatch.setattr(BindingStatements, "of_gang", counted)
    gang = Gang(name="wide", size=12)
    items = [BatchItem(binding=member(f"w{n}", gang=gang)) for n in range(12)]
    answers = await schedule_batch(deciders.scheduling, items)
    assert [isinstance(each, Scheduled) and each.queued for each in answers] == [False] * 12
    # To decide, as it is written, and to tell those that wait on.
    assert len(read) == 3


async def test_a_preview_shows_a_member_by_itself_and_commits_nothing(deciders: Deciders) -> None:
    shown = await deciders.previews.preview(member("a"), adopt=False, wait=True)
    assert shown.record.decision.outcome is Outcome.SCHEDULED
    assert GANG in shown.record.decision.trace.warnings
    assert not shown.token


async def test_members_that_come_at_two_control_planes_find_each_other(
    one: ControlPlane, other: ControlPlane
) -> None:
    names = [f"w{n}" for n in range(6)]
    gang = Gang(name="wide", size=6)
    answers: list[Scheduled] = await asyncio.gather(
        *(
            apply((one, other)[n % 2].deciders.scheduling, member(name, gang=gang))
            for n, name in enumerate(names)
        )
    )
    # The last one, with those that came at once.
    assert any(not each.queued for each in answers)
    for name in names:
        view = await one.deciders.scheduling.get_binding("shop", name)
        assert view.wait is None
        assert view.binding.clusters


async def test_after_its_timeout_a_gang_says_what_is_missing(world: World) -> None:
    gang = replace(TRAIN, timeout_seconds=1)
    await world.ask("a", gang=gang)
    (row,) = await world.waits()
    assert row.wait.times_out == row.wait.since + 1
    async with asyncio.timeout(60):
        while not row.wait.has_timed_out:
            (row,) = await world.waits()
    assert row.wait.short_of == "2 members of gang train (here: a)"


async def test_watchers_are_told_once_that_a_gang_has_timed_out(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[Change] = []
    await world.ask("a", gang=replace(TRAIN, timeout_seconds=1))
    await world.settle()
    world.fleet.observe(told.append)
    (row,) = await world.waits()
    assert row.wait.times_out is not None
    world.clock.time = row.wait.times_out + 1
    async with asyncio.timeout(60):
        while not told:
            # By the database's clock it may not be over yet.
            world.clock.time += 1
            await world.settle()
    await world.settle()
    assert [(each.name, each.waits) for each in told if isinstance(each, BindingChanged)] == [
        ("a", True)
    ]
    assert len(told) == 1
    (line,) = [each for each in caplog.records if "a gang has waited" in each.message]
    assert vars(line)["fields"] == {
        "gang": "shop/train",
        "short_of": "2 members of gang train (here: a)",
    }
    # Who takes over long after has nothing to tell.
    world.clock.time += 120
    await world.take_over()
    assert len(told) == 1


async def test_the_most_urgent_member_counts_for_all(world: World) -> None:
    await world.ask("first", priority=5)
    for name, priority in (("a", 0), ("b", 7), ("c", 0)):
        await world.ask(name, gang=TRAIN, priority=priority)
    assert [(each.name, each.position) for each in await world.waits()] == [
        ("a", 1),
        ("b", 1),
        ("c", 1),
        ("first", 2),
    ]
    page = await Queueing(world.store, world.fleet, world.deciders.pipeline).list("", None, None, 2)
    assert [each.name for each in page.bindings] == ["a", "b"]


async def test_a_gang_outlives_its_control_plane(world: World) -> None:
    for name in "abc":
        await world.ask(name, gang=TRAIN, replicas=2)
    await world.settle()
    await world.take_over()
    await world.report("a", 12)
    await world.settle()
    assert await states(world) == {}


async def test_room_is_kept_for_a_gang_from_others_and_not_from_itself(world: World) -> None:
    world.profiles = Profiles.of([replace(DEFAULT_PROFILE, starvation_seconds=4.0)])
    await world.take_over()
    for name in "abc":
        await world.ask(name, gang=TRAIN, replicas=2)
    await world.settle()
    await world.report("a", 8)
    await world.settle()
    assert not (await apply(world.deciders.scheduling, only("a", 2))).queued
    await world.settle()
    assert [each.wait.overtaken_by for each in await world.waits()] == ["shop/web"] * 3
    world.clock.time += 5
    await world.settle()
    assert all(each.wait.earmarked_since for each in await world.waits())
    await world.report("a", 12)
    late = await apply(world.deciders.scheduling, replace(only("a", 1), name="late", uid=""))
    assert late.queued
    assert "room is kept for shop/a, shop/b, shop/c" in late.record.decision.reason
    await world.report("a", 14)
    await world.settle()
    assert world.placed == ["a"]
    assert list(await states(world)) == ["late"]
