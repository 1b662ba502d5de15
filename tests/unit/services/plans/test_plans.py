"""Plans over a real store, with a clock that stands still: made, approved, carried out, stopped."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace

import pytest

from federation.failover.moves import PLANNED_MOVE
from federation.model.errors import InvalidRequest, NotFound, PreconditionFailed
from federation.model.placement import AffinityGroup, Binding, ClusterAffinity, Placement
from federation.plans.plan import (
    DO_NOT_MOVE,
    Plan,
    PlanKind,
    PlanLimits,
    PlanState,
    PlanStep,
    StepState,
)
from federation.services.plans.control import PlanNews, planned_move
from federation.services.plans.drafting import PlanWish
from federation.services.waiting.steering import Queueing
from lab.services import DYNAMIC, WEB, apply, decided, shares
from tests.unit.services.conftest import held, only
from tests.unit.services.plans.conftest import DRAIN_A, SECONDS, Workshop

THREE = replace(WEB, replicas=3)
API = replace(WEB, name="api", uid="uid-api", replicas=2)


def text_of(plan: Plan, steps: object) -> str:
    """All that a plan says, but for what names it."""
    return repr((replace(plan, id=0, created_at=0.0), steps))


def home_and_abroad() -> tuple[AffinityGroup, ...]:
    return tuple(
        AffinityGroup(name=name, affinity=ClusterAffinity(cluster_names=clusters))
        for name, clusters in (("home", ("a",)), ("abroad", ("b", "c")))
    )


async def test_a_drain_claims_room_before_it_leaves_and_ends_by_echo(workshop: Workshop) -> None:
    before = decided(await apply(workshop.deciders.scheduling, THREE))
    assert before["a"]
    await workshop.sees("a", (THREE, before["a"]), free=6 - before["a"])
    plan, steps = await workshop.control.create(DRAIN_A, "ops")
    again, same_steps = await workshop.control.create(DRAIN_A, "others")
    assert text_of(replace(again, created_by="ops"), same_steps) == text_of(plan, steps)
    assert (plan.state, plan.created_by, plan.step_count) == (PlanState.DRAFT, "ops", 1)
    gain = plan.gain
    assert (gain.wanted, gain.moved, gain.bound, gain.gap_percent) == (before["a"],) * 3 + (0.0,)
    assert shares(steps[0].before) == before
    assert sum(shares(steps[0].after).values()) == 3
    assert "a" not in shares(steps[0].after)
    # A draft moves nothing.
    await workshop.pass_time()
    assert shares((await workshop.stored()).clusters) == before
    approved = await workshop.control.approve(plan.id, "boss")
    assert (approved.state, approved.approved_by) == (PlanState.RUNNING, "boss")
    assert workshop.fleet.known("a").cluster.cordoned
    # What comes now goes elsewhere.
    assert "a" not in decided(await apply(workshop.deciders.scheduling, replace(API, replicas=1)))
    await workshop.pass_time()
    moving = await workshop.stored()
    assert shares(moving.clusters) == shares(steps[0].after)
    # Of what is still there some pods may be on no node: all keep their room until it is gone.
    in_both = {"a": before["a"], **shares(moving.clusters)}
    assert await held(workshop.store) == in_both
    (task,) = moving.eviction_tasks
    assert (task.from_cluster, task.replicas, task.reason) == ("a", before["a"], PLANNED_MOVE)
    assert f"(plan {plan.id}, step 1)" in task.message
    assert [each.record.binding_key for each in workshop.told] == [WEB.key]
    assert workshop.told[0].record.decision.trace.triggers == (task.message,)
    # Longer than any eviction of failover's: nothing is taken away before it is replaced.
    await workshop.pass_time(int(SECONDS * 0.55))
    assert (await workshop.stored()).eviction_tasks == (task,)
    for name, replicas in shares(moving.clusters).items():
        await workshop.sees(name, (THREE, replicas))
    await workshop.pass_time()
    assert (await workshop.stored()).eviction_tasks == ()
    # The controller may take the old share away now, and does.
    assert await workshop.states(plan) == (PlanState.RUNNING, [StepState.MOVING])
    assert await held(workshop.store) == in_both
    await workshop.sees("a")
    await workshop.pass_time()
    assert await workshop.states(plan) == (PlanState.DONE, [StepState.DONE])
    assert await held(workshop.store) == shares(moving.clusters)
    empty, none = await workshop.control.create(DRAIN_A, "ops")
    assert (empty.gain.wanted, none, empty.unfixed) == (0, (), ())


async def test_what_is_not_as_it_was_is_refused_and_the_step_is_named(workshop: Workshop) -> None:
    await apply(workshop.deciders.scheduling, THREE)
    control = workshop.control
    plan, steps = await control.create(DRAIN_A, "ops")
    other, _ = await control.create(DRAIN_A, "ops")
    stopped = await control.stop((await control.create(DRAIN_A, "ops"))[0].id, "ops", "no")
    assert (stopped.state, stopped.reason) == (PlanState.STOPPED, "no")
    (after,) = (step.after for step in steps)
    # Somebody else takes the room in the clusters that it would go to.
    fillers = [
        replace(only(each.name, 3 - each.replicas + 1), name=f"fill-{each.name}", uid=each.name)
        for each in after
    ]
    for filler in fillers:
        free = 3 - shares((await workshop.stored()).clusters).get(filler.uid, 0)
        await apply(workshop.deciders.scheduling, replace(filler, replicas=free))
    with pytest.raises(PreconditionFailed, match=r"Step 1 of plan \d+ \(shop/web\)") as refused:
        await control.approve(plan.id, "ops")
    assert refused.value.reason == "STEP_NOT_FEASIBLE"
    assert not workshop.fleet.known("a").cluster.cordoned
    for filler in fillers:
        await workshop.deciders.releases.delete(filler.namespace, filler.name)
    await control.approve(plan.id, "ops")
    for plan_id, reason in (
        (plan.id, "NOT_A_DRAFT"),
        (other.id, "PLAN_RUNNING"),
        (stopped.id, "NOT_A_DRAFT"),
    ):
        with pytest.raises(PreconditionFailed) as refused:
            await control.approve(plan_id, "ops")
        assert refused.value.reason == reason
    with pytest.raises(PreconditionFailed, match="stopped already"):
        await control.stop(stopped.id, "ops", "again")
    with pytest.raises(NotFound, match="There is no plan 999"):
        await control.approve(999, "ops")
    with pytest.raises(InvalidRequest, match="there is no cluster 'x'"):
        await control.create(replace(DRAIN_A, clusters=("a", "x")), "ops")
    assert [each.id for each in await control.page(None, 2)] == [stopped.id, other.id]
    assert [each.id for each in await control.page(other.id, 2)] == [plan.id]


async def test_what_it_leaves_says_why_and_how_much_could_move_at_best(workshop: Workshop) -> None:
    scheduling = workshop.deciders.scheduling
    pinned = replace(only("a", 1), name="pinned", uid="p", annotations={DO_NOT_MOVE: "true"})
    at_home = replace(only("a", 1), name="at-home", uid="h")
    for binding in (pinned, at_home):
        await apply(scheduling, binding)
    for binding, replicas in ((replace(WEB, name="one", uid="1"), 3), (replace(WEB, uid="2"), 6)):
        await apply(scheduling, replace(binding, replicas=replicas))
    plan, steps = await workshop.control.create(DRAIN_A, "ops")
    why = {each.name: each.reason for each in plan.unfixed}
    assert why["pinned"] == f"it is pinned by {DO_NOT_MOVE}"
    assert "affinity" in why["at-home"]
    assert plan.gain.wanted == sum(each.replicas for each in plan.unfixed) + plan.gain.moved
    assert plan.gain.moved == sum(step.replicas for step in steps)
    async with workshop.store.reading() as read:
        everything = await read.bindings.page("", None, 10)
    outside = sum(n for each in everything for c, n in shares(each.clusters).items() if c != "a")
    # Six cores are there outside, and a replica takes one.
    assert plan.gain.moved <= plan.gain.bound <= 6 - outside


async def test_no_more_moves_at_once_than_may_be_and_stopping_leaves_all_placed(
    workshop: Workshop,
) -> None:
    scheduling = workshop.deciders.scheduling
    names = ["n1", "n2", "n3"]
    for name in names:
        binding = replace(only("a", 1), name=name, uid=name)
        await apply(scheduling, binding)
        # It may go anywhere from now on; what is placed stays.
        await apply(scheduling, replace(binding, placement=Placement(replica_scheduling=DYNAMIC)))
    plan = await workshop.approved(
        replace(DRAIN_A, limits=PlanLimits(moves_at_once=1, most_moves=2))
    )
    assert plan.step_count == 2
    assert [each.reason[:8] for each in plan.unfixed] == ["the plan"]
    news: list[PlanNews] = []

    async def watch() -> None:
        news.extend([each async for each in workshop.control.watch(plan.id)])

    watching = asyncio.create_task(watch())
    await workshop.pass_time()
    assert await workshop.states(plan) == (
        PlanState.RUNNING,
        [StepState.MOVING, StepState.PENDING],
    )
    # Another control plane goes on with it.
    await workshop.duties.leave()
    workshop.start("two")
    await workshop.pass_time()
    _, (first, _) = await workshop.control.get(plan.id)
    await workshop.control.stop(plan.id, "ops", "enough")
    for cluster in ("b", "c"):
        seen = [replace(WEB, name=name) for name in names]
        there = [each for each in seen if cluster in shares((await workshop.stored(each)).clusters)]
        await workshop.sees(cluster, *((each, 1) for each in there))
    await workshop.pass_time()
    assert await workshop.states(plan) == (PlanState.STOPPED, [StepState.DONE, StepState.PENDING])
    async with asyncio.timeout(60):
        await watching
    assert news[-1].plan.state is PlanState.STOPPED
    assert [step.number for step in news[0].steps] == [1, 2]
    told = [(step.number, step.state) for each in news for step in each.steps]
    assert told[-1] == (first.number, StepState.DONE)
    for name in names:
        binding = await workshop.stored(replace(WEB, name=name))
        assert sum(shares(binding.clusters).values()) == 1
        assert await held(workshop.store, binding) == shares(binding.clusters)
        assert binding.eviction_tasks == ()


async def test_what_is_not_seen_running_in_time_is_taken_back_and_the_plan_stops(
    workshop: Workshop,
) -> None:
    before = decided(await apply(workshop.deciders.scheduling, THREE))
    plan = await workshop.approved()
    await workshop.pass_time(int(SECONDS) + 5)
    assert await workshop.states(plan) == (PlanState.STOPPED, [StepState.FAILED])
    found, _ = await workshop.control.get(plan.id)
    assert found.reason.startswith("step 1 (shop/web): what replaces it was not seen")
    back = await workshop.stored()
    assert (shares(back.clusters), back.eviction_tasks) == (before, ())
    assert await held(workshop.store) == before


async def test_what_moved_to_another_affinity_group_and_found_no_node_is_taken_back_to_its_own(
    workshop: Workshop,
) -> None:
    """The first group is home, where it runs; the other one has room by reports, and no node."""
    placement = Placement(affinity_groups=home_and_abroad(), replica_scheduling=DYNAMIC)
    web = replace(WEB, replicas=2, placement=placement)
    assert decided(await apply(workshop.deciders.scheduling, web)) == {"a": 2}
    await workshop.sees("a", (web, 2))
    plan = await workshop.approved()
    await workshop.pass_time()
    moved = await workshop.stored(web)
    assert "a" not in shares(moved.clusters)
    assert [task.from_cluster for task in moved.eviction_tasks] == ["a"]
    await workshop.pass_time(int(SECONDS) + 5)
    assert await workshop.states(plan) == (PlanState.STOPPED, [StepState.FAILED])
    back = await workshop.stored(web)
    assert (shares(back.clusters), back.eviction_tasks) == ({"a": 2}, ())
    assert await held(workshop.store, web) == {"a": 2}
    # It is of its own group again: others do not move it abroad.
    assert decided(await apply(workshop.deciders.scheduling, web)) == {"a": 2}


async def test_what_cannot_be_taken_back_runs_until_its_replacement_does(
    workshop: Workshop,
) -> None:
    before = decided(await apply(workshop.deciders.scheduling, THREE))
    await workshop.sees("a", (THREE, before["a"]))
    plan = await workshop.approved()
    await workshop.pass_time()
    queueing = Queueing(workshop.store, workshop.fleet, workshop.deciders.pipeline)
    await queueing.suspend(THREE.namespace, THREE.name)
    await workshop.pass_time(int(SECONDS) * 3)
    assert await workshop.states(plan) == (PlanState.STOPPED, [StepState.FAILED])
    _, (step,) = await workshop.control.get(plan.id)
    assert step.message.endswith("it cannot be taken back, and stays in a until that runs")
    both = await workshop.stored()
    assert [task.from_cluster for task in both.eviction_tasks] == ["a"]
    assert "a" in await held(workshop.store)
    for name, replicas in shares(both.clusters).items():
        await workshop.sees(name, (THREE, replicas))
    await workshop.pass_time()
    assert (await workshop.stored()).eviction_tasks == ()


async def test_a_plan_stops_where_nobody_takes_the_old_share_away(workshop: Workshop) -> None:
    before = decided(await apply(workshop.deciders.scheduling, THREE))
    await workshop.sees("a", (THREE, before["a"]))
    plan = await workshop.approved()
    await workshop.pass_time()
    placed = shares((await workshop.stored()).clusters)
    for name, replicas in placed.items():
        await workshop.sees(name, (THREE, replicas))
    # A controller that submits it again changes nothing of that.
    again = await apply(workshop.deciders.scheduling, THREE)
    assert again.record.id == workshop.told[0].record.id
    await workshop.pass_time(2 * int(SECONDS) + 5)
    assert await workshop.states(plan) == (PlanState.STOPPED, [StepState.FAILED])
    found, _ = await workshop.control.get(plan.id)
    assert "its pods are still in a, although" in found.reason
    assert shares((await workshop.stored()).clusters) == await held(workshop.store) == placed


async def test_steps_that_others_made_impossible_are_passed_over(workshop: Workshop) -> None:
    scheduling = workshop.deciders.scheduling
    scaled, gone, moved = (replace(THREE, name=n, uid=n, replicas=1) for n in ("s", "g", "m"))
    for binding in (scaled, gone, moved):
        await apply(scheduling, replace(only("a", 1), name=binding.name, uid=binding.uid))
        await apply(scheduling, binding)
    plan = await workshop.approved()
    await apply(scheduling, replace(scaled, replicas=2))
    await workshop.deciders.releases.delete(gone.namespace, gone.name)
    # A control plane begins a step and dies before it can say so.
    _, steps = await workshop.control.get(plan.id)
    (step,) = (each for each in steps if each.name == "m")
    await begin(workshop, step)
    await workshop.pass_time()
    _, steps = await workshop.control.get(plan.id)
    states = {step.name: (step.state, step.message) for step in steps}
    assert states["s"][0] is StepState.SKIPPED
    assert re.fullmatch(r"it is at a=1, \w=1 now, not at a=1|it is at a=2 .*", states["s"][1])
    assert states["g"] == (StepState.DONE, "the binding was deleted")
    assert states["m"][0] is StepState.MOVING
    (task,) = (await workshop.stored(moved)).eviction_tasks
    assert task.from_cluster == "a"


async def begin(workshop: Workshop, step: PlanStep) -> None:
    name = Binding(namespace=step.namespace, name=step.name)
    await workshop.deciders.pipeline.move(name, planned=planned_move(step))


async def test_a_plan_stops_where_failover_is_frozen(workshop: Workshop) -> None:
    await apply(workshop.deciders.scheduling, THREE)
    plan = await workshop.approved()
    async with workshop.store.transaction() as tx:
        breaker = await tx.failover.lock()
        await tx.failover.put(breaker.frozen("admin", 1.0, "we look into it"))
    await workshop.pass_time()
    assert await workshop.states(plan) == (PlanState.STOPPED, [StepState.PENDING])
    assert "a" in shares((await workshop.stored()).clusters)


async def test_bindings_go_back_to_the_group_that_they_prefer_once_it_has_room(
    workshop: Workshop,
) -> None:
    scheduling = workshop.deciders.scheduling
    filler = replace(only("a", 6), name="filler", uid="filler")
    await apply(scheduling, filler)
    placement = Placement(affinity_groups=home_and_abroad(), replica_scheduling=DYNAMIC)
    web, api = (replace(each, placement=placement) for each in (THREE, API))
    for each in (web, api):
        assert "a" not in decided(await apply(scheduling, each))
    wish = PlanWish(kind=PlanKind.FAILBACK, clusters=())
    full, none = await workshop.control.create(wish, "ops")
    assert (none, full.gain.wanted, full.gain.moved, full.gain.bound) == ((), 5, 0, 0)
    assert all(each.reason.endswith("short of cpu in 1 cluster") for each in full.unfixed)
    await workshop.deciders.releases.delete(filler.namespace, filler.name)
    plan, steps = await workshop.control.create(wish, "ops")
    assert (plan.gain.moved, plan.gain.bound, plan.unfixed) == (5, 5, ())
    assert [shares(step.after) for step in steps] == [{"a": 3}, {"a": 2}]
    assert {step.reason for step in steps} == {"it prefers other affinity groups to abroad"}
    where = steps[1].before[0].name
    _, fewer = await workshop.control.create(replace(wish, clusters=(where,)), "ops")
    assert fewer
    assert all(where in shares(step.before) for step in fewer)
    await workshop.control.approve(plan.id, "ops")
    assert not any(each.cordoned for each in workshop.fleet.snapshot.fleet.clusters)
    await workshop.pass_time()
    assert shares((await workshop.stored(web)).clusters) == {"a": 3}
    await workshop.sees("a", (web, 3), (api, 2), free=1)
    await workshop.pass_time()
    assert await workshop.states(plan) == (PlanState.DONE, [StepState.DONE] * 2)
    async with workshop.store.reading() as read:
        stored = await read.bindings.get(web.namespace, web.name)
    assert stored is not None
    assert stored.observed_affinity == "home"
    # What is back stays, and no plan finds anything to do.
    assert decided(await apply(scheduling, web)) == {"a": 3}
    assert (await workshop.control.create(wish, "ops"))[0].gain.wanted == 0
