"""Plans as callers make them, and agents that see what their steps move.

Must not check anything.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from federation.model.cluster import ResourceSummary
from federation.v1.rebalance_pb2 import (
    PLAN_KIND_BALANCE,
    PLAN_KIND_CONSOLIDATE,
    PLAN_KIND_DRAIN,
    PLAN_KIND_FAILBACK,
    PLAN_KIND_UNSCHEDULABLE,
    PLAN_STATE_DONE,
    PLAN_STATE_RUNNING,
    PLAN_STATE_STOPPED,
    STEP_STATE_DONE,
    STEP_STATE_FAILED,
    STEP_STATE_MOVING,
    STEP_STATE_PENDING,
    STEP_STATE_SKIPPED,
)
from lab.control_planes import RunningControlPlane
from lab.fake_agents import capacity
from tests.api.drill import Drill

DRAIN, FAILBACK, BALANCE = PLAN_KIND_DRAIN, PLAN_KIND_FAILBACK, PLAN_KIND_BALANCE
CONSOLIDATE, UNSCHEDULABLE = PLAN_KIND_CONSOLIDATE, PLAN_KIND_UNSCHEDULABLE
RUNNING, STOPPED, DONE = PLAN_STATE_RUNNING, PLAN_STATE_STOPPED, PLAN_STATE_DONE
PENDING, MOVING, STEP_DONE = STEP_STATE_PENDING, STEP_STATE_MOVING, STEP_STATE_DONE
SKIPPED, FAILED = STEP_STATE_SKIPPED, STEP_STATE_FAILED
PINNED = "fedsched.io/do-not-move"


async def planned(plane: RunningControlPlane, kind: Any, *clusters: str, **limits: Any) -> Any:
    return (await plane.ask("CreatePlan", kind=kind, clusters=clusters, **limits)).plan


async def approved(plane: RunningControlPlane, plan: Any) -> Any:
    return (await plane.ask("ApprovePlan", id=plan.id)).plan


async def got(plane: RunningControlPlane, plan: Any) -> Any:
    return (await plane.ask("GetPlan", id=plan.id)).plan


async def states(plane: RunningControlPlane, plan: Any) -> tuple[Any, list[Any]]:
    """The state of a plan, and those of its steps."""
    found = await got(plane, plan)
    return found.state, [each.state for each in found.steps]


def why(plan: Any) -> dict[str, str]:
    """Why bindings stay, by their names."""
    return {each.name: each.reason for each in plan.unfixed}


async def look(drill: Drill, cores: Mapping[str, int], names: Collection[str]) -> None:
    """Agents see pods of one core: all that is placed, and what graceful evictions keep."""
    pods: dict[str, dict[str, int]] = {cluster: {} for cluster in cores}
    for name in names:
        placed, kept = await drill.shares(name), await drill.evicted(name)
        for cluster, there in pods.items():
            count = max(placed.get(cluster, 0), kept.get(cluster, 0))
            if count:
                there[name] = count
    for cluster, total in cores.items():
        used = sum(pods[cluster].values())
        report = capacity(total - used)
        summary = ResourceSummary(
            allocatable=report.summary.allocatable | {"cpu": total * 1000},
            allocated={"cpu": used * 1000},
        )
        seen = {f"{drill.namespace}/{name}": count for name, count in pods[cluster].items()}
        await drill.agents[cluster].report(replace(report, summary=summary), sees=seen)
