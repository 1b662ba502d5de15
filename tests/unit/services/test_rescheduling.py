"""What makes a binding be decided again, and what does not: through the use case."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from federation.model.cluster import Taint, TaintEffect
from federation.model.placement import (
    Binding,
    ClusterAffinity,
    EvictionTask,
    Placement,
    ReplicaScheduling,
)
from federation.model.workload import (
    ReplicaRequirements,
    TargetCluster,
    Toleration,
    TolerationOperator,
)
from federation.scheduler.decision import Outcome
from federation.services.fleet.registry import FleetOwner
from federation.services.members.join import Registration
from federation.services.members.lifecycle import Membership
from federation.services.members.reports import Reporting
from federation.services.scheduling.bindings import Scheduling
from federation.services.values import Scheduled
from federation.store.postgres import PostgresStore
from lab.services import DYNAMIC, WEB, apply, decided, make_report, shares
from tests.unit.services.conftest import StillClock, Streams
from tests.unit.services.scheduling.test_bindings import rows

LOST = Taint(key="unreachable", effect=TaintEffect.NO_EXECUTE)


def triggers(scheduled: Scheduled) -> tuple[str, ...]:
    return scheduled.record.decision.trace.triggers


async def taint(registration: Registration, name: str, *taints: Taint) -> None:
    cluster = (await registration.get_cluster(name)).cluster
    await registration.update_cluster(
        replace(cluster, taints=taints), expected_version=None, now=1e6
    )


async def test_the_first_decision_says_that_the_binding_is_new(scheduling: Scheduling) -> None:
    assert triggers(await apply(scheduling, WEB)) == ("the binding is new",)


@pytest.mark.parametrize(
    ("change", "trigger"),
    [
        ({"replicas": 10}, "replicas changed"),
        (
            {"requirements": ReplicaRequirements(request={"cpu": 500})},
            "requirements changed",
        ),
        (
            {
                "placement": Placement(
                    replica_scheduling=DYNAMIC, affinity=ClusterAffinity(exclude=("nowhere",))
                )
            },
            "placement changed",
        ),
        ({"eviction_tasks": (EvictionTask(from_cluster="c"),)}, "evictions changed"),
        ({"scheduler_name": "default-scheduler"}, "schedulerName changed"),
    ],
)
async def test_what_is_asked_for_anew_is_decided_again(
    scheduling: Scheduling, change: dict[str, object], trigger: str
) -> None:
    first = await apply(scheduling, WEB)
    again = await apply(scheduling, replace(WEB, **change))
    assert again.record.id != first.record.id
    assert again.record.binding_generation == 2
    assert triggers(again) == (trigger,)


async def test_several_triggers_are_all_told(scheduling: Scheduling) -> None:
    first = await apply(scheduling, WEB)
    assert first.binding is not None
    assert first.binding.last_scheduled_time is not None
    wanted = replace(
        WEB, replicas=3, reschedule_triggered_at=first.binding.last_scheduled_time + 0.001
    )
    assert triggers(await apply(scheduling, wanted)) == (
        "a reschedule was triggered",
        "replicas changed",
    )


async def test_what_is_only_said_about_a_binding_is_stored_with_the_same_shares(
    scheduling: Scheduling,
) -> None:
    first = await apply(scheduling, WEB)
    noted = await apply(scheduling, replace(WEB, labels={"team": "shop"}))
    assert noted.binding is not None
    assert noted.binding.labels == {"team": "shop"}
    assert decided(noted) == decided(first)


async def test_other_capacity_moves_nothing_that_runs(
    scheduling: Scheduling, reporting: Reporting
) -> None:
    first = await apply(scheduling, WEB)
    await reporting.accept("a", make_report(7, cpu_millis=500))
    again = await apply(scheduling, WEB)
    assert again.record.id == first.record.id


async def test_an_unplaced_binding_is_decided_again_when_the_answer_would_be_another(
    scheduling: Scheduling, reporting: Reporting
) -> None:
    wanted = replace(WEB, replicas=13)
    first = await apply(scheduling, wanted)
    assert first.record.decision.outcome is Outcome.UNSCHEDULABLE
    assert (await apply(scheduling, wanted)).record.id == first.record.id
    await reporting.accept("a", make_report(7, cpu_millis=7000))
    again = await apply(scheduling, wanted)
    assert again.record.decision.outcome is Outcome.SCHEDULED
    assert triggers(again) == ("it was never placed",)


async def test_duplicated_follows_the_fleet(
    scheduling: Scheduling, registration: Registration
) -> None:
    everywhere = Placement(
        replica_scheduling=ReplicaScheduling(), affinity=ClusterAffinity(match_labels={"on": "yes"})
    )
    for name in ("a", "b"):
        await label(registration, name)
    wanted = replace(WEB, placement=everywhere, replicas=3)
    assert decided(await apply(scheduling, wanted)) == {"a": 3, "b": 3}
    await label(registration, "c")
    again = await apply(scheduling, wanted)
    assert decided(again) == {"a": 3, "b": 3, "c": 3}
    assert triggers(again) == ("asked again, nothing changed",)


async def label(registration: Registration, name: str) -> None:
    cluster = (await registration.get_cluster(name)).cluster
    labelled = replace(cluster, labels={"on": "yes"})
    await registration.update_cluster(labelled, expected_version=None, now=1e6)


async def test_replicas_of_a_cluster_that_is_gone_are_placed_again(
    scheduling: Scheduling, fleet: FleetOwner, store: PostgresStore
) -> None:
    wanted = replace(WEB, replicas=6)
    first = await apply(scheduling, wanted)
    lost = decided(first)["c"]
    await Membership(store, fleet, Streams()).delete("c", force=True)
    again = await apply(scheduling, wanted)
    assert sum(decided(again).values()) == 6
    assert not set(decided(again)) - {"a", "b"}
    assert triggers(again) == ("not all of its replicas are placed",)
    kept = {
        name: min(count, decided(again)[name])
        for name, count in decided(first).items()
        if name != "c"
    }
    assert sum(kept.values()) == 6 - lost


async def test_adopted_clusters_that_do_not_exist_count_as_gone(scheduling: Scheduling) -> None:
    held = (TargetCluster(name="a", replicas=2), TargetCluster(name="nowhere", replicas=4))
    adopted = await scheduling.schedule(
        replace(WEB, replicas=6, clusters=held), adopt=True, wait=True
    )
    assert sum(decided(adopted).values()) == 6
    assert decided(adopted)["a"] >= 2


async def test_a_no_execute_taint_without_toleration_moves_the_replicas(
    scheduling: Scheduling, registration: Registration
) -> None:
    wanted = replace(WEB, replicas=6)
    assert "a" in decided(await apply(scheduling, wanted))
    await taint(registration, "a", LOST)
    again = await apply(scheduling, wanted)
    assert "a" not in decided(again)
    assert sum(decided(again).values()) == 6
    assert triggers(again) == ("cluster a has the untolerated taint unreachable:NoExecute",)


async def test_where_the_replicas_of_a_tainted_cluster_do_not_fit_the_placement_stays(
    scheduling: Scheduling, registration: Registration
) -> None:
    wanted = replace(WEB, replicas=12)
    first = await apply(scheduling, wanted)
    await taint(registration, "a", LOST)
    await taint(registration, "b", LOST)
    again = await apply(scheduling, wanted)
    assert again.record.decision.outcome is Outcome.UNSCHEDULABLE
    assert again.binding is not None
    assert shares(again.binding.clusters) == decided(first)


def tolerating(seconds: int | None) -> Binding:
    toleration = Toleration(
        key="unreachable",
        operator=TolerationOperator.EXISTS,
        effect=TaintEffect.NO_EXECUTE,
        toleration_seconds=seconds,
    )
    placement = Placement(replica_scheduling=DYNAMIC, tolerations=(toleration,))
    return replace(WEB, replicas=6, placement=placement)


@pytest.mark.parametrize(
    ("seconds", "passed", "stays"),
    [(None, 1e6, True), (60, 59.0, True), (60, 60.0, False), (0, 0.0, False)],
)
async def test_a_toleration_holds_for_its_seconds(
    scheduling: Scheduling,
    registration: Registration,
    clock: StillClock,
    seconds: int | None,
    passed: float,
    stays: bool,
) -> None:
    first = await apply(scheduling, tolerating(seconds))
    assert "a" in decided(first)
    await taint(registration, "a", replace(LOST, time_added=clock.time))
    clock.time += passed
    again = await apply(scheduling, tolerating(seconds))
    assert ("a" in decided(again)) is stays


@pytest.mark.parametrize("effect", [TaintEffect.NO_SCHEDULE, TaintEffect.PREFER_NO_SCHEDULE])
async def test_other_taints_move_nothing_that_runs(
    scheduling: Scheduling, registration: Registration, engine: AsyncEngine, effect: TaintEffect
) -> None:
    first = await apply(scheduling, WEB)
    await taint(registration, "a", replace(LOST, effect=effect))
    again = await apply(scheduling, WEB)
    assert again.record.id == first.record.id
    assert await rows(engine, "decision") == 1


async def test_a_cluster_that_does_not_match_any_more_is_left(
    scheduling: Scheduling, registration: Registration
) -> None:
    for name in ("a", "b"):
        await label(registration, name)
    placement = Placement(
        replica_scheduling=DYNAMIC, affinity=ClusterAffinity(match_labels={"on": "yes"})
    )
    wanted = replace(WEB, replicas=3, placement=placement)
    assert "b" in decided(await apply(scheduling, wanted))
    cluster = (await registration.get_cluster("b")).cluster
    await registration.update_cluster(replace(cluster, labels={}), expected_version=None, now=1e6)
    assert decided(await apply(scheduling, wanted)) == {"a": 3}
