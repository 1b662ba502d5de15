from __future__ import annotations

import asyncio
import threading
from collections import Counter
from dataclasses import replace

import pytest
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncEngine

from federation.model.errors import (
    InvalidRequest,
    NotFound,
    PreconditionFailed,
    Unavailable,
)
from federation.model.placement import (
    AffinityGroup,
    Binding,
    ClusterAffinity,
    DivisionPreference,
    Placement,
    ReplicaScheduling,
    SchedulingType,
)
from federation.model.workload import Component, ReplicaRequirements, TargetCluster
from federation.scheduler.decision import Outcome
from federation.services.agent_values import AgentHello
from federation.services.fleet.registry import FleetOwner
from federation.services.members.join import Registration
from federation.services.members.reports import Reporting
from federation.services.scheduling.bindings import Scheduling
from federation.store import decisions
from federation.store.postgres import PostgresStore
from lab.services import (
    DYNAMIC,
    WEB,
    Agents,
    UnsteadyStore,
    apply,
    decided,
    join,
    make_report,
    make_scheduling,
    shares,
)
from tests.unit.services.conftest import StillClock

AGGREGATED = ReplicaScheduling(
    type=SchedulingType.DIVIDED, preference=DivisionPreference.AGGREGATED
)


async def rows(engine: AsyncEngine, table: str) -> int:
    async with engine.connect() as connection:
        counted = await connection.execute(text(f"SELECT count(*) FROM {table}"))
        return int(counted.scalar_one())


async def test_a_new_binding_is_decided_and_committed(
    scheduling: Scheduling, engine: AsyncEngine
) -> None:
    scheduled = await apply(scheduling, replace(WEB, replicas=12))
    assert scheduled.record.decision.outcome is Outcome.SCHEDULED
    assert decided(scheduled) == {"a": 6, "b": 3, "c": 3}
    assert not scheduled.queued
    view = await scheduling.get_binding("shop", "web")
    binding = view.binding
    record = view.record
    assert binding == scheduled.binding
    assert record is not None
    assert record.id == scheduled.record.id
    assert shares(binding.clusters) == {"a": 6, "b": 3, "c": 3}
    assert (binding.generation, record.binding_generation) == (1, 1)
    assert binding.last_scheduled_time is not None
    assert await rows(engine, "decision") == 1


async def test_a_decision_is_kept_with_its_trace_and_its_evidence(
    scheduling: Scheduling, fleet: FleetOwner, clock: StillClock
) -> None:
    as_of = fleet.view("a").state.as_of
    assert as_of is not None
    clock.time = as_of + 7.0
    scheduled = await apply(scheduling, WEB)
    found = await scheduling.get_decision(scheduled.record.id)
    assert found.decision.to_plain()["trace"] == scheduled.record.decision.to_plain()["trace"]
    assert found.evidence == scheduled.record.evidence
    assert found.evidence.sequences == (4, 5, 6)
    assert found.evidence.age_seconds[0] == 7.0
    assert found.decision.trace.clusters == ("a", "b", "c")


@pytest.mark.parametrize("decision_id", ["", "nonsense", "00000000-0000-0000-0000-000000000000"])
async def test_an_unknown_decision_is_not_found(scheduling: Scheduling, decision_id: str) -> None:
    with pytest.raises(NotFound):
        await scheduling.get_decision(decision_id)


async def test_a_name_that_was_cut_short_is_told_whole(scheduling: Scheduling) -> None:
    for namespace, name in (
        *(("shop", "web-deployment"), ("shop", "web-job"), ("shop", "website")),
        *(("bank", "we-deployment"), ("shop", "web-a"), ("shop", "web-b")),
    ):
        await apply(scheduling, replace(WEB, namespace=namespace, name=name, uid=""))
    for refused in (
        scheduling.get_binding("shop", "web"),
        scheduling.delete_binding("shop", "web"),
        scheduling.release("shop", "web"),
    ):
        with pytest.raises(NotFound) as found:
            await refused
        assert found.value.message == (
            "There is no binding 'shop/web'. "
            "Is it 'shop/web-a' or 'shop/web-b' or 'shop/web-deployment'?"
        )
    with pytest.raises(NotFound, match=r"^There is no binding 'shop/we'\.$"):
        await scheduling.get_binding("shop", "we")


async def test_asking_again_is_answered_by_the_standing_decision(
    scheduling: Scheduling, engine: AsyncEngine
) -> None:
    first = await apply(scheduling, WEB)
    again = await apply(scheduling, WEB)
    assert again.record.id == first.record.id
    assert again.binding == first.binding
    assert await rows(engine, "decision") == 1


async def test_another_spec_is_another_generation_and_scaling_is_steady(
    scheduling: Scheduling,
) -> None:
    first = await apply(scheduling, replace(WEB, replicas=6))
    more = await apply(scheduling, replace(WEB, replicas=8, annotations={"a": "b"}))
    assert more.binding is not None
    assert more.record.binding_generation == more.binding.generation == 2
    assert sum(decided(more).values()) == 8
    assert not Counter(decided(first)) - Counter(decided(more))
    noted = await apply(scheduling, replace(WEB, replicas=8, annotations={"c": "d"}))
    assert noted.binding is not None
    assert noted.binding.generation == 2
    assert noted.binding.annotations == {"c": "d"}


async def test_the_stored_placement_wins_unless_it_is_to_be_adopted(
    scheduling: Scheduling,
) -> None:
    elsewhere = (TargetCluster(name="c", replicas=2),)
    known = await apply(scheduling, replace(WEB, replicas=2, clusters=elsewhere))
    assert decided(known) == {"c": 2}
    moved = replace(WEB, replicas=2, clusters=(TargetCluster(name="b", replicas=2),))
    assert decided(await apply(scheduling, moved)) == {"c": 2}
    adopted = await scheduling.schedule(moved, adopt=True, wait=True)
    assert decided(adopted) == {"b": 2}


async def test_shares_in_clusters_that_are_gone_are_placed_again(scheduling: Scheduling) -> None:
    lost = (TargetCluster(name="b", replicas=1), TargetCluster(name="gone", replicas=3))
    scheduled = await apply(scheduling, replace(WEB, replicas=4, clusters=lost))
    assert "gone" not in decided(scheduled)
    assert sum(decided(scheduled).values()) == 4


async def test_what_cannot_be_placed_waits_with_the_placement_it_has(
    scheduling: Scheduling,
) -> None:
    first = await apply(scheduling, WEB)
    too_many = await apply(scheduling, replace(WEB, replicas=1000))
    assert too_many.record.decision.outcome is Outcome.UNSCHEDULABLE
    assert too_many.record.decision.clusters == ()
    assert too_many.record.decision.reason
    view = await scheduling.get_binding("shop", "web")
    binding = view.binding
    record = view.record
    assert record is not None
    assert record.id == too_many.record.id
    assert first.binding is not None
    assert shares(binding.clusters) == decided(first)
    assert binding.last_scheduled_time == first.binding.last_scheduled_time
    assert (binding.replicas, binding.generation) == (1000, 2)


@pytest.mark.parametrize(
    ("change", "outcome"),
    [
        ({"replicas": 1000}, Outcome.UNSCHEDULABLE),
        (
            {"placement": Placement(affinity=ClusterAffinity(cluster_names=("nobody",)))},
            Outcome.NO_FIT,
        ),
    ],
    ids=["capacity", "filters"],
)
async def test_who_does_not_want_to_wait_leaves_nothing_behind(
    scheduling: Scheduling, engine: AsyncEngine, change: dict[str, object], outcome: Outcome
) -> None:
    binding = replace(WEB, **change)
    answer = await scheduling.schedule(binding, adopt=False, wait=False)
    assert answer.record.decision.outcome is outcome
    assert (answer.record.id, answer.binding) == ("", None)
    assert (await rows(engine, "binding"), await rows(engine, "decision")) == (0, 0)
    waiting = await apply(scheduling, binding)
    assert waiting.record.id
    assert waiting.binding is not None
    assert waiting.queued
    assert (await apply(scheduling, binding)).record.id == waiting.record.id
    # A known binding keeps the record of what was asked for, also that it waits no more.
    again = await scheduling.schedule(binding, adopt=False, wait=False)
    assert not again.queued
    same = await scheduling.schedule(binding, adopt=False, wait=False)
    assert same.record.id == again.record.id
    assert await rows(engine, "decision") == 2
    assert await rows(engine, "waiting") == 0


async def test_another_uid_is_refused_until_the_old_binding_is_deleted(
    scheduling: Scheduling, engine: AsyncEngine
) -> None:
    await apply(scheduling, WEB)
    with pytest.raises(PreconditionFailed, match="uid-web"):
        await apply(scheduling, replace(WEB, uid="other"))
    unnamed = await apply(scheduling, replace(WEB, uid=""))
    assert unnamed.binding is not None
    assert unnamed.binding.uid == "uid-web"
    with pytest.raises(PreconditionFailed):
        await scheduling.delete_binding("shop", "web", "other")
    await scheduling.delete_binding("shop", "web", "uid-web")
    again = await apply(scheduling, replace(WEB, uid="other"))
    assert again.record.binding_generation == 1
    assert await rows(engine, "decision") == 2


async def test_deleted_and_unknown_bindings_are_not_found(scheduling: Scheduling) -> None:
    await apply(scheduling, WEB)
    await scheduling.delete_binding("shop", "web")
    with pytest.raises(NotFound, match="'shop/web'"):
        await scheduling.get_binding("shop", "web")
    with pytest.raises(NotFound):
        await scheduling.delete_binding("shop", "web")


async def test_a_broken_or_suspended_binding_is_refused_and_not_stored(
    scheduling: Scheduling, engine: AsyncEngine
) -> None:
    with pytest.raises(InvalidRequest, match=r"spec\.replicas"):
        await apply(scheduling, replace(WEB, replicas=-1))
    with pytest.raises(PreconditionFailed, match="suspended"):
        await apply(scheduling, replace(WEB, suspended=True))
    assert await rows(engine, "binding") == 0


async def test_a_triggered_reschedule_divides_anew_once(
    scheduling: Scheduling, reporting: Reporting
) -> None:
    binding = replace(WEB, replicas=8)
    first = await apply(scheduling, binding)
    assert decided(first) == {"a": 4, "b": 2, "c": 2}
    await reporting.accept("a", make_report(7, cpu_millis=500))
    again = await apply(scheduling, binding)
    assert decided(again) == decided(first)
    assert again.binding is not None
    assert again.binding.last_scheduled_time is not None
    before = replace(binding, reschedule_triggered_at=again.binding.last_scheduled_time - 60)
    steady = await apply(scheduling, before)
    assert decided(steady) == decided(first)
    assert steady.binding is not None
    assert steady.binding.last_scheduled_time is not None
    after = replace(binding, reschedule_triggered_at=steady.binding.last_scheduled_time + 0.001)
    fresh = await apply(scheduling, after)
    assert decided(fresh) != decided(first)
    assert sum(decided(fresh).values()) == 8
    await reporting.accept("a", make_report(8, cpu_millis=50_000))
    assert decided(await apply(scheduling, after)) == decided(fresh)


async def test_of_two_schedulings_at_once_the_second_is_decided_on_the_first(
    scheduling: Scheduling, engine: AsyncEngine
) -> None:
    wanted = [replace(WEB, replicas=number) for number in range(1, 13)]
    for together in (wanted[:4], wanted[4:8], wanted[8:]):
        await asyncio.gather(*(apply(scheduling, each) for each in together))
    view = await scheduling.get_binding("shop", "web")
    binding = view.binding
    record = view.record
    assert record is not None
    assert shares(binding.clusters) == shares(record.decision.clusters)
    assert sum(shares(binding.clusters).values()) == binding.replicas
    # Each decision was made on the placement of the one before it: none is lost, none is skipped.
    async with engine.connect() as connection:
        found = await connection.execute(text("SELECT id FROM decision ORDER BY created_at"))
        ids = [str(row.id) for row in found]
    assert len(ids) == 12
    assert ids[-1] == record.id
    held: dict[str, int] = {}
    for decision_id in ids:
        decision = (await scheduling.get_decision(decision_id)).decision
        previous = zip(
            decision.trace.clusters, decision.trace.inputs.previous_c.tolist(), strict=True
        )
        assert {name: count for name, count in previous if count >= 0} == held
        held = shares(decision.clusters)


async def test_while_the_store_is_away_nothing_is_promised(
    store: PostgresStore,
    scheduling: Scheduling,
    fleet: FleetOwner,
    agents: Agents,
    clock: StillClock,
    engine: AsyncEngine,
) -> None:
    unsteady = UnsteadyStore(store)
    cut_off = make_scheduling(unsteady, fleet, agents, clock)
    unsteady.reachable = False
    with pytest.raises(Unavailable):
        await apply(cut_off, WEB)
    with pytest.raises(Unavailable):
        await cut_off.list_bindings("", None, 10)
    assert await rows(engine, "binding") == 0


async def test_a_commit_that_fails_leaves_nothing_half_written(
    scheduling: Scheduling,
    fleet: FleetOwner,
    agents: Agents,
    clock: StillClock,
    fresh_engine: AsyncEngine,
) -> None:
    """The fleet of one database, the bindings of another that is about to refuse a new one."""
    store = PostgresStore(fresh_engine)
    scheduling = make_scheduling(store, fleet, agents, clock)
    first = await apply(scheduling, WEB)
    async with fresh_engine.begin() as connection:
        await connection.execute(
            text("ALTER TABLE binding ADD CONSTRAINT never CHECK (generation < 2)")
        )
    with pytest.raises(IntegrityError, match="never"):
        await apply(scheduling, replace(WEB, replicas=4))
    view = await scheduling.get_binding("shop", "web")
    binding = view.binding
    record = view.record
    assert record is not None
    assert (binding, record.id) == (first.binding, first.record.id)
    assert await rows(fresh_engine, "decision") == 1


async def test_bindings_are_listed_in_pages(scheduling: Scheduling) -> None:
    for namespace, name in (("b", "x"), ("a", "z"), ("a", "y")):
        await apply(scheduling, replace(WEB, namespace=namespace, name=name, uid=""))
    page = await scheduling.list_bindings("", None, 2)
    assert [each.key for each in page.bindings] == ["a/y", "a/z"]
    assert page.next_after == ("a", "z")
    last = await scheduling.list_bindings("", page.next_after, 2)
    assert [each.key for each in last.bindings] == ["b/x"]
    assert last.next_after is None
    assert [each.key for each in (await scheduling.list_bindings("b", None, 2)).bindings] == ["b/x"]


async def test_a_workload_of_components_goes_whole_to_one_cluster_that_holds_a_set(
    scheduling: Scheduling, agents: Agents
) -> None:
    core = ReplicaRequirements(request={"cpu": 1000})
    job = Binding(
        name="job",
        components=(
            Component(name="manager", replicas=1, requirements=core),
            Component(name="worker", replicas=4, requirements=core),
        ),
    )
    scheduled = await apply(scheduling, job)
    # Five cores fit into `a` alone.
    assert decided(scheduled) == {"a": 5}
    assert scheduled.binding is not None
    record = await scheduling.node_plans.place(scheduled.record, scheduled.binding, 5.0)
    (plan,) = record.node_plans
    assert [(node.component, node.replicas) for node in plan.nodes] == [
        ("manager", 1),
        ("worker", 4),
    ]
    assert (
        await apply(
            scheduling,
            replace(
                job,
                name="again",
                components=(
                    replace(job.components[0], replicas=7),
                    job.components[1],
                ),
            ),
        )
    ).record.decision.outcome is Outcome.UNSCHEDULABLE


async def test_workloads_that_avoid_each_other_are_kept_apart(scheduling: Scheduling) -> None:
    def shy(name: str) -> Binding:
        return replace(
            WEB,
            name=name,
            uid="",
            replicas=2,
            labels={"shy": "yes"},
            placement=Placement(workload_anti_affinity_key="shy", replica_scheduling=AGGREGATED),
        )

    one, other = await apply(scheduling, shy("one")), await apply(scheduling, shy("other"))
    assert decided(one)
    assert decided(other)
    assert not decided(one).keys() & decided(other).keys()


async def test_affinity_groups_do_not_fail_back_by_themselves(
    scheduling: Scheduling, registration: Registration, reporting: Reporting
) -> None:
    groups = tuple(
        AffinityGroup(name=name, affinity=ClusterAffinity(cluster_names=(cluster,)))
        for name, cluster in (("near", "b"), ("far", "a"))
    )
    binding = replace(
        WEB,
        replicas=5,
        placement=Placement(affinity_groups=groups, replica_scheduling=DYNAMIC),
    )
    assert decided(await apply(scheduling, binding)) == {"a": 5}
    await reporting.accept("b", make_report(6, cpu_millis=50_000))
    assert decided(await apply(scheduling, replace(binding, replicas=6))) == {"a": 6}


async def test_large_fleets_are_decided_beside_the_loop(
    store: PostgresStore,
    registration: Registration,
    reporting: Reporting,
    fleet: FleetOwner,
    agents: Agents,
    clock: StillClock,
) -> None:
    names = [f"c{number:03}" for number in range(210)]
    for name in names:
        credential = await join(registration, name)
        await reporting.connected(name, AgentHello(epoch=1), credential.id)
    reports = {name: make_report(cpu_millis=1000) for name in names}
    await asyncio.gather(*(reporting.accept(name, report) for name, report in reports.items()))
    scheduling = make_scheduling(store, fleet, agents, clock)
    scheduled = await apply(scheduling, replace(WEB, replicas=210))
    assert decided(scheduled) == dict.fromkeys(names, 1)
    assert (await scheduling.get_decision(scheduled.record.id)).decision.trace.clusters == tuple(
        names
    )


async def test_traces_are_unpacked_off_the_event_loop(
    scheduling: Scheduling, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[threading.Thread] = []
    unpack = decisions.unpacked_trace

    def watched(packed: bytes) -> object:
        threads.append(threading.current_thread())
        return unpack(packed)

    monkeypatch.setattr(decisions, "unpacked_trace", watched)
    scheduled = await apply(scheduling, replace(WEB, replicas=4))
    again = await apply(scheduling, replace(WEB, replicas=4))
    assert again.record.id == scheduled.record.id
    assert (await scheduling.get_decision(again.record.id)).id == again.record.id
    view = await scheduling.get_binding(WEB.namespace, WEB.name)
    assert view.record is not None
    assert view.record.id == again.record.id
    assert len(threads) == 3
    assert threading.current_thread() not in threads


async def test_a_stale_cluster_keeps_its_shares_and_gets_no_more(
    scheduling: Scheduling, reporting: Reporting, clock: StillClock
) -> None:
    assert decided(await apply(scheduling, replace(WEB, replicas=4)))["a"] == 2
    clock.time += 31.0
    for name in ("b", "c"):
        reporting.heartbeat(name, 0, "", 0.0)
    assert decided(await apply(scheduling, replace(WEB, replicas=7))) == {"a": 2, "b": 3, "c": 2}
    refused = await apply(scheduling, replace(WEB, name="api", uid="", replicas=7))
    assert refused.record.decision.outcome is Outcome.UNSCHEDULABLE
    assert "is stale: its agent is silent" in refused.record.decision.reason
