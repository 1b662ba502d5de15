"""Clusters whose nodes nobody sees: what their totals and grades promise, and what they do not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from federation.model.cluster import CapacityReport, NodeSummary
from federation.model.grades import DEFAULT_MODEL, model_hash
from federation.scheduler.promisable import NO_POOLS
from federation.v1.resource_pb2 import NodeClaim, TargetCluster
from federation.v1.scheduling_pb2 import OUTCOME_UNSCHEDULABLE
from lab.commanded_stores import CommandedStore
from lab.control_planes import running_control_plane
from lab.fake_agents import FakeAgent, capacity
from lab.held_clocks import HeldClock
from tests.api.calls import DUPLICATED
from tests.api.world import World, shares


def totals(cores: int, source: str = "karmada", **grades: int) -> CapacityReport:
    """Sums of nodes, told by somebody who does not see them; ``g4`` counts nodes of grade 4."""
    counts = {int(name[1:]): count for name, count in grades.items()}
    return replace(
        capacity(cores, pods=1000),
        pools=None,
        source=source,
        nodes=NodeSummary(total=99, ready=99, graded=sum(counts.values())),
        grade_counts=counts,
        model_hash=model_hash(DEFAULT_MODEL) if counts else "",
    )


async def join(world: World, **reports: CapacityReport) -> None:
    for name, report in reports.items():
        world.agents[name] = await FakeAgent.joined(world.plane, name, report)


def worth(answer: Any) -> Mapping[str, tuple[str, bool]]:
    """By cluster what is promised, and whether something is noted on it."""
    return {each.cluster: (each.certificate, bool(each.note)) for each in answer.decision.promises}


async def available(world: World, cluster: str, **fields: Any) -> int:
    shown = await world.schedule("asks", 1, only=[cluster], preview=True, **fields)
    rows = {each.name: each.available_replicas for each in shown.decision.trace.clusters}
    return rows[cluster]


async def test_totals_of_somebody_else_are_promised_as_far_as_they_go_and_that_is_said(
    world: World,
) -> None:
    await world.clusters(a=2)
    await join(world, bare=totals(5))
    answer = await world.schedule("web", 3, only=["bare"])
    assert worth(answer) == {"bare": ("summary-checked", False)}
    assert await available(world, "bare") == 2
    refusal = await world.schedule(
        "copies", 3, only=["bare"], placement={"replica_scheduling": DUPLICATED}, wait=False
    )
    assert "bare: by its totals there is room for 2 more, not 3" in refusal.decision.reason
    # Replicas of another size are none that it holds already.
    larger = await world.schedule(
        "web",
        3,
        only=["bare"],
        request={"cpu": "2"},
        placement={"replica_scheduling": DUPLICATED},
        wait=False,
    )
    assert larger.decision.outcome == OUTCOME_UNSCHEDULABLE
    # What stays is promised again.
    assert await world.placed("web", 5, "bare") == {"bare": 5}
    # What one of a batch lets go is there for the next one, and what it takes is not.
    batch = [world.workload(name, n, only=["bare"]) for name, n in (("web", 1), ("x", 4), ("y", 1))]
    results = await world.batch(*batch)
    assert [shares(each.decision) for each in results] == [{"bare": 1}, {"bare": 4}, {}]
    for name in ("web", "x", "y"):
        await world.delete(name)
    # Certainty is not to be had of totals, nor do they tell nodes apart.
    assert await available(world, "bare", certificate="strict") == 0
    chosen = world.workload("chosen", 9, only=["bare"])
    claim = NodeClaim(node_selector={"disk": "ssd"})
    chosen.spec.replica_requirements.node_claim.CopyFrom(claim)
    assert (await world.schedule(chosen, wait=False)).decision.outcome == OUTCOME_UNSCHEDULABLE
    # What runs is in Karmada's totals, wherever it runs; an agent of its own would show its nodes.
    chosen.spec.clusters.append(TargetCluster(name="bare", replicas=9))
    assert worth(await world.schedule(chosen, adopt=True))["bare"][0] == "summary-checked"
    await join(world, own=totals(5, source=""))
    chosen = world.workload("own", 9, clusters=[TargetCluster(name="own", replicas=9)])
    chosen.spec.replica_requirements.node_claim.CopyFrom(claim)
    assert worth(await world.schedule(chosen, adopt=True))["own"][0] == "unproven"


async def test_what_grades_of_somebody_else_surely_hold_is_taken_first(world: World) -> None:
    """Nodes of grade 4 have 8 cores or more, those of grade 5 have 16."""
    await join(world, b=totals(1000, g4=10), c=totals(1000, g4=10, g5=3))
    twelve: dict[str, Any] = {"request": {"cpu": "12"}}
    assert [await available(world, name, **twelve) for name in "bc"] == [10, 13]
    assert await world.placed("web", 2, **twelve) == {"c": 2}
    # What is promised by totals is taken from what was sure.
    assert await world.placed("one", 1, **twelve) == {"c": 1}
    assert (await world.placed("more", 12, **twelve)).keys() == {"b", "c"}


async def test_where_nothing_shows_room_only_a_setting_makes_promises(
    world: World, database_url: str, tmp_path: Path
) -> None:
    await join(world, bare=totals(5, source=""))
    answer = await world.schedule("web", wait=False)
    assert answer.decision.outcome == OUTCOME_UNSCHEDULABLE
    assert str(NO_POOLS) in f"{answer.decision.trace}{answer.decision.reason}"
    clock, store = HeldClock(), CommandedStore()
    flags = {"allow_unproven": "true"}
    async with running_control_plane(
        database_url, tmp_path, clock=clock, store=store, **flags
    ) as plane:
        lenient = World(plane, clock, store)
        await join(lenient, bare=totals(5, source=""), relayed=totals(5))
        answer = await lenient.schedule("web", 3, only=["bare"], certificate="strict")
        assert worth(answer) == {"bare": ("unproven", True)}
        # What is promised since, let go again, or promised to the same one, is looked at as well.
        for name, replicas, left in (("more", 1, 1), ("web", 1, 3), ("more", 0, 4)):
            await lenient.placed(name, replicas, "bare")
            assert await available(lenient, "bare") == left
        placement = {"replica_scheduling": DUPLICATED}
        over = await lenient.schedule("over", 6, only=["relayed"], placement=placement)
        assert worth(over) == {"relayed": ("unproven", False)}
        assert shares(over.decision) == {"relayed": 6}
        # What is left of it is worth no more.
        less = await lenient.schedule("over", 5, only=["relayed"], placement=placement)
        assert worth(less) == {"relayed": ("unproven", False)}
        await lenient.end()
