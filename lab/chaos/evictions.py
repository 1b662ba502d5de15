"""Whether what ran in a silent cluster is kept: bindings are compared with what they were before.

Must not ask a control plane, nor know why something moved.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import asyncpg

from federation.failover.moves import TAINT_UNTOLERATED
from federation.model.placement import PurgeMode

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
