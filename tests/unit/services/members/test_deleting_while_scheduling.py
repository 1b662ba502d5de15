"""A cluster is deleted while a binding is scheduled into it: one of the two is refused."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from federation.model.errors import PreconditionFailed
from federation.services.fleet.registry import FleetOwner
from federation.services.members.join import Registration
from federation.services.members.lifecycle import Membership
from federation.services.members.reports import Reporting
from federation.store.engine import create_engine
from federation.store.postgres import PostgresStore
from lab.services import apply, decided, join_and_report, make_report
from tests.unit.services.conftest import ControlPlane, Streams, only

ROUNDS = 40


@pytest.fixture
async def second_store(database_url: str) -> AsyncIterator[PostgresStore]:
    engine = create_engine(database_url)
    yield PostgresStore(engine)
    await engine.dispose()


async def test_no_binding_keeps_a_cluster_that_was_deleted_without_force(
    one: ControlPlane,
    store: PostgresStore,
    second_store: PostgresStore,
    registration: Registration,
    reporting: Reporting,
) -> None:
    fleet = FleetOwner(second_store)
    await fleet.load(grace_until=0.0)
    membership = Membership(second_store, fleet, Streams())
    outcomes = set[bool]()
    for number in range(ROUNDS):
        name = f"z{number}"
        await join_and_report(registration, reporting, {name: make_report(1, cpu_millis=4000)})
        binding = replace(only(name), name=name, uid="")

        async def delete(cluster: str = name, pause: int = number % 12) -> bool:
            for _ in range(pause):
                await asyncio.sleep(0)
            try:
                await membership.delete(cluster, force=False)
            except PreconditionFailed:
                return False
            return True

        scheduled, is_deleted = await asyncio.gather(
            apply(one.deciders.scheduling, binding), delete()
        )
        async with store.reading() as read:
            stored = await read.bindings.get("shop", name)
            is_there = bool(await read.clusters.find([name]))
        assert stored is not None
        assert is_there is not is_deleted
        is_placed = bool(decided(scheduled))
        assert is_placed is bool(stored.binding.clusters)
        assert is_placed is not (stored.wait is not None)
        assert is_placed is is_there, f"round {number}"
        outcomes.add(is_deleted)
    assert outcomes == {True, False}
