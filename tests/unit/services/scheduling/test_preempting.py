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
from federation.model.placement import Binding, Gang, PreemptionPolicy
from federation.scheduler.simulation import Simulation, SimulationOptions
from federation.services.fleet.registry import FleetOwner
from federation.services.journal_ports import PreemptionLimits
from federation.store.postgres import PostgresStore
from lab.services import (
    Agents,
    Deciders,
    apply,
    decided,
    make_deciders,
    make_report,
    shares,
)
from tests.unit.services.conftest import ControlPlane, MeddledStore, StillClock, held, only

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
