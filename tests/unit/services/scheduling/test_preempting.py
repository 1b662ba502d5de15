"""Preemption: who is urgent takes what others were promised, in one transaction, within limits."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from contextlib import suppress
from dataclasses import replace

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from federation.model.cluster import Cluster, ClusterState
from federation.model.errors import Conflict
from federation.model.placement import Binding, Gang, Placement, PreemptionPolicy
from federation.model.waiting import WaitState
from federation.scheduler.decision import Decision, Outcome
from federation.scheduler.preemption import NOTHING_HELPS, SPENT
from federation.scheduler.simulation import Simulation, SimulationOptions
from federation.services.fleet.registry import FleetOwner
from federation.services.journal_ports import PreemptionLimits
from federation.store.postgres import PostgresStore
from lab.services import (
    DYNAMIC,
    WEB,
    Agents,
    Deciders,
    apply,
    decided,
    make_deciders,
    make_report,
    shares,
)
from tests.unit.services.conftest import ControlPlane, MeddledStore, StillClock, held, only, rows

URGENT = PreemptionPolicy.PREEMPT_LOWER_PRIORITY


def named(name: str, binding: Binding, priority: int = 0, namespace: str = "shop") -> Binding:
    return replace(binding, name=name, namespace=namespace, uid="", priority=priority)


def urgent(name: str, binding: Binding, priority: int = 10) -> Binding:
    return replace(named(name, binding, priority), preemption_policy=URGENT)


def in_parts(binding: Binding, least: int | None = None) -> Binding:
    placement = replace(binding.placement, partial=True)
    return replace(binding, placement=placement, min_available=least)


async def placed(deciders: Deciders, *bindings: Binding) -> list[dict[str, int]]:
    return [decided(await apply(deciders.scheduling, each)) for each in bindings]


async def where(store: PostgresStore, *bindings: Binding) -> list[dict[str, int]]:
    """By the binding and by what it holds, which is the same."""
    found = []
    async with store.reading() as read:
        for each in bindings:
            stored = await read.bindings.get(each.namespace, each.name)
            assert stored is not None
            found.append({target.name: target.replicas for target in stored.binding.clusters})
            assert await held(store, each) == found[-1]
    return found


async def test_the_least_urgent_that_are_enough_lose_their_shares(
    deciders: Deciders, store: PostgresStore, fleet: FleetOwner
) -> None:
    """Three cores in each of two clusters; nothing is taken that could be spared."""
    low, middle, high = (
        named("low", only("b", 1), -5),
        named("middle", only("b", 2), 3),
        named("high", only("c", 3), 4),
    )
    await placed(deciders, low, middle, high)
    wanted = urgent(
        "urgent", replace(only("b", 1), placement=Placement(replica_scheduling=DYNAMIC))
    )
    filling = named("filling", only("a", 6), 20)
    await placed(deciders, filling)
    answer = await apply(deciders.scheduling, wanted)
    assert decided(answer) == {"b": 1}
    assert answer.record.decision.outcome is Outcome.SCHEDULED
    assert answer.record.decision.trace.preempted == ("shop/low: 1 in b, priority -5",)
    assert await where(store, low, middle, high) == [{}, {"b": 2}, {"c": 3}]
    view = await deciders.scheduling.get_binding("shop", "low")
    assert view.record is not None
    decision = view.record.decision
    assert (decision.outcome, decision.clusters, decision.remainder) == (
        Outcome.UNSCHEDULABLE,
        (),
        1,
    )
    assert decision.reason == "preempted by shop/urgent: 1 in b"
    assert decision.trace.triggers == ("preempted by shop/urgent",)
    # It goes back to waiting.
    assert view.wait is not None
    assert (view.wait.state, view.wait.remainder) == (WaitState.UNSCHEDULABLE, 1)
    assert fleet.ledger("b").bindings() == ["shop/middle", "shop/urgent"]


async def test_who_does_not_wait_preempts_though_decided_beside_others(
    deciders: Deciders,
) -> None:
    await placed(deciders, named("low", only("b", 3)))
    submit = deciders.pipeline.submit
    beside = submit(named("beside", only("c", 1)), adopt=False, wait=False)
    wanted = submit(urgent("urgent", only("b", 2)), adopt=False, wait=False)
    assert decided(await beside) == {"c": 1}
    assert decided(await wanted) == {"b": 2}


async def test_it_is_one_transaction(deciders: Deciders, engine: AsyncEngine) -> None:
    await placed(deciders, named("low", only("b", 2)), named("lower", only("b", 1), -1))
    assert await placed(deciders, urgent("urgent", only("b", 3))) == [{"b": 3}]
    async with engine.connect() as connection:
        counted = await connection.execute(
            text(
                "SELECT count(*), count(DISTINCT xmin::text) FROM decision "
                "WHERE reason LIKE 'preempted by%' OR name = 'urgent'"
            )
        )
        assert tuple(counted.one()) == (3, 1)


async def test_a_share_that_may_shrink_loses_replicas_one_by_one(
    deciders: Deciders, store: PostgresStore
) -> None:
    low = named("low", in_parts(only("a", 6)))
    await placed(deciders, low)
    assert await placed(deciders, urgent("urgent", only("a", 2))) == [{"a": 2}]
    assert await where(store, low) == [{"a": 4}]
    view = await deciders.scheduling.get_binding("shop", "low")
    assert view.record is not None
    assert (view.record.decision.outcome, view.record.decision.remainder) == (Outcome.PARTIAL, 2)
    # Not below what it is worth nothing with.
    least = named("least", in_parts(only("b", 3), least=2))
    await placed(deciders, least)
    assert await placed(deciders, urgent("more", only("b", 2))) == [{}]
    assert await placed(deciders, urgent("fewer", only("b", 1))) == [{"b": 1}]
    assert await where(store, least) == [{"b": 2}]


async def test_a_cluster_that_needs_no_victims_comes_first(
    deciders: Deciders, store: PostgresStore
) -> None:
    low = named("low", only("a", 6))
    await placed(deciders, low)
    anywhere = replace(WEB, replicas=2, placement=Placement(replica_scheduling=DYNAMIC))
    answer = await apply(deciders.scheduling, urgent("urgent", anywhere))
    assert "a" not in decided(answer)
    assert answer.record.decision.trace.preempted == ()
    assert await where(store, low) == [{"a": 6}]


@pytest.mark.parametrize(
    "spared",
    [
        named("other", only("b", 3), 10),
        replace(named("other", only("b", 3)), preemptible=False),
        named("other", only("c", 3)),
    ],
)
async def test_who_may_not_be_preempted_is_spared(
    spared: Binding, deciders: Deciders, store: PostgresStore
) -> None:
    """Of the same priority, by its own policy, or of no use."""
    await placed(deciders, spared, named("filling", only("b", 3), 20))
    answer = await apply(deciders.scheduling, urgent("urgent", only("b", 1)))
    decision = answer.record.decision
    assert decision.outcome is Outcome.UNSCHEDULABLE
    assert decision.reason.endswith(NOTHING_HELPS)
    assert len(await where(store, spared)) == 1
    # Asked again it is told the same, and nothing is written.
    again = await apply(deciders.scheduling, urgent("urgent", only("b", 1)))
    assert again.record.id == answer.record.id


async def test_who_does_not_ask_for_it_preempts_nobody(
    deciders: Deciders, store: PostgresStore
) -> None:
    low = named("low", only("b", 3))
    await placed(deciders, low)
    answer = await apply(deciders.scheduling, named("high", only("b", 1), 10))
    assert answer.record.decision.outcome is Outcome.UNSCHEDULABLE
    assert NOTHING_HELPS not in answer.record.decision.reason
    assert await where(store, low) == [{"b": 3}]


async def test_a_preview_shows_who_would_lose_and_preempts_nobody(
    deciders: Deciders, store: PostgresStore
) -> None:
    low = named("low", only("b", 3))
    await placed(deciders, low)
    previewed = await deciders.previews.preview(
        urgent("urgent", only("b", 1)), adopt=False, wait=True
    )
    assert shares(previewed.record.decision.clusters) == {"b": 1}
    assert previewed.record.decision.trace.preempted == ("shop/low: 3 in b, priority 0",)
    assert previewed.token == ""
    assert await where(store, low) == [{"b": 3}]


async def test_a_simulation_preempts_as_the_service_does(deciders: Deciders) -> None:
    every = [
        named("low", in_parts(only("a", 6)), -5),
        named("middle", only("b", 2), 3),
        named("high", only("c", 3), 4),
        urgent("first", replace(only("a", 5), placement=Placement(replica_scheduling=DYNAMIC))),
        urgent("second", only("b", 2)),
        urgent("third", only("c", 4)),
    ]
    for each in every:
        await apply(deciders.scheduling, each)
    reports = {"a": 6000, "b": 3000, "c": 3000}
    states = [
        ClusterState(cluster=Cluster(name=name), report=make_report(cpu_millis=free))
        for name, free in reports.items()
    ]
    simulated = Simulation(states, SimulationOptions(), now=0.0).decide_all(every)
    live = []
    for each in every:
        view = await deciders.scheduling.get_binding("shop", each.name)
        assert view.record is not None
        live.append(view.record.decision)

    def gist(decision: Decision) -> object:
        told = decision.trace.preempted
        return decision.outcome, decision.clusters, decision.remainder, decision.reason, told

    assert [gist(each) for each in simulated] == [gist(each) for each in live]
    assert shares(simulated[0].clusters) == {"a": 2}
    assert "preempted by shop/second" in simulated[1].reason
    assert simulated[5].reason.endswith(NOTHING_HELPS)


@pytest.mark.parametrize("level", ["pools", "summary", "stated"])
def test_a_simulation_makes_room_for_a_whole_gang_or_for_nobody(level: str) -> None:
    report = make_report(cpu_millis=3000)
    report = report if level == "pools" else replace(report, pools=None)
    states = [ClusterState(cluster=Cluster(name=name), report=report) for name in "bc"]
    stated = {"b": 3, "c": 3} if level == "stated" else {}
    options = SimulationOptions(available_replicas=stated)
    low = [named("low", only("b", 3)), named("other", only("c", 3))]

    def gang(last: int) -> list[Binding]:
        members = [urgent("one", only("b", 2)), urgent("two", only("c", last))]
        return [replace(each, gang=Gang(name="train", size=2)) for each in members]

    decisions = Simulation(states, options, now=0.0).decide_all([*low, *gang(3)])
    assert [shares(each.clusters) for each in decisions] == [{}, {}, {"b": 2}, {"c": 3}]
    decisions = Simulation(states, options, now=0.0).decide_all([*low, *gang(4)])
    assert [shares(each.clusters) for each in decisions] == [{"b": 3}, {"c": 3}, {}, {}]


def limited(
    store: PostgresStore, fleet: FleetOwner, clock: StillClock, limits: PreemptionLimits
) -> Deciders:
    return make_deciders(store, fleet, Agents(), clock, preemption_limits=limits)


async def test_so_many_replicas_are_preempted_within_a_minute_and_no_more(
    deciders: Deciders,
    store: PostgresStore,
    fleet: FleetOwner,
    clock: StillClock,
    engine: AsyncEngine,
) -> None:
    low = named("low", in_parts(only("a", 6)))
    other = named("low", in_parts(only("b", 3)), namespace="other")
    plane = limited(store, fleet, clock, PreemptionLimits(replicas=4, in_namespace=3))
    await placed(plane, low, other)
    assert await placed(plane, urgent("u1", only("a", 2)), urgent("u2", only("a", 1))) == [
        {"a": 2},
        {"a": 1},
    ]
    third = await apply(plane.scheduling, urgent("u3", only("a", 1)))
    assert decided(third) == {}
    assert third.record.decision.reason.endswith(SPENT)
    # Of another namespace one more; then none at all.
    assert await placed(plane, urgent("u4", only("b", 1)), urgent("u5", only("b", 1))) == [
        {"b": 1},
        {},
    ]
    async with engine.begin() as connection:
        await connection.execute(text("UPDATE preemption SET at = at - interval '61 seconds'"))
    assert await placed(plane, urgent("u3", only("a", 1))) == [{"a": 1}]
    assert await where(store, low, other) == [{"a": 2}, {"b": 2}]
    assert plane.pipeline.measures.preempted == 5


async def test_two_control_planes_keep_the_limit_together(
    one: ControlPlane,
    other: ControlPlane,
    store: PostgresStore,
    clock: StillClock,
    engine: AsyncEngine,
) -> None:
    """And preempt nobody twice, nor anybody of their own priority."""
    limits = PreemptionLimits(replicas=5, in_namespace=5)
    planes = [limited(store, each.fleet, clock, limits) for each in (one, other)]
    low = named("low", in_parts(only("a", 6)))
    await placed(planes[0], low)
    wanted = [urgent(f"u{number}", only("a", 1)) for number in range(8)]
    answers = await asyncio.gather(
        *(apply(planes[number % 2].scheduling, each) for number, each in enumerate(wanted))
    )
    assert sum(bool(decided(each)) for each in answers) == 5
    assert await where(store, low) == [{"a": 1}]
    assert sum(len(each) for each in await where(store, *wanted)) == 5
    async with engine.connect() as connection:
        spent = await connection.execute(text("SELECT sum(replicas) FROM preemption"))
        assert spent.scalar_one() == 5


async def test_a_victim_that_changed_meanwhile_is_looked_at_again(
    one: ControlPlane, other: ControlPlane, meddled: MeddledStore, store: PostgresStore
) -> None:
    low = named("low", only("b", 2))
    await placed(one.deciders, low, named("lower", only("b", 1), -1))
    await other.follow()
    meddled.meddle = lambda: apply(one.deciders.scheduling, replace(low, preemptible=False))
    answer = await apply(other.deciders.scheduling, urgent("urgent", only("b", 1)))
    assert decided(answer) == {"b": 1}
    assert await where(store, low) == [{"b": 2}]


async def test_of_a_duplicated_binding_the_shares_that_are_in_the_way_are_taken(
    deciders: Deciders, store: PostgresStore
) -> None:
    everywhere = named("everywhere", replace(WEB, replicas=2, placement=Placement()))
    await placed(deciders, everywhere)
    assert await placed(deciders, urgent("urgent", only("b", 3))) == [{"b": 3}]
    assert await where(store, everywhere) == [{"a": 2, "c": 2}]


async def test_who_loses_may_win_elsewhere_and_no_cycle_begins(
    deciders: Deciders, store: PostgresStore, engine: AsyncEngine
) -> None:
    """Ten bindings that all preempt ask again and again: the most urgent have the room at last."""
    wanted = [urgent(f"u{priority}", only("b", 1), priority) for priority in range(10)]
    for _ in range(2):
        await asyncio.gather(*(apply(deciders.scheduling, each) for each in wanted))
    running = [name for name, each in enumerate(await where(store, *wanted)) if each]
    assert running == [7, 8, 9]
    before = await rows(engine, "decision")
    await asyncio.gather(*(apply(deciders.scheduling, each) for each in wanted))
    assert await rows(engine, "decision") == before


CAPACITY = {"a": 6, "b": 3, "c": 3}


@pytest.mark.parametrize("seed", range(3))
async def test_three_control_planes_preempt_strictly_downwards_and_never_overcommit(
    one: ControlPlane, store: PostgresStore, clock: StillClock, engine: AsyncEngine, seed: int
) -> None:
    """Whatever is asked of them at once."""
    choices = random.Random(seed)
    limits = PreemptionLimits(replicas=30, in_namespace=30)
    fleets = [one.fleet]
    for _ in range(2):
        fleets.append(FleetOwner(store))
        await fleets[-1].load(grace_until=clock.now() + 3600)
    planes = [limited(store, fleet, clock, limits) for fleet in fleets]
    low = [named(f"low-{name}", in_parts(only(name, most)), -1) for name, most in CAPACITY.items()]
    await placed(planes[0], *low)
    wanted = {each.name: each for each in low}

    async def ask(number: int) -> None:
        name, cluster = f"w{number % 12}", choices.choice("abc")
        made = urgent(name, only(cluster, choices.randint(1, 3)), choices.randint(0, 5))
        made = in_parts(made) if choices.random() < 0.5 else made
        made = wanted.setdefault(name, made)
        with suppress(Conflict):
            await apply(choices.choice(planes).scheduling, made)

    for round_ in range(4):
        await asyncio.gather(*(ask(number) for number in range(round_ * 9, round_ * 9 + 9)))
    priorities = {each.key: each.priority for each in wanted.values()}
    async with engine.connect() as connection:
        lost = await connection.execute(
            text("SELECT name, reason FROM decision WHERE reason LIKE 'preempted by%'")
        )
        by = [(f"shop/{name}", reason.split()[2].rstrip(":")) for name, reason in lost]
        spent = await connection.execute(text("SELECT sum(replicas) FROM preemption"))
        assert 0 < spent.scalar_one() <= 30
    assert by
    assert all(priorities[victim] < priorities[winner] for victim, winner in by)
    used = Counter[str]()
    for each in await where(store, *wanted.values()):
        used.update(each)
    assert all(used[name] <= most for name, most in CAPACITY.items())
