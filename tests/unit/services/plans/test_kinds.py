"""Plans that balance, consolidate and make room, over a real store, by agents that see everything.

Each binding has its place at every instant, no budget is exceeded, and a second plan has no step.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from federation.model.cluster import ResourceSummary
from federation.model.errors import InvalidRequest
from federation.model.placement import Binding, ClusterAffinity, Gang, Placement
from federation.plans.plan import DO_NOT_MOVE, Plan, PlanKind, PlanLimits, PlanState, StepState
from federation.services.plans import search
from federation.services.plans.drafting import PlanWish
from lab.reports import echo
from lab.services import DYNAMIC, WEB, apply, decided, make_report, shares
from tests.unit.services.conftest import held, only
from tests.unit.services.plans.conftest import Workshop

CORES = {"a": 6, "b": 3, "c": 3}


async def running(workshop: Workshop, *homes: str) -> list[Binding]:
    """Bindings of one replica of one core there, which may go anywhere from now on."""
    made = []
    for number, home in enumerate(homes):
        binding = replace(only(home, 1), name=f"n{number}", uid=f"uid-{number}")
        await apply(workshop.deciders.scheduling, binding)
        binding = replace(binding, placement=Placement(replica_scheduling=DYNAMIC))
        await apply(workshop.deciders.scheduling, binding)
        made.append(binding)
    await look(workshop, made)
    return made


async def look(workshop: Workshop, bindings: list[Binding]) -> None:
    """Agents see what runs: all that is placed, and what graceful evictions keep."""
    stored = [await workshop.stored(each) for each in bindings]
    for name, cores in CORES.items():
        there = [
            (each, shares(each.clusters).get(name, 0))
            for each in stored
            if name in shares(each.clusters)
            or any(task.from_cluster == name for task in each.eviction_tasks)
        ]
        used = sum(max(1, replicas) for _, replicas in there)
        known = workshop.fleet.report(name)
        assert known is not None
        report = make_report(known.sequence + 1, cpu_millis=(cores - used) * 1000)
        total = {**report.summary.allocatable, "cpu": cores * 1000}
        report = replace(
            report,
            summary=ResourceSummary(allocatable=total, allocated={"cpu": used * 1000}),
            interest_version=workshop.fleet.ledger(name).interest_version,
            echoes=tuple(
                echo(each.key, each.requirements.request, max(1, replicas))
                for each, replicas in there
            ),
        )
        await workshop.reporting.accept(name, report)


async def carry_out(workshop: Workshop, plan: Plan, bindings: list[Binding]) -> None:
    """To its end; looked at after each round."""
    limits = plan.limits
    plan = await workshop.control.approve(plan.id, "ops")
    for _ in range(60):
        plan, steps = await workshop.control.get(plan.id)
        if plan.has_ended:
            break
        await workshop.pass_time(1)
        moving = [step for step in steps if step.state is StepState.MOVING]
        assert len(moving) <= limits.moves_at_once
        for name in CORES:
            of_one = [step for step in moving if name in step.touches]
            assert len(of_one) <= (limits.moves_per_cluster or limits.moves_at_once)
        for each in bindings:
            placed = shares((await workshop.stored(each)).clusters)
            assert sum(placed.values()) == each.replicas
            promised = await held(workshop.store, each)
            assert {name: promised[name] for name in placed} == placed
        await look(workshop, bindings)
    for each in bindings:
        placed = shares((await workshop.stored(each)).clusters)
        assert await held(workshop.store, each) == placed
    assert (plan.state, {step.state for step in steps}) == (PlanState.DONE, {StepState.DONE})


async def test_clusters_are_emptied_and_stay_so(workshop: Workshop) -> None:
    bindings = await running(workshop, "a", "b", "c", "c")
    limits = PlanLimits(headroom_percent=10, moves_per_cluster=1)
    wish = PlanWish(kind=PlanKind.CONSOLIDATE, limits=limits)
    plan, steps = await workshop.control.create(wish, "ops")
    gain = plan.gain
    assert (gain.wanted, gain.moved, gain.bound, gain.unit) == (3, 2, 2, "clusters")
    emptied = {target.name for step in steps for target in step.leaves}
    (kept,) = CORES.keys() - emptied
    assert kept == "a"
    assert {step.reason for step in steps} == {"b is to be empty", "c is to be empty"}
    await carry_out(workshop, plan, bindings)
    assert {name for name in CORES if workshop.fleet.known(name).cluster.cordoned} == emptied
    second, none = await workshop.control.create(wish, "ops")
    assert (none, second.gain.wanted, second.gain.moved) == ((), 1, 0)


async def test_no_more_moves_are_tried_than_take_a_while(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    await running(workshop, "a", "b", "c")
    monkeypatch.setattr(search, "Tries", partial(search.Tries, left=0))
    plan, steps = await workshop.control.create(PlanWish(kind=PlanKind.CONSOLIDATE), "ops")
    assert (steps, plan.gain.moved, plan.gain.bound) == ((), 0, 2)
    assert all(search.TOO_LONG in each.reason for each in plan.unfixed)


async def test_full_clusters_give_to_others_and_a_selector_says_who(workshop: Workshop) -> None:
    bindings = await running(workshop, "a", "a", "a", "a")
    pinned = replace(bindings[0], annotations={DO_NOT_MOVE: "true"})
    labelled = replace(bindings[1], labels={"tier": "web"})
    for each in (pinned, labelled):
        await apply(workshop.deciders.scheduling, each)
    wish = PlanWish(kind=PlanKind.BALANCE)
    chosen = replace(wish, limits=PlanLimits(selector={"tier": "web"}, moves_at_once=1))
    plan, steps = await workshop.control.create(chosen, "ops")
    # Of 12 cores 4 are in use: 2 of a's, and 5 % of it above that; the next core has to leave too.
    assert [step.name for step in steps] == [labelled.name]
    assert (plan.gain.unit, plan.gain.wanted, plan.gain.moved) == ("cpu", 1700, 1000)
    assert plan.gain.bound == 1000
    assert steps[0].reason == "a has 67 % of its cpu in use, all together 33 %"
    why = {each.name: each.reason for each in plan.unfixed}
    assert why.keys() == {"n0", "n2", "n3"}
    assert why["n2"] == "it does not have the labels that were asked for"
    assert why["n0"] == "it does not have the labels that were asked for"
    plan, steps = await workshop.control.create(wish, "ops")
    assert (plan.gain.moved, plan.gain.bound, len(steps)) == (1700, 1700, 2)
    assert pinned.name not in {step.name for step in steps}
    await carry_out(workshop, plan, bindings)
    assert not any(each.cordoned for each in workshop.fleet.snapshot.fleet.clusters)
    second, none = await workshop.control.create(wish, "ops")
    assert (none, second.gain.wanted) == ((), 0)


async def test_reasons_call_no_cluster_cordoned_that_nobody_cordoned(workshop: Workshop) -> None:
    bindings = await running(workshop, "a", "a", "a", "a", "b", "b", "b")
    for each in bindings[:2]:
        # One may go to a full cluster, the other out of the plan's clusters.
        number = bindings.index(each)
        affinity = ClusterAffinity(cluster_names=("a", "bc"[number]))
        narrow = replace(each, placement=replace(each.placement, affinity=affinity))
        await apply(workshop.deciders.scheduling, narrow)
    refused = "2 of 3 clusters were refused: "
    for kind, clusters, reason in (
        (
            PlanKind.BALANCE,
            ("a", "b"),
            "is as full as the plan lets it become (1), is not among the plan's clusters (1)",
        ),
        (PlanKind.DRAIN, ("a",), "does not match the cluster affinity (1), is to be emptied (1)"),
    ):
        plan, _ = await workshop.control.create(PlanWish(kind=kind, clusters=clusters), "ops")
        assert plan.unfixed
        for each in plan.unfixed:
            assert each.reason.partition(refused)[2].startswith(reason)


async def test_others_make_room_for_what_waits(workshop: Workshop) -> None:
    bindings = await running(workshop, "a", "a", "a", "a", "a")
    waiting = replace(only("a", 3), name="waits", uid="uid-waits")
    gang = replace(only("a", 9), name="of-gang", uid="uid-gang", gang=Gang(name="g", size=1))
    for each in (waiting, gang):
        assert decided(await apply(workshop.deciders.scheduling, each)) == {}
    wish = PlanWish(kind=PlanKind.UNSCHEDULABLE)
    plan, steps = await workshop.control.create(wish, "ops")
    # One core of a is free, and no other cluster lets it in.
    assert [(plan.gain.wanted, plan.gain.moved), len(steps)] == [(12, 3), 2]
    assert 3 <= plan.gain.bound <= 6
    assert {step.reason for step in steps} == {"shop/waits waits for room in a"}
    (gang_stays,) = plan.unfixed
    assert (gang_stays.name, gang_stays.reason[:22]) == ("of-gang", "it waits with its gang")
    await carry_out(workshop, plan, bindings)
    assert decided(await apply(workshop.deciders.scheduling, waiting)) == {"a": 3}
    second, none = await workshop.control.create(wish, "ops")
    assert (none, second.gain.moved, second.gain.wanted) == ((), 0, 9)


async def test_what_lost_its_room_moves_to_where_there_is_some(workshop: Workshop) -> None:
    (binding,) = await running(workshop, "b")
    scaled = replace(binding, replicas=3)
    await apply(workshop.deciders.scheduling, replace(scaled, placement=only("b", 3).placement))
    scaled = replace(scaled, placement=Placement(replica_scheduling=DYNAMIC))
    await apply(workshop.deciders.scheduling, scaled)
    known = workshop.fleet.report("b")
    assert known is not None
    # Somebody else took the last core of b but one before the new pods came.
    report = make_report(known.sequence + 1, cpu_millis=1000)
    report = replace(
        report,
        interest_version=workshop.fleet.ledger("b").interest_version,
        echoes=(echo(scaled.key, scaled.requirements.request, 1),),
    )
    await workshop.reporting.accept("b", report)
    wish = PlanWish(kind=PlanKind.UNSCHEDULABLE)
    plan, steps = await workshop.control.create(wish, "ops")
    assert (plan.gain.wanted, plan.gain.moved, plan.gain.bound) == (1, 1, 1)
    assert [step.reason for step in steps] == ["1 of its replicas lost their room in b"]
    assert "b" not in shares(steps[0].after)
    await apply(workshop.deciders.scheduling, replace(scaled, annotations={DO_NOT_MOVE: "true"}))
    pinned, none = await workshop.control.create(wish, "ops")
    assert (none, pinned.gain.moved) == ((), 0)
    assert [each.reason for each in pinned.unfixed] == [f"it is pinned by {DO_NOT_MOVE}"]


async def test_clusters_are_named_by_labels(workshop: Workshop) -> None:
    await running(workshop, "a", "a", "a")
    wish = PlanWish(kind=PlanKind.BALANCE, cluster_selector={"env": "prod"})
    with pytest.raises(InvalidRequest, match="no cluster has all of these labels"):
        await workshop.control.create(wish, "ops")
    for name in ("a", "b"):
        known = workshop.fleet.known(name).cluster
        workshop.fleet.put_cluster(replace(known, labels={"env": "prod"}))
    plan, steps = await workshop.control.create(wish, "ops")
    assert plan.clusters == ("a", "b")
    assert {target.name for step in steps for target in step.after} == {"b"}


async def test_no_more_of_a_binding_moves_than_may(workshop: Workshop) -> None:
    binding = replace(WEB, replicas=4)
    await apply(workshop.deciders.scheduling, binding)
    home = shares((await workshop.stored()).clusters)
    percent = home["a"] * 100 // 4
    wish = PlanWish(kind=PlanKind.DRAIN, clusters=("a",), limits=PlanLimits(moved_percent=percent))
    assert (await workshop.control.create(wish, "ops"))[1]
    fewer = replace(wish, limits=PlanLimits(moved_percent=percent - 1))
    plan, steps = await workshop.control.create(fewer, "ops")
    assert steps == ()
    assert plan.unfixed[0].reason == f"the plan may move {percent - 1} % of a binding at most"
