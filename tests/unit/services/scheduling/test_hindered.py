"""Requests that lost again and again, and are decided under locks: of the clusters they concern."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from federation.model.placement import Binding, PreemptionPolicy
from federation.model.workload import TargetCluster
from federation.services.fleet.registry import FleetOwner
from federation.services.scheduling.attempt import Attempt
from federation.services.scheduling.commit import lockable_clusters
from federation.store.postgres import PostgresStore
from lab.patience import PATIENCE_SECONDS
from lab.services import WEB, Deciders, apply, decided
from tests.unit.services.conftest import held, only


@pytest.fixture
def hindered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Attempt, "is_hindered", property(lambda _: True))


@pytest.mark.usefixtures("hindered")
async def test_others_promise_elsewhere_while_one_is_decided_under_locks(
    deciders: Deciders, store: PostgresStore
) -> None:
    async with store.transaction() as tx:
        assert set(await tx.journal.lock(["b"])) == {"b"}
        async with asyncio.timeout(PATIENCE_SECONDS):
            answer = await apply(deciders.scheduling, only("a", 2))
    assert decided(answer) == {"a": 2}
    assert set(await held(store, only("a"))) == {"a"}


async def test_what_is_locked_is_where_it_may_go_and_what_it_leaves(
    deciders: Deciders, fleet: FleetOwner
) -> None:
    assert decided(await apply(deciders.scheduling, only("b", 1))) == {"b": 1}
    snapshot = fleet.snapshot

    def locked(*bindings: Binding) -> frozenset[str]:
        attempts = [Attempt(binding=binding) for binding in bindings]
        for attempt in attempts:
            attempt.candidate = attempt.binding
        return lockable_clusters(attempts, snapshot)

    moved = replace(only("a", 2), clusters=(TargetCluster(name="b", replicas=1),))
    assert locked(only("a", 2)) == {"a"}
    assert locked(moved) == {"a", "b"}
    assert locked(only("a", 1), only("b", 1)) == {"a", "b"}
    assert locked(WEB) == set(snapshot.names)
    urgent = replace(only("a", 1), preemption_policy=PreemptionPolicy.PREEMPT_LOWER_PRIORITY)
    assert locked(urgent) == set(snapshot.names)
