"""Plans at the border: made, approved, carried out by what agents see, stopped and taken back."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest
import pytest_asyncio

from federation.v1.resource_pb2 import ClusterAffinityTerm
from lab.control_planes import refused
from lab.patience import until
from tests.api.calls import paged
from tests.api.drill import EVICTION_SECONDS, FLAGS, Drill
from tests.api.plan_calls import (
    BALANCE,
    DONE,
    DRAIN,
    FAILBACK,
    FAILED,
    MOVING,
    PENDING,
    PINNED,
    RUNNING,
    SKIPPED,
    STEP_DONE,
    STOPPED,
    approved,
    got,
    planned,
    states,
    why,
)
from tests.api.world import shares

LONG_AFTER = 2 * EVICTION_SECONDS + 5
HOME = ClusterAffinityTerm(affinity_name="home", cluster_names=["a"])
ABROAD = ClusterAffinityTerm(affinity_name="abroad", cluster_names=["b", "c"])
PREFERS_HOME = {"cluster_affinity": None, "cluster_affinities": [HOME, ABROAD]}


@pytest.fixture(scope="module")
def flags() -> dict[str, str]:
    """Failover is off: its duty ends evictions all the same."""
    return {**FLAGS, "no_failover": "true", "unschedulable_seconds": "0"}


@pytest_asyncio.fixture(loop_scope="module")
async def fleet(drill: Drill) -> Drill:
    """Clusters of 6, 3 and 3 free cores."""
    await drill.clusters(a=6, b=3, c=3)
    return drill


async def until_states(drill: Drill, plan: Any, state: Any, *steps: Any) -> None:
    await drill.pass_until(
        lambda: states(drill.plane, plan), lambda found: found == (state, list(steps))
    )


async def refusal(call: Any) -> tuple[str, str]:
    found = await refused(call)
    return found.code.name, found.reason


async def test_a_drain_has_room_before_it_leaves_and_ends_by_what_agents_see(drill: Drill) -> None:
    plane, fleet = drill.plane, drill
    await fleet.clusters(a=6, b=4, c=3)
    await fleet.run_in("a", web=3)
    await fleet.see("a", 3, web=3)
    plan, again = [await planned(plane, DRAIN, "a") for _ in range(2)]
    assert (plan.created_by, plan.step_count, plan.gain.gap_percent) == ("admin", 1, 0)
    assert (plan.gain.wanted, plan.gain.moved, plan.gain.bound) == (3, 3, 3)
    (step,) = plan.steps
    assert list(again.steps) == [step]
    assert shares(step.before) == {"a": 3}
    ((there, count),) = shares(step.after).items()
    assert (there in "bc", count) == (True, 3)
    # A draft moves nothing.
    await fleet.pass_time(4)
    assert await fleet.shares() == {"a": 3}
    running = await approved(plane, plan)
    assert (running.state, running.approved_by) == (RUNNING, "admin")
    # What comes now goes elsewhere.
    assert "a" not in shares((await fleet.schedule("api")).decision.clusters)
    await fleet.until_moved("web", **{there: 3})
    # Of what is still there some pods may be on no node: all keep their room until it is gone.
    assert await fleet.held() == {"a": 3, there: 3}
    (task,) = await fleet.evictions()
    assert (task.from_cluster, task.replicas, task.reason) == ("a", 3, "PlannedMove")
    assert f"(plan {plan.id}, step 1)" in task.message
    decision = await fleet.decision((await fleet.got()).decision.id)
    assert list(decision.triggers) == [task.message]
    await fleet.agents[there].until_asked()
    # Nothing is taken away before it is replaced; a controller that submits it changes nothing.
    await fleet.pass_time(EVICTION_SECONDS / 2)
    await fleet.schedule("web", 3)
    assert await fleet.evictions() == [task]
    await fleet.see(there, 0, web=3)
    await fleet.until_evicted()
    # The controller may take the old share away now, and does.
    await fleet.pass_time(4)
    assert await states(plane, plan) == (RUNNING, [MOVING])
    assert await fleet.held() == {"a": 3, there: 3}
    await fleet.see("a", 6)
    await until_states(fleet, plan, DONE, STEP_DONE)
    assert await fleet.held() == {there: 3}
    empty = await planned(plane, DRAIN, "a")
    assert (empty.gain.wanted, len(empty.steps), len(empty.unfixed)) == (0, 0, 0)


async def test_what_is_not_as_it_was_is_refused_and_the_step_is_named(fleet: Drill) -> None:
    plane = fleet.plane
    await fleet.run_in("a", web=3)
    plan, other, declined = [await planned(plane, DRAIN, "a") for _ in range(3)]
    stopped = (await plane.ask("StopPlan", id=declined.id, reason="no")).plan
    assert (stopped.state, stopped.reason) == (STOPPED, "no")
    # Others take the room in the clusters that it would go to.
    for name in ("b", "c"):
        await fleet.schedule(f"fills-{name}", 3, only=[name])
    found = await refused(plane.ask("ApprovePlan", id=plan.id))
    assert (found.code.name, found.reason) == ("FAILED_PRECONDITION", "STEP_NOT_FEASIBLE")
    assert f"Step 1 of plan {plan.id} ({fleet.namespace}/web)" in found.message
    assert (await planned(plane, DRAIN, "a")).gain.moved == 0
    for name in ("b", "c"):
        await fleet.delete(f"fills-{name}")
    await approved(plane, plan)
    for plan_id, reason in (
        (plan.id, "NOT_A_DRAFT"),
        (other.id, "PLAN_RUNNING"),
        (stopped.id, "NOT_A_DRAFT"),
    ):
        answer = await refusal(plane.ask("ApprovePlan", id=plan_id))
        assert answer == ("FAILED_PRECONDITION", reason)
    again = await refusal(plane.ask("StopPlan", id=stopped.id, reason="again"))
    assert again == ("FAILED_PRECONDITION", "ENDED")
    for method in ("GetPlan", "ApprovePlan", "StopPlan"):
        for plan_id, code in (
            (0, "INVALID_ARGUMENT"),
            (-1, "INVALID_ARGUMENT"),
            (999, "NOT_FOUND"),
        ):
            assert (await refusal(plane.ask(method, id=plan_id)))[0] == code
    listed = [each.id for each in await paged(plane, "ListPlans", "plans", 2)]
    assert listed[1:4] == [declined.id, other.id, plan.id]
    await plane.ask("StopPlan", id=plan.id, reason="enough")


@pytest.mark.parametrize(
    ("fields", "violated"),
    [
        ({"clusters": ["a"]}, {"kind"}),
        ({"kind": DRAIN}, {"clusters"}),
        (
            {"kind": DRAIN, "clusters": ["x", "X!", "x"], "moves_at_once": -1, "max_moves": 5001},
            {"clusters[1]", "clusters[2]", "movesAtOnce", "maxMoves"},
        ),
        ({"kind": DRAIN, "clusters": ["x"]}, {"clusters[0]"}),
        (
            {
                "kind": DRAIN,
                "clusters": ["a"],
                "cluster_selector": {"env": "prod"},
                "selector": {"!": "x"},
                "moves_per_cluster": 1001,
                "max_moved_percent": 101,
                "headroom_percent": 20,
                "tolerance_percent": 101,
            },
            {
                *("clusters", "selector[!]", "movesPerCluster", "maxMovedPercent"),
                *("headroomPercent", "tolerancePercent"),
            },
        ),
        ({"kind": BALANCE, "cluster_selector": {"env": "nowhere"}}, {"clusterSelector"}),
    ],
)
async def test_a_wrong_wish_is_refused_by_field(
    fleet: Drill, fields: dict[str, Any], violated: set[str]
) -> None:
    found = await refused(fleet.plane.ask("CreatePlan", **fields))
    assert (found.code.name, set(found.violations)) == ("INVALID_ARGUMENT", violated)


async def test_what_it_leaves_says_why_and_how_much_could_move_at_best(fleet: Drill) -> None:
    pinned = fleet.workload("pinned", 1, only=["a"])
    pinned.metadata.annotations[PINNED] = "true"
    await fleet.schedule(pinned)
    await fleet.schedule("at-home", 1, only=["a"])
    await fleet.run_in("a", small=1, large=3)
    await fleet.schedule("fills-b", 2, only=["b"])
    await fleet.schedule("fills-c", 1, only=["c"])
    plan = await planned(fleet.plane, DRAIN, "a")
    reasons = why(plan)
    assert reasons["pinned"] == f"it is pinned by {PINNED}"
    assert "affinity" in reasons["at-home"]
    gain = plan.gain
    assert gain.wanted == sum(each.replicas for each in plan.unfixed) + gain.moved == 6
    assert gain.moved <= gain.bound <= 3
    # No more of a binding moves than may.
    await fleet.delete("large")
    for percent, reason in ((99, "the plan may move 99 % of a binding at most"), (100, None)):
        plan = await planned(fleet.plane, DRAIN, "a", max_moved_percent=percent)
        assert why(plan).get("small") == reason


async def test_no_more_moves_at_once_than_may_and_a_stop_leaves_all_placed(fleet: Drill) -> None:
    plane, names = fleet.plane, ["n1", "n2", "n3"]
    await fleet.run_in("a", **dict.fromkeys(names, 1))
    plan = await planned(plane, DRAIN, "a", moves_at_once=1, max_moves=2)
    assert plan.step_count == 2
    assert [reason[:8] for reason in why(plan).values()] == ["the plan"]
    await approved(plane, plan)
    watch = plane.admin.watch("WatchPlan", id=plan.id)
    news: list[Any] = []

    async def hear() -> None:
        news.extend([each.plan async for each in watch])

    hearing = asyncio.create_task(hear())
    await until_states(fleet, plan, RUNNING, MOVING, PENDING)
    await fleet.pass_time(4)
    assert await states(plane, plan) == (RUNNING, [MOVING, PENDING])
    await plane.ask("StopPlan", id=plan.id, reason="enough")
    await fleet.see_all(*names)
    await until_states(fleet, plan, STOPPED, STEP_DONE, PENDING)

    async def is_told() -> bool:
        await fleet.turn()
        return hearing.done()

    await until(is_told, bool)
    await hearing
    assert [each.number for each in news[0].steps] == [1, 2]
    assert (news[-1].state, news[-1].reason) == (STOPPED, "enough")
    told = [(step.number, step.state) for each in news for step in each.steps]
    assert told[-1][1] == STEP_DONE
    for name in names:
        placed = await fleet.shares(name)
        assert (sum(placed.values()), await fleet.held(name)) == (1, placed)
        assert await fleet.evicted(name) == {}


async def test_what_is_not_seen_running_in_time_is_taken_back_and_the_plan_stops(
    fleet: Drill,
) -> None:
    """Of another affinity group too: it is of its own one again."""
    plane = fleet.plane
    await fleet.schedule("web", 2, placement=PREFERS_HOME)
    await fleet.see("a", 4, web=2)
    plan = await approved(plane, await planned(plane, DRAIN, "a"))
    await fleet.until_evicted(a=2)
    assert "a" not in await fleet.shares()
    await until_states(fleet, plan, STOPPED, FAILED)
    reason = (await got(plane, plan)).reason
    assert reason.startswith(f"step 1 ({fleet.namespace}/web): what replaces it was not seen")
    assert await fleet.shares() == await fleet.held() == {"a": 2}
    assert await fleet.evicted() == {}
    again = await fleet.schedule("web", 2, placement=PREFERS_HOME)
    assert shares(again.decision.clusters) == {"a": 2}


async def test_what_cannot_be_taken_back_runs_until_its_replacement_does(fleet: Drill) -> None:
    plane = fleet.plane
    await fleet.run_in("a", web=3)
    await fleet.see("a", 3, web=3)
    plan = await approved(plane, await planned(plane, DRAIN, "a"))
    await fleet.until_evicted(a=3)
    await plane.ask("SuspendBinding", namespace=fleet.namespace, name="web")
    await until_states(fleet, plan, STOPPED, FAILED)
    (step,) = (await got(plane, plan)).steps
    assert step.message.endswith("it cannot be taken back, and stays in a until that runs")
    assert (await fleet.evicted(), "a" in await fleet.held()) == ({"a": 3}, True)
    await fleet.see_all("web")
    await fleet.until_evicted()


async def test_a_plan_stops_where_nobody_takes_the_old_share_away(fleet: Drill) -> None:
    plane = fleet.plane
    await fleet.run_in("a", web=3)
    await fleet.see("a", 3, web=3)
    plan = await approved(plane, await planned(plane, DRAIN, "a"))
    await fleet.until_evicted(a=3)
    (there,) = await fleet.shares()
    await fleet.see(there, 0, web=3)
    await fleet.pass_time(LONG_AFTER, 4)
    await until_states(fleet, plan, STOPPED, FAILED)
    assert "its pods are still in a, although" in (await got(plane, plan)).reason
    assert await fleet.shares() == await fleet.held() == {there: 3}


async def test_steps_that_others_made_impossible_are_passed_over(fleet: Drill) -> None:
    plane = fleet.plane
    await fleet.run_in("a", scaled=1, gone=1, moved=1)
    plan = await approved(plane, await planned(plane, DRAIN, "a"))
    await fleet.schedule("scaled", 2)
    await fleet.delete("gone")
    # The control plane commits a move, and dies before it can say so of the step.
    fleet.store.fail_at("plans.put")
    found = await fleet.pass_until(
        lambda: got(plane, plan), lambda found: all(each.state != PENDING for each in found.steps)
    )
    steps = {each.name: (each.state, each.message) for each in found.steps}
    assert steps["scaled"][0] == SKIPPED
    assert re.fullmatch(r"it is at a=1, \w=1 now, not at a=1|it is at a=2 .*", steps["scaled"][1])
    assert steps["gone"] == (STEP_DONE, "the binding was deleted")
    assert steps["moved"][0] == MOVING
    assert await fleet.evicted("moved") == {"a": 1}


@pytest.mark.expected_errors("failover is frozen")
async def test_a_plan_stops_where_failover_is_frozen(fleet: Drill) -> None:
    plane = fleet.plane
    await fleet.run_in("a", web=3)
    plan = await planned(plane, DRAIN, "a")
    await plane.ask("FreezeFailover", reason="we look into it")
    await approved(plane, plan)
    await until_states(fleet, plan, STOPPED, PENDING)
    assert await fleet.shares() == {"a": 3}


async def test_bindings_go_back_to_the_group_that_they_prefer_once_it_has_room(
    fleet: Drill,
) -> None:
    plane = fleet.plane
    await fleet.schedule("filler", 6, only=["a"])
    for name, replicas in (("web", 3), ("api", 2)):
        placed = await fleet.schedule(name, replicas, placement=PREFERS_HOME)
        assert "a" not in shares(placed.decision.clusters)
    full = await planned(plane, FAILBACK)
    gain = full.gain
    assert (list(full.steps), gain.wanted, gain.moved, gain.bound) == ([], 5, 0, 0)
    assert all(each.endswith("short of cpu in 1 cluster") for each in why(full).values())
    await fleet.delete("filler")
    plan = await planned(plane, FAILBACK)
    assert (plan.gain.moved, plan.gain.bound, list(plan.unfixed)) == (5, 5, [])
    assert [shares(step.after) for step in plan.steps] == [{"a": 3}, {"a": 2}]
    assert {step.reason for step in plan.steps} == {"it prefers other affinity groups to abroad"}
    where = plan.steps[1].before[0].name
    fewer = (await planned(plane, FAILBACK, where)).steps
    assert fewer
    assert all(where in shares(step.before) for step in fewer)
    await approved(plane, plan)
    await fleet.until_moved("web", a=3)
    await fleet.until_moved("api", a=2)
