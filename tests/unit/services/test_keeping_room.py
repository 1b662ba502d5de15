"""What decisions reserve, and what room others find beside it: one control plane."""

from __future__ import annotations

from dataclasses import replace

import pytest

from federation.model.placement import (
    Binding,
    Certificate,
    ClusterAffinity,
    Placement,
    ReplicaScheduling,
    SchedulingType,
    StaticWeight,
)
from federation.model.reservations import PromiseCertificate
from federation.model.workload import Component, ReplicaRequirements, TargetCluster
from federation.scheduler.decision import Outcome
from federation.scheduler.plugins.profile import DEFAULT_PROFILE, Profiles
from federation.services.agent_values import AgentFacts, AgentHello, Placer
from federation.services.fleet.registry import FleetOwner
from federation.services.members.join import Registration
from federation.services.members.reports import Reporting
from federation.services.scheduling.bindings import Scheduling
from federation.services.values import Scheduled
from federation.store.postgres import PostgresStore
from lab.reports import echo, nodes
from lab.services import (
    WEB,
    Agents,
    apply,
    decided,
    join,
    make_deciders,
    make_report,
    shares,
)
from tests.unit.services.conftest import StillClock, held, only

DUPLICATED = Placement(replica_scheduling=ReplicaScheduling(type=SchedulingType.DUPLICATED))
STATIC = Placement(
    replica_scheduling=ReplicaScheduling(
        type=SchedulingType.DIVIDED,
        static_weights=tuple(
            StaticWeight(target=ClusterAffinity(cluster_names=(name,)), weight=1) for name in "ab"
        ),
    )
)


async def room(scheduling: Scheduling, cluster: str) -> int:
    """How many replicas of one core find room there; none is taken."""
    for replicas in range(7, 0, -1):
        asked = replace(only(cluster, replicas), name="asked", uid="")
        if (await scheduling.consider(asked, adopt=False, wait=True)).is_placed:
            return replicas
    return 0


async def sees(
    reporting: Reporting, fleet: FleetOwner, cluster: str, *, free: int, bound: int, cpu: int = 1000
) -> None:
    """The cluster's agent sees so many bound pods of WEB, and so many free cores beside them."""
    known = fleet.report(cluster)
    assert known is not None
    report = replace(
        make_report(known.sequence + 1, cpu_millis=1000 * free),
        interest_version=fleet.ledger(cluster).interest_version,
        echoes=(echo(WEB.key, WEB.requirements.request | {"cpu": cpu}, bound),),
    )
    await reporting.accept(cluster, report)


async def refused(scheduling: Scheduling, binding: Binding) -> Scheduled:
    answer = await apply(scheduling, binding)
    assert answer.record.decision.outcome is Outcome.UNSCHEDULABLE
    return answer


async def test_what_is_scaled_down_is_free_and_what_is_left_as_well(
    scheduling: Scheduling, store: PostgresStore
) -> None:
    await apply(scheduling, only("a", 6))
    assert await room(scheduling, "a") == 0
    await apply(scheduling, only("a", 4))
    assert (await held(store), await room(scheduling, "a")) == ({"a": 4}, 2)
    await apply(scheduling, only("b", 3))
    assert (await held(store), await room(scheduling, "a")) == ({"b": 3}, 6)


async def test_a_binding_that_is_decided_again_has_its_own_room(
    scheduling: Scheduling, store: PostgresStore, fleet: FleetOwner
) -> None:
    binding = replace(WEB, replicas=12)
    first = await apply(scheduling, binding)
    assert first.binding is not None
    assert first.binding.last_scheduled_time is not None
    after = first.binding.last_scheduled_time + 0.001
    again = await apply(scheduling, replace(binding, reschedule_triggered_at=after))
    assert again.record.id != first.record.id
    assert decided(again) == await held(store) == {"a": 6, "b": 3, "c": 3}
    assert not fleet.view("a").overcommitted
    await refused(scheduling, replace(binding, replicas=13))
    assert await held(store) == {"a": 6, "b": 3, "c": 3}


async def test_pods_of_an_older_shape_make_room_for_their_own_binding_only(
    scheduling: Scheduling, reporting: Reporting, fleet: FleetOwner, store: PostgresStore
) -> None:
    def sized(cpu: int) -> Binding:
        request = WEB.requirements.request | {"cpu": cpu}
        return replace(only("a", 3), requirements=ReplicaRequirements(request=request))

    await apply(scheduling, sized(2000))
    await sees(reporting, fleet, "a", free=0, bound=3, cpu=2000)
    assert await room(scheduling, "a") == 0
    # Each smaller pod takes the place of a larger one.
    smaller = await apply(scheduling, sized(1000))
    assert smaller.record.decision.outcome is Outcome.SCHEDULED
    (outstanding,) = fleet.ledger("a").outstanding_of(WEB.key)
    assert (outstanding.in_cells, outstanding.credited, outstanding.to_pack) == (3, 3, 0)
    assert await room(scheduling, "a") == 0
    # A larger one does not.
    answer = await refused(scheduling, sized(3000))
    assert answer.record.decision.remainder == 3
    assert await held(store) == {"a": 3}


async def test_what_runs_already_is_neither_deducted_nor_measured(
    scheduling: Scheduling, reporting: Reporting, fleet: FleetOwner
) -> None:
    await reporting.accept("a", make_report(5, cpu_millis=1000))
    running = replace(only("a", 4), clusters=(TargetCluster(name="a", replicas=4),))
    adopted = await scheduling.schedule(running, adopt=True, wait=True)
    assert decided(adopted) == {"a": 4}
    assert fleet.ledger("a").outstanding_of(WEB.key) == ()
    assert await room(scheduling, "a") == 1
    await sees(reporting, fleet, "a", free=1, bound=4)
    assert await room(scheduling, "a") == 1
    # From then on the agent speaks for them: one of them is gone.
    await sees(reporting, fleet, "a", free=2, bound=3)
    assert await room(scheduling, "a") == 1


@pytest.mark.parametrize(
    ("placement", "fits", "wanted", "reasons"),
    [
        (DUPLICATED, 3, 4, ("b: ", "c: ")),
        (STATIC, 6, 8, ("b: ",)),
    ],
    ids=["duplicated", "static weights"],
)
async def test_shares_that_ignore_capacity_need_room_all_the_same(
    scheduling: Scheduling,
    store: PostgresStore,
    placement: Placement,
    fits: int,
    wanted: int,
    reasons: tuple[str, ...],
) -> None:
    binding = replace(WEB, replicas=fits, placement=placement)
    first = await apply(scheduling, binding)
    placed = decided(first)
    assert await held(store) == placed
    answer = await refused(scheduling, replace(binding, replicas=wanted))
    decision = answer.record.decision
    assert decision.clusters == ()
    assert all(reason in decision.reason for reason in reasons)
    assert "a: " not in decision.reason
    count = "1 cluster" if len(reasons) == 1 else f"{len(reasons)} clusters"
    assert decision.reason.endswith(f"; short of cpu in {count}")
    assert answer.binding is not None
    assert shares(answer.binding.clusters) == await held(store) == placed


async def test_what_is_scarce_is_said_by_the_decision_its_preview_and_its_record(
    scheduling: Scheduling, reporting: Reporting
) -> None:
    short = make_report(6, cpu_millis=9000)
    pools = nodes(1, cpu=9000, memory=2 * WEB.requirements.request["memory"])
    await reporting.accept("b", replace(short, pools=pools))
    wanted = replace(WEB, replicas=50)
    previewed = await scheduling.consider(wanted, adopt=False, wait=True)
    decision = (await refused(scheduling, wanted)).record.decision
    assert decision.reason.endswith(" wanted; short of cpu in 2 clusters, memory in 1")
    assert previewed.verdict.decision.reason == decision.reason
    view = await scheduling.get_binding("shop", "web")
    assert view.record is not None
    assert view.record.decision.reason == decision.reason
    assert (await refused(scheduling, wanted)).record.id == view.record.id


async def test_a_cluster_that_lost_what_is_promised_takes_nothing_new(
    scheduling: Scheduling, reporting: Reporting, fleet: FleetOwner, store: PostgresStore
) -> None:
    await apply(scheduling, only("a", 5))
    await sees(reporting, fleet, "a", free=3, bound=0)
    assert fleet.view("a").overcommitted == 2
    small = ReplicaRequirements(request={"cpu": 1})
    answer = await refused(scheduling, replace(only("a", 1), name="x", uid="", requirements=small))
    assert answer.record.decision.trace.inputs.available_c.tolist()[0] == 0
    stuck = "a: the cluster is over-committed: promised replicas lost their room, 2 of shop/web"
    assert answer.record.decision.reason.endswith(stuck)
    assert await held(store) == {"a": 5}
    # Less is not new.
    await apply(scheduling, only("a", 3))
    assert fleet.view("a").overcommitted == 0
    await sees(reporting, fleet, "a", free=4, bound=3)
    assert await room(scheduling, "a") == 4


async def test_every_component_of_a_workload_is_held(
    scheduling: Scheduling, fleet: FleetOwner, store: PostgresStore
) -> None:
    core, two = (ReplicaRequirements(request={"cpu": cpu}) for cpu in (1000, 2000))
    job = replace(
        WEB,
        replicas=0,
        components=(
            Component(name="manager", replicas=1, requirements=core),
            Component(name="worker", replicas=2, requirements=two),
        ),
    )
    assert decided(await apply(scheduling, job)) == {"a": 3}
    view = await scheduling.get_binding("shop", "web")
    told = [(each.component, each.replicas, each.outstanding) for each in view.held]
    assert told == [("manager", 1, 1), ("worker", 2, 2)]
    # One core is left, and kept back while others are on their way.
    assert await room(scheduling, "a") == 0
    await refused(scheduling, replace(job, name="again", uid=""))
    assert await room(scheduling, "a") == 0
    await scheduling.release("shop", "web")
    assert await room(scheduling, "a") == 6
    assert fleet.holdings(WEB.key) == ()


@pytest.mark.parametrize(
    ("by_profile", "by_binding", "placer", "expected", "note"),
    [
        (None, None, Placer.NONE, "careful", ""),
        (None, None, Placer.BINDER, "planned", ""),
        (Certificate.STRICT, None, Placer.BINDER, "strict", ""),
        (Certificate.STRICT, Certificate.CAREFUL, Placer.BINDER, "careful", ""),
        (Certificate.CAREFUL, Certificate.PLANNED, Placer.EXTENDER, "planned", ""),
        (None, Certificate.PLANNED, Placer.NONE, "careful", "no placer of ours"),
    ],
)
async def test_a_promise_is_worth_what_the_binding_asks_for_or_else_its_profile(
    scheduling: Scheduling,
    registration: Registration,
    reporting: Reporting,
    store: PostgresStore,
    fleet: FleetOwner,
    clock: StillClock,
    by_profile: Certificate | None,
    by_binding: Certificate | None,
    placer: Placer,
    expected: str,
    note: str,
) -> None:
    del scheduling  # It has the default profile.
    credential = await join(registration, "a")
    await reporting.connected("a", AgentHello(epoch=1, placer=placer), credential.id)
    profiles = Profiles.of([replace(DEFAULT_PROFILE, certificate=by_profile)])
    deciding = make_deciders(store, fleet, Agents(), clock, profiles).scheduling
    scheduled = await apply(deciding, replace(only("a", 2), certificate=by_binding))
    (promise,) = scheduled.record.promises
    (kept,) = (await deciding.get_binding("shop", "web")).held
    assert promise.certificate.value == kept.certificate.value == expected
    assert (bool(promise.note), note in promise.note) == (bool(note), True)


@pytest.mark.parametrize(("asked", "expected"), [(None, "careful"), (Certificate.PLANNED,) * 2])
async def test_who_asks_for_a_plan_gets_one_from_a_placer_that_may_come_back(
    scheduling: Scheduling,
    registration: Registration,
    reporting: Reporting,
    fleet: FleetOwner,
    asked: Certificate | None,
    expected: str,
) -> None:
    credential = await join(registration, "a")
    await reporting.connected("a", AgentHello(epoch=1, placer=Placer.BINDER), credential.id)
    assert not fleet.snapshot.may_return_c.any()
    reporting.disconnected("a", 1)
    assert fleet.snapshot.may_return_c.tolist() == [True, False, False]
    scheduled = await apply(scheduling, replace(only("a", 2), certificate=asked))
    (promise,) = scheduled.record.promises
    (kept,) = (await scheduling.get_binding("shop", "web")).held
    assert (promise.certificate.value, kept.certificate.value) == (expected, expected)


async def test_that_there_is_a_placer_may_be_heard_from_another_control_plane(
    scheduling: Scheduling, reporting: Reporting, fleet: FleetOwner
) -> None:
    del scheduling
    reporting.disconnected("a", fleet.known("a").presence.epoch)
    assert not fleet.snapshot.may_return_c.any()
    fleet.put_facts("a", AgentFacts(placer=Placer.BINDER))
    assert fleet.snapshot.may_return_c.tolist() == [True, False, False]


@pytest.mark.parametrize("allow_unproven", [False, True])
async def test_where_no_pools_are_reported_only_a_setting_makes_promises(
    registration: Registration,
    reporting: Reporting,
    store: PostgresStore,
    fleet: FleetOwner,
    clock: StillClock,
    *,
    allow_unproven: bool,
) -> None:
    credential = await join(registration, "old")
    await reporting.connected("old", AgentHello(epoch=1), credential.id)
    bare = replace(make_report(1, cpu_millis=6000), pools=None)
    await reporting.accept("old", bare)
    deciding = make_deciders(
        store, fleet, Agents(), clock, allow_unproven=allow_unproven
    ).scheduling
    answer = await apply(deciding, replace(WEB, replicas=4))
    if not allow_unproven:
        assert answer.record.decision.outcome is Outcome.UNSCHEDULABLE
        assert await held(store) == {}
        return
    (promise,) = answer.record.promises
    assert promise.certificate is PromiseCertificate.UNPROVEN
    assert await held(store) == {"old": 4}
    # What is promised is missing from totals too.
    assert await room(deciding, "old") == 2
