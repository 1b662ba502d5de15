"""A plan that somebody else carries out: asked for, read from the database, and judged.

Must not ask a control plane what it has done.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import asyncpg

from federation.v1 import clusters_pb2, rebalance_pb2
from lab.callers import calling
from lab.chaos.evictions import Placed
from lab.chaos.records import opened
from lab.patience import until

STEPS = """
    SELECT step.number, step.state, step.body ->> 'message' AS message,
        step.body ->> 'namespace' || '/' || (step.body ->> 'name') AS key,
        (
            SELECT count(*) FROM decision
            WHERE decision.namespace = step.body ->> 'namespace'
                AND decision.name = step.body ->> 'name'
                AND decision.created_at >= plan.created_at
        ) AS decisions
    FROM plan_step step JOIN plan ON plan.id = step.plan_id ORDER BY step.number
"""

UNFIXED = """
    SELECT 'shop/' || (unfixed ->> 'name') AS key, unfixed ->> 'reason' AS reason
    FROM plan, jsonb_array_elements(plan.body -> 'unfixed') AS unfixed
"""
NOTHING: Mapping[str, str] = MappingProxyType({})
# Divided anew by fixed weights it would keep a part of a share, which nobody can leave gracefully.
MAY_STAY = "it would stay in "


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """``decisions`` were made about its binding since the plan was."""

    number: int
    key: str
    state: str
    message: str
    decisions: int

    @property
    def has_ended(self) -> bool:
        return self.state not in ("pending", "moving")


async def approve_drain(endpoint: str, token: str, cluster: str) -> None:
    """As soon as every cluster is heard of."""
    async with calling(endpoint, token) as caller:
        # One that was not heard of for some seconds is no target: nothing would be planned there.
        await until(lambda: caller.ask("ListClusters"), all_are_ready)
        made = await caller.ask(
            "CreatePlan",
            kind=rebalance_pb2.PLAN_KIND_DRAIN,
            clusters=[cluster],
            moves_at_once=2,
        )
        await caller.ask("ApprovePlan", id=made.plan.id)


def all_are_ready(answer: clusters_pb2.ListClustersResponse) -> bool:
    """Of one that nobody has heard of yet nothing is said."""
    return all(
        any(each.type == "Ready" and each.status == "True" for each in cluster.status.conditions)
        for cluster in answer.clusters
    )


async def read_steps(database: asyncpg.Connection) -> Sequence[Step]:
    """Of the only plan."""
    return [Step(**row) for row in await database.fetch(STEPS)]


async def read_unfixed(url: str) -> Mapping[str, str]:
    """What the only plan leaves as it is, and why."""
    async with opened(url) as database:
        return {row["key"]: row["reason"] for row in await database.fetch(UNFIXED)}


def wrong_steps(
    steps: Sequence[Step],
    cluster: str,
    before: Collection[str],
    placed: Mapping[str, Placed],
    unfixed: Mapping[str, str] = NOTHING,
    may_stay: Collection[str] = (),
) -> list[str]:
    """What was not done, or done twice, of a plan that empties a cluster of these bindings; of
    what it leaves as it is, told why, only those ``may_stay`` that are divided by fixed weights.
    """
    stays = {key for key in may_stay if unfixed.get(key, "").startswith(MAY_STAY)}
    found = [
        f"step {each.number} ({each.key}) is {each.state} after {each.decisions} decisions: "
        f"{each.message}"
        for each in steps
        if each.state != "done" or each.decisions != 1
    ]
    found += [
        f"{key} is still in {cluster}: {unfixed.get(key, 'nobody said why')}"
        for key in placed
        if cluster in placed[key].shares and key not in stays
    ]
    planned = sorted(each.key for each in steps)
    if planned != sorted({*before} - stays):
        found.append(f"the plan moves {planned}, not {sorted(before)}")
    return found
