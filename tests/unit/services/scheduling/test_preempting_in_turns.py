"""Preemption of what runs, by three control planes at once, while pods come and go as they will."""

from __future__ import annotations

import asyncio
import random
from collections import Counter, defaultdict
from contextlib import suppress
from dataclasses import dataclass, field, replace

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from federation.model.errors import Conflict
from federation.model.placement import Binding, PreemptionPolicy
from federation.services.fleet.registry import FleetOwner
from federation.services.journal_ports import PreemptionLimits
from federation.services.members.reports import Reporting
from federation.store.postgres import PostgresStore
from lab.reports import echo
from lab.services import Agents, apply, make_deciders, make_report
from tests.unit.services.conftest import ControlPlane, StillClock, only

CORES = {"a": 6, "b": 3, "c": 3}
MOST = 12


@dataclass
class Pods:
    """What runs, by cluster and binding; no cluster ever runs more than it can."""

    reporting: Reporting
    fleet: FleetOwner
    choices: random.Random
    running: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    sequence: int = 100

    async def go_on(
        self, store: PostgresStore, wanted: dict[str, Binding], *, at_once: bool
    ) -> None:
        """Some of those that are to leave do, and of those that are to run as many as fit do."""
        async with store.reading() as read:
            stored = await read.bindings.page("shop", None, 100)
        for cluster, cores in CORES.items():
            running = self.running[cluster]
            shares = Counter(
                {b.key: t.replicas for b in stored for t in b.clusters if t.name == cluster}
            )
            for key, surplus in (running - shares).items():
                running[key] -= surplus if at_once else self.choices.randint(0, surplus)
            for key, missing in (shares - running).items():
                running[key] += min(missing, cores - running.total())
            self.sequence += 1
            report = replace(
                make_report(self.sequence, cpu_millis=1000 * (cores - running.total())),
                interest_version=self.fleet.ledger(cluster).interest_version,
                echoes=tuple(
                    echo(key, wanted[key].requirements.request, n)
                    for key, n in running.items()
                    if n
                ),
            )
            await self.reporting.accept(cluster, report)


@pytest.mark.parametrize("seed", range(2))
async def test_it_goes_strictly_downwards_and_ends(
    one: ControlPlane,
    store: PostgresStore,
    reporting: Reporting,
    clock: StillClock,
    engine: AsyncEngine,
    seed: int,
) -> None:
    """Within the limits of any minute; all that is placed runs in the end."""
    choices = random.Random(seed)
    limits = PreemptionLimits(replicas=MOST, in_namespace=MOST)
    fleets = [one.fleet]
    for _ in range(2):
        fleets.append(FleetOwner(store))
        await fleets[-1].load(grace_until=clock.now() + 3600)
    planes = [
        make_deciders(store, each, Agents(), clock, preemption_limits=limits) for each in fleets
    ]
    wanted = {each.key: each for each in (wish(choices, number) for number in range(12))}
    pods = Pods(reporting, one.fleet, choices)

    async def ask(each: Binding) -> None:
        with suppress(Conflict):
            await apply(choices.choice(planes).scheduling, each)

    for round_ in range(6):
        # Most come in vain, and ask again, wherever they may be heard.
        come = [*wanted.values()][: 4 * (round_ + 1)]
        await asyncio.gather(*(ask(each) for each in choices.sample(come, len(come))))
        await pods.go_on(store, wanted, at_once=round_ > 3)
        await asyncio.gather(*(plane.following.follow() for plane in planes))
    priorities = {each.key: each.priority for each in wanted.values()}
    async with engine.connect() as connection:
        lost = await connection.execute(
            text("SELECT name, reason FROM decision WHERE reason LIKE 'preempted by%'")
        )
        by = [(f"shop/{name}", reason.split()[2].rstrip(":")) for name, reason in lost]
        spent = (await connection.execute(text("SELECT at, replicas FROM preemption"))).all()
    assert by
    assert all(priorities[victim] < priorities[winner] for victim, winner in by)
    for at, _ in spent:
        minute = [n for then, n in spent if 0 <= (at - then).total_seconds() < 60]
        assert sum(minute) <= MOST
    async with store.reading() as read:
        stored = await read.bindings.page("shop", None, 100)
    shares = {c: Counter[str]() for c in CORES}
    for each in stored:
        for target in each.clusters:
            shares[target.name][each.key] += target.replicas
    assert {c: +pods.running[c] for c in CORES} == {c: +shares[c] for c in CORES}


def wish(choices: random.Random, number: int) -> Binding:
    """The more urgent the later it comes."""
    binding = only(choices.choice("abc"), choices.randint(1, 3))
    placement = replace(binding.placement, partial=choices.random() < 0.5)
    return replace(
        binding,
        name=f"w{number}",
        uid="",
        placement=placement,
        priority=number // 2,
        preemption_policy=PreemptionPolicy.PREEMPT_LOWER_PRIORITY,
    )
