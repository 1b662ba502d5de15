"""Clusters of 6, 3 and 3 cores, all promised, and one control plane that has the queue's duty."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest

from federation.model.errors import LimitExceeded
from federation.model.placement import Binding
from federation.scheduler.plugins.profile import (
    DEFAULT_PROFILES,
    Profiles,
)
from federation.services.binding_ports import StoredBinding
from federation.services.fleet.registry import FleetOwner
from federation.services.members.reports import Reporting
from federation.services.scheduling.attempt import Attempt
from federation.services.scheduling.pipeline import DecisionPipeline
from federation.services.scheduling.working_copy import WorkingCopy
from federation.services.waiting.keeper import QueueKeeper
from federation.services.waiting_ports import QueuedBinding
from federation.store.postgres import PostgresStore
from lab.services import WEB, Deciders, apply, make_report
from tests.unit.services.conftest import StillClock, only


class Tries:
    """A pipeline that remembers who was tried, and may be too busy. Implements what is used."""

    def __init__(self, pipeline: DecisionPipeline) -> None:
        self._pipeline = pipeline
        self.attempts: list[Attempt] = []
        self.is_busy = False

    def try_again(self, stored: StoredBinding, place: int) -> Attempt:
        if self.is_busy:
            raise LimitExceeded("too many")
        attempt = self._pipeline.try_again(stored, place)
        self.attempts.append(attempt)
        return attempt

    def working(self) -> WorkingCopy:
        return self._pipeline.working()


@dataclass(kw_only=True)
class World:
    """Clusters a, b and c of 6, 3 and 3 free cores, and one keeper over them."""

    store: PostgresStore
    fleet: FleetOwner
    deciders: Deciders
    reporting: Reporting
    clock: StillClock
    tries: Tries
    keeper: QueueKeeper
    placed: list[str]
    sequence: int = field(default=10)
    profiles: Profiles = DEFAULT_PROFILES

    async def take_over(self) -> None:
        """As a control plane that has started, or has got the duty, does."""
        self.tries = Tries(self.deciders.pipeline)
        self.keeper = QueueKeeper(
            self.store,
            self.fleet,
            cast(DecisionPipeline, self.tries),
            self.profiles,
            self.clock,
            lambda every: self.placed.extend(each.record.name for each in every),
        )
        self.fleet.observe(self.keeper.changed)
        self.deciders.pipeline.observe_waiting(self.keeper.committed)
        await self.settle()

    async def settle(self) -> list[str]:
        """Round after round until nothing more comes of it; who was tried, in order."""
        first, calm = len(self.tries.attempts), 0
        while calm < 3:
            before = len(self.tries.attempts)
            await self.keeper.hold(None)  # type: ignore[arg-type]  # it needs no transaction
            await self.keeper.do_round()
            answers = [each.answer for each in self.tries.attempts]
            await asyncio.gather(*answers, return_exceptions=True)
            calm = calm + 1 if len(self.tries.attempts) == before else 0
        return [each.binding.name for each in self.tries.attempts[first:]]

    async def ask(self, *names: str, **fields: Any) -> None:
        for name in names:
            answer = await apply(self.deciders.scheduling, binding(name, **fields))
            assert answer.queued

    async def fill(self) -> None:
        """All 12 cores are promised, and the queue knows it."""
        for name, cores in (("a", 6), ("b", 3), ("c", 3)):
            taken = replace(only(name, cores), name=f"on-{name}", uid="")
            assert not (await apply(self.deciders.scheduling, taken)).queued
        await self.settle()

    async def report(self, cluster: str, cores: int) -> None:
        """So many are free there, beside what is promised."""
        self.sequence += 1
        await self.reporting.accept(cluster, make_report(self.sequence, cpu_millis=1000 * cores))

    async def waits(self, namespace: str = "") -> Sequence[QueuedBinding]:
        async with self.store.reading() as read:
            return await read.waiting.page(namespace, None, None, 100)

    async def names(self) -> list[str]:
        return [each.name for each in await self.waits()]


def binding(name: str, **fields: Any) -> Binding:
    return replace(WEB, **{"name": name, "uid": "", "replicas": 1, **fields})


def small(name: str, **fields: Any) -> Binding:
    return replace(only("b", 1), **{"name": name, "uid": "", **fields})


@pytest.fixture
async def world(
    store: PostgresStore,
    fleet: FleetOwner,
    deciders: Deciders,
    reporting: Reporting,
    clock: StillClock,
) -> World:
    tries = Tries(deciders.pipeline)
    made = World(
        store=store,
        fleet=fleet,
        deciders=deciders,
        reporting=reporting,
        clock=clock,
        tries=tries,
        keeper=cast(QueueKeeper, None),
        placed=[],
    )
    await made.take_over()
    await made.fill()
    return made
