"""What the database says of bindings, lost clusters, plans and the queue, and what is wrong there.

Must not ask a control plane, nor reckon what fits.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

import asyncpg

from federation.failover.moves import TAINT_UNTOLERATED
from federation.model.placement import PurgeMode
from federation.v1 import clusters_pb2, rebalance_pb2
from lab.callers import calling
from lab.chaos.audit import opened
from lab.patience import until

PLACED = """
    SELECT namespace || '/' || name AS key, clusters, decision_id::text AS decision,
        spec -> 'eviction_tasks' AS tasks
    FROM binding
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """Where a binding is, and where it is evicted and runs on: replicas by cluster. ``moved`` is
    what left lost clusters, and when (Unix seconds); in ``leaving`` clusters it ends at once.
    """

    key: str
    decision: str
    shares: Mapping[str, int]
    evicted: Mapping[str, int]
    moved: Mapping[str, tuple[float, int]] = field(default_factory=dict)
    leaving: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """A binding as it was last seen, and which clusters were silent then."""

    placed: Placed
    silent: frozenset[str]


async def read_placed(database: asyncpg.Connection) -> Mapping[str, Placed]:
    """All bindings by key."""
    return {
        row["key"]: Placed(
            key=row["key"],
            decision=row["decision"],
            shares={each["name"]: each["replicas"] for each in row["clusters"]},
            evicted={
                each["from_cluster"]: each["replicas"] for each in row["tasks"] if not _ends(each)
            },
            moved={
                each["from_cluster"]: (each["created_at"], each["replicas"])
                for each in row["tasks"]
                if each["reason"] == TAINT_UNTOLERATED
            },
            leaving=sum(map(_ends, row["tasks"])),
        )
        for row in await database.fetch(PLACED)
    }


def _ends(task: Mapping[str, Any]) -> bool:
    """Whether what it names is taken away at once."""
    return task.get("purge_mode") == PurgeMode.DIRECTLY


def wrongly_gone(
    before: Watched, now: Placed, silent: frozenset[str], bound: Mapping[str, int]
) -> list[str]:
    """What is gone and must not be: replicas of the binding, or its share of a cluster that has
    been silent all the time.

    ``bound`` are its pods on nodes by cluster: an eviction may end once all that replace it run.
    """
    found = []
    wanted = sum(before.placed.shares.values())
    if sum(now.shares.values()) < wanted:
        found.append(f"{now.key} had {wanted} replicas, and has {now.shares}")
    is_replaced = all(bound[name] >= replicas for name, replicas in now.shares.items())
    for name in before.silent & silent:
        had = max(before.placed.shares.get(name, 0), before.placed.evicted.get(name, 0))
        has = max(now.shares.get(name, 0), now.evicted.get(name, 0))
        was_evicted = name in before.placed.evicted
        if has < had and not (was_evicted and is_replaced):
            found.append(f"{now.key} lost {had - has} replicas in {name}, which is silent: {now}")
    return found


QUEUE = """
    SELECT coalesce(b.namespace, w.namespace) || '/' || coalesce(b.name, w.name) AS key,
        b.id IS NOT NULL AS is_there, w.binding_id IS NOT NULL AS waits,
        coalesce(w.priority, 0) AS priority, extract(epoch FROM w.since)::float8 AS since,
        (b.spec ->> 'replicas')::int AS replicas,
        b.spec -> 'placement' -> 'replica_scheduling' ->> 'type' AS scheduling,
        d.id::text AS decision, d.outcome, d.clusters
    FROM binding b FULL JOIN waiting w ON w.binding_id = b.id LEFT JOIN decision d
        ON d.id = b.decision_id
"""
WHOLE = "SCHEDULED"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A binding with its newest decision; ``waits``: it stands in the queue."""

    key: str
    is_there: bool
    waits: bool
    priority: int
    since: float | None
    replicas: int | None
    scheduling: str | None
    decision: str | None
    outcome: str | None
    clusters: Any

    @property
    def is_whole(self) -> bool:
        """Whether the newest decision gave every replica a place."""
        shares = [each["replicas"] for each in self.clusters or ()]
        if self.scheduling == "Duplicated":
            is_enough = set(shares) == {self.replicas}
        else:
            is_enough = sum(shares) == self.replicas
        return self.outcome == WHOLE and is_enough


async def read_rows(database: asyncpg.Connection) -> Sequence[Row]:
    """All of one instant."""
    return [Row(**row) for row in await database.fetch(QUEUE)]


def wrong_rows(rows: Iterable[Row]) -> list[str]:
    """Who waits and has a place or is gone, and who has none and does not wait."""
    found = []
    for row in rows:
        if not row.is_there:
            found.append(f"{row.key} is gone and waits")
        elif row.is_whole and row.waits:
            found.append(f"{row.key} waits, and {row.decision} gave it all: {row.clusters}")
        elif not row.is_whole and not row.waits:
            found.append(f"{row.key} is lost: it has too little and does not wait: {row}")
    return found


def lost(rows: Iterable[Row], told: Mapping[str, str]) -> list[str]:
    """Who was told by a decision that it waits, and neither does nor was placed by a later one."""
    found, known = [], {row.key: row for row in rows}
    for key, decision in told.items():
        row = known.get(key)
        if row is None or not (row.waits or (row.is_whole and row.decision != decision)):
            found.append(f"{key} was told by {decision} that it waits, stored is {row}")
    return found


def in_order(rows: Iterable[Row]) -> list[str]:
    """The keys of those that wait, in the order in which equal wants must be placed."""
    waiting = [row for row in rows if row.waits]
    return [row.key for row in sorted(waiting, key=lambda row: (-row.priority, row.since, row.key))]


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


HOLDERS = """
    SELECT duty.name, holder, coalesce(endpoint, '') AS endpoint
    FROM duty LEFT JOIN replica ON replica.id = holder
    WHERE duty.name IN ('failover', 'plans', 'queue')
"""
PREEMPTED = "SELECT coalesce(sum(replicas), 0)::int FROM preemption"
LOST = """
    SELECT name FROM cluster WHERE spec -> 'taints' @> '[{"key": "fedsched.io/unreachable"}]'
"""


async def preempted(database: asyncpg.Connection) -> int:
    """How many replicas others lost, by what counts against the limits."""
    return int(await database.fetchval(PREEMPTED))


class Holder(NamedTuple):
    """Who has a duty, and where that one is dialled, "" where nobody is."""

    id: str = ""
    endpoint: str = ""


@dataclass(slots=True, kw_only=True)
class Look:
    """What the database said last: where bindings are, which clusters are lost, who has which duty,
    and how far steps of plans are.
    """

    placed: Mapping[str, Placed]
    lost: frozenset[str]
    holders: Mapping[str, Holder]
    steps: Sequence[Step]
    preempted: int

    def holder(self, duty: str) -> Holder:
        return self.holders.get(duty, Holder())

    @property
    def evictions(self) -> int:
        return sum(len(each.evicted) for each in self.placed.values())

    @property
    def leaving(self) -> int:
        return sum(each.leaving for each in self.placed.values())


async def look_at(database: asyncpg.Connection) -> Look:
    """All of one instant."""
    async with database.transaction(isolation="repeatable_read", readonly=True):
        placed = await read_placed(database)
        lost = frozenset(row["name"] for row in await database.fetch(LOST))
        duties = await database.fetch(HOLDERS)
        steps = await read_steps(database)
        lost_to_others = await preempted(database)
    holders = {each["name"]: Holder(each["holder"], each["endpoint"]) for each in duties}
    return Look(placed=placed, lost=lost, holders=holders, steps=steps, preempted=lost_to_others)


def evicted_from(look: Look, name: str) -> set[str]:
    """Who has an eviction from there."""
    return {key for key, each in look.placed.items() if name in each.evicted}
