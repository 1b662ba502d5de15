"""A fleet full of what has a low priority, something urgent that takes its room, and how fast
replicas were moved.

Must not ask a control plane what it has done: the database says that.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import asyncpg

from federation.failover.rate import MINUTE, cost_of
from federation.model.placement import Binding, Placement, PreemptionPolicy
from lab.chaos.evictions import Placed
from lab.chaos.waiting import Row
from lab.fleets import GIB
from lab.workloads import DYNAMIC, workload

FILLERS, OF_A_FILLER, OF_THE_URGENT = 4, 80, 100
PREEMPTED = "SELECT coalesce(sum(replicas), 0)::int FROM preemption"


class Moved(NamedTuple):
    """A share that was moved, when that was decided; Unix seconds."""

    at: float
    key: str
    cluster: str
    replicas: int


def filler(number: int) -> Binding:
    """What others may take replicas of, one by one."""
    placement = Placement(replica_scheduling=DYNAMIC, partial=True)
    return _binding(f"fill-{number}", OF_A_FILLER, priority=-5, placement=placement)


def urgent() -> Binding:
    """What takes room of whoever has a lower priority."""
    policy = PreemptionPolicy.PREEMPT_LOWER_PRIORITY
    return _binding("urgent", OF_THE_URGENT, preemption_policy=policy)


def _binding(name: str, replicas: int, **fields: Any) -> Binding:
    return workload(name, {"cpu": 1000, "memory": GIB}, replicas, namespace="shop", **fields)


def filled(placed: Mapping[str, Placed]) -> int:
    """How many replicas fillers have."""
    return sum(sum(each.shares.values()) for key, each in placed.items() if is_filler(key))


def is_filler(key: str) -> bool:
    return "/fill-" in key


def may_shrink(key: str) -> bool:
    """Whether others may take replicas of it."""
    return is_filler(key) or "/rival-" in key


async def preempted(database: asyncpg.Connection) -> int:
    """How many replicas others lost, by what counts against the limits."""
    return int(await database.fetchval(PREEMPTED))


def wrong_victims(
    placed: Mapping[str, Placed], rows: Collection[Row], lost: int, before: int
) -> list[str]:
    """What is wrong once the urgent one runs; fillers had ``before`` replicas and ``lost`` some."""
    found = []
    have = sum(placed["shop/urgent"].shares.values())
    if have != OF_THE_URGENT:
        found.append(f"shop/urgent has {have} replicas, not {OF_THE_URGENT}")
    # Where a cluster is lost meanwhile they make room elsewhere once more.
    if not 0 < lost <= 2 * OF_THE_URGENT:
        found.append(f"{lost} replicas were preempted for {OF_THE_URGENT}")
    if (left := filled(placed)) < before - lost:
        found.append(f"fillers had {before} replicas, lost {lost}, and have {left}")
    waiting = {row.key for row in rows if row.waits}
    for number in range(FILLERS):
        key = f"shop/fill-{number}"
        if sum(placed[key].shares.values()) < OF_A_FILLER and key not in waiting:
            found.append(f"{key} has too little and does not wait")
    return found


def too_fast(moves: Sequence[Moved], replicas_a_minute: float) -> list[str]:
    """Minutes in which more was moved than may be: of the rate, or one binding a second."""
    ordered = sorted(moves)
    found = []
    for first in ordered:
        within = [each for each in ordered if first.at <= each.at < first.at + MINUTE]
        # What is lacking for the last one is lent.
        spent = sum(cost_of(each.replicas, replicas_a_minute) for each in within[:-1])
        if spent > MINUTE:
            found.append(f"{len(within)} shares moved in the minute from {first.at}: {within}")
    return found
