"""Pods that are on no node for too long: their replicas are promised elsewhere, and no others."""

from __future__ import annotations

from dataclasses import replace

import pytest

from federation.failover.breaker import FreezeScope, ScopeKind
from federation.failover.moves import PODS_PENDING
from federation.model.placement import Binding, Placement, PurgeMode, ReplicaScheduling
from federation.services.waiting.steering import Queueing
from lab.reports import echo
from lab.services import WEB, apply, decided, make_report, shares
from tests.unit.services.conftest import held
from tests.unit.services.failover.conftest import SETTINGS, Drill

SOON = replace(SETTINGS, unschedulable_seconds=30.0)
FOUR = replace(WEB, replicas=4)


async def placed(drill: Drill, binding: Binding = FOUR) -> str:
    """WEB all in the cluster that is told, with the settings."""
    drill.start("one", SOON)
    where = decided(await apply(drill.deciders.scheduling, binding))
    assert sum(where.values()) == binding.replicas
    return next(iter(where))


async def sees(drill: Drill, cluster: str, bound: int, unbound: int, free: int = 6) -> None:
    known = drill.fleet.report(cluster)
    assert known is not None
    seen = replace(
        make_report(known.sequence + 1, cpu_millis=1000 * free),
        interest_version=drill.fleet.ledger(cluster).interest_version,
        echoes=(replace(echo(WEB.key, WEB.requirements.request, bound), unbound=unbound),),
    )
    await drill.reporting.accept(cluster, seen)


async def everywhere(drill: Drill, pending_in: str, unbound: int, free: int = 6) -> None:
    """What is there runs, but for some pods in one cluster."""
    for name, replicas in shares((await drill.stored()).clusters).items():
        waiting = unbound if name == pending_in else 0
        await sees(drill, name, replicas - waiting, waiting, free)


async def test_pods_on_no_node_for_too_long_are_promised_elsewhere(drill: Drill) -> None:
    home = await placed(drill)
    before = shares((await drill.stored()).clusters)
    await everywhere(drill, home, 1)
    await drill.pass_time(25)
    assert shares((await drill.stored()).clusters) == before
    await drill.pass_time(15)
    moved = await drill.stored()
    after = shares(moved.clusters)
    assert after.get(home, 0) == before[home] - 1
    assert sum(after.values()) == 4
    assert await held(drill.store) == after
    view = await drill.view()
    assert f"1 pod was on no node in {home} for 30 s" in view.record.decision.trace.triggers
    # What runs nowhere any more is not looked for.
    for name, replicas in after.items():
        await sees(drill, name, replicas, 0)
    await drill.pass_time(60)
    assert (await drill.stored()).clusters == moved.clusters


async def test_a_share_that_runs_nowhere_leaves_and_does_not_come_back_for_a_while(
    drill: Drill,
) -> None:
    home = await placed(drill)
    share = shares((await drill.stored()).clusters)[home]
    await everywhere(drill, home, share)
    await drill.pass_time(40)
    moved = await drill.stored()
    assert home not in shares(moved.clusters)
    (task,) = moved.eviction_tasks
    assert (task.from_cluster, task.replicas, task.reason) == (home, share, PODS_PENDING)
    assert task.purge_mode is PurgeMode.DIRECTLY
    grown = await apply(drill.deciders.scheduling, replace(FOUR, replicas=5))
    assert home not in decided(grown)
    await drill.pass_time(110)
    assert (await drill.stored()).eviction_tasks == ()


async def test_what_has_room_nowhere_else_stays(drill: Drill) -> None:
    everything = replace(WEB, replicas=12)
    home = await placed(drill, everything)
    before = await drill.stored()
    await everywhere(drill, home, 2, free=0)
    await drill.pass_time(60)
    assert (await drill.stored()).clusters == before.clusters


async def test_a_pod_that_found_its_node_begins_anew(drill: Drill) -> None:
    home = await placed(drill)
    before = await drill.stored()
    for _ in range(3):
        await everywhere(drill, home, 1)
        await drill.pass_time(20)
        await everywhere(drill, home, 0)
        await drill.pass_time(10)
    assert (await drill.stored()).clusters == before.clusters


@pytest.mark.parametrize("how", ["duplicated", "suspended", "frozen", "off"])
async def test_nothing_is_taken_back(drill: Drill, how: str) -> None:
    binding = FOUR
    if how == "duplicated":
        placement = Placement(replica_scheduling=ReplicaScheduling())
        binding = replace(WEB, replicas=1, placement=placement)
        drill.start("one", SOON)
        home = next(iter(decided(await apply(drill.deciders.scheduling, binding))))
    else:
        home = await placed(drill)
    before = shares((await drill.stored()).clusters)
    if how == "suspended":
        queueing = Queueing(drill.store, drill.fleet, drill.deciders.pipeline)
        await queueing.suspend(WEB.namespace, WEB.name)
    if how == "frozen":
        await drill.put_in("south", home)
        await drill.control.freeze("me", "a test", FreezeScope(kind=ScopeKind.REGION, name="south"))
    if how == "off":
        drill.start("one", replace(SOON, unschedulable_seconds=0.0))
    await everywhere(drill, home, 1)
    await drill.pass_time(60)
    assert shares((await drill.stored()).clusters) == before
