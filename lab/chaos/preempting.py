"""Bindings that take each other's room, by urgency, and what must hold of that.

Must not ask a control plane what it has done: the database says that.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, Final, NamedTuple, cast

import asyncpg

from federation.failover.rate import MINUTE, cost_of
from federation.model.placement import Binding, Placement, PreemptionPolicy
from federation.store.decisions import StoredDecision
from lab.chaos.audit import TRACES
from lab.chaos.glances import Placed, Row
from lab.packed_clusters import GIB
from lab.workloads import DYNAMIC, workload

FILLERS, OF_A_FILLER, OF_THE_URGENT = 4, 80, 100


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


# Together they want more than what fillers have.
RIVALS, MOST_REPLICAS, AT_LAST = 24, 16, 2
# All come before fillers, and none before what must stay.
PRIORITIES: Final = range(-4, 0)
OF_ALL, OF_A_NAMESPACE = 400, 280
_LOSS: Final = re.compile(r"(\S+): (\d+) in (\S+), priority (-?\d+)")
# Decisions are stored with their reasons as text.
_PREEMPTED: Final = re.compile(r"preempted by (\S+): ")
_DECIDED = "SELECT id::text FROM decision WHERE outcome <> 'NO_FIT'"
_SPENT = "SELECT extract(epoch FROM at)::float8 AS at, namespace, replicas::int FROM preemption"


class Loss(NamedTuple):
    """Replicas of a victim that a decision about another binding took, in a cluster."""

    decision: str
    by: str
    victim: str
    cluster: str
    replicas: int
    priority: int


class Spent(NamedTuple):
    """Replicas that were preempted in a namespace, and when (Unix seconds)."""

    at: float
    namespace: str
    replicas: int


def rivals(choices: random.Random) -> list[Binding]:
    """Some of them take room of others, and some may not be preempted."""
    return [
        replace(
            filler(number),
            name=f"rival-{number}",
            uid=f"uid-of-rival-{number}",
            # Not fewer than any of them needs at least.
            replicas=choices.randint(2, MOST_REPLICAS),
            priority=choices.choice(PRIORITIES),
            preemption_policy=choices.choices(
                (PreemptionPolicy.PREEMPT_LOWER_PRIORITY, PreemptionPolicy.NEVER), (3, 1)
            )[0],
            preemptible=choices.random() < 0.9,
            min_available=choices.choice((None, 1, 2)),
        )
        for number in range(RIVALS)
    ]


async def read_losses(
    database: asyncpg.Connection,
) -> tuple[Sequence[Loss], Mapping[str, Counter[str]], Sequence[Spent]]:
    """What decisions took of others, what others say was taken of them (who by, how often), by
    key; and what counts against the limits.
    """
    async with database.transaction(isolation="repeatable_read", readonly=True):
        ids = [row["id"] for row in await database.fetch(_DECIDED)]
        rows = await database.fetch(TRACES, ids)
        spent = [Spent(**row) for row in await database.fetch(_SPENT)]
    losses: list[Loss] = []
    told: dict[str, Counter[str]] = {}
    for row in rows:
        record = StoredDecision(cast(Any, SimpleNamespace(**row))).unpacked()
        key = f"{record.namespace}/{record.name}"
        losses += [_loss(record.id, key, str(loss)) for loss in record.decision.trace.preempted]
        if by := _preemptor(str(record.decision.reason)):
            told.setdefault(key, Counter())[by] += 1
    return losses, told, spent


async def judged(
    database: asyncpg.Connection, bindings: Mapping[str, Binding]
) -> tuple[list[str], Sequence[Loss]]:
    """What is wrong with all that bindings, by key, took of each other; and what they took."""
    losses, told, spent = await read_losses(database)
    wrong = wrong_losses(losses, told, bindings) + beyond_limits(spent)
    if (taken := sum(each.replicas for each in losses)) != sum(each.replicas for each in spent):
        wrong.append(f"{taken} replicas were preempted, and counted were {spent}")
    return wrong, losses


def _preemptor(reason: str) -> str:
    """The key of the binding that took replicas by a decision with this reason, or none."""
    match = _PREEMPTED.match(reason)
    return match[1] if match else ""


def _loss(decision: str, by: str, text: str) -> Loss:
    found = _LOSS.fullmatch(text)
    assert found is not None, text
    victim, replicas, cluster, priority = found.groups()
    return Loss(decision, by, victim, cluster, int(replicas), int(priority))


def wrong_losses(
    losses: Sequence[Loss],
    told: Mapping[str, Counter[str]],
    bindings: Mapping[str, Binding],
) -> list[str]:
    """Who lost something to an equal or lower priority, or must not lose any, or was told of it
    more or less often than it was decided.
    """
    found = []
    taken: dict[str, set[tuple[str, str]]] = {}
    for each in losses:
        by, victim = bindings[each.by], bindings[each.victim]
        taken.setdefault(each.victim, set()).add((each.by, each.decision))
        if victim.priority != each.priority or each.priority >= by.priority:
            found.append(f"{each.victim} of {victim.priority} lost to {by.priority}: {each}")
        if not victim.preemptible:
            found.append(f"{each.victim} must not be preempted: {each}")
        if by.preemption_policy is PreemptionPolicy.NEVER:
            found.append(f"{each.by} must not preempt: {each}")
    for key in taken.keys() | told.keys():
        decided = Counter(by for by, _ in taken.get(key, ()))
        if decided != told.get(key, Counter()):
            found.append(f"{key} was preempted by {decided}, and was told {told.get(key)}")
    return found


def beyond_limits(spent: Sequence[Spent]) -> list[str]:
    """Minutes in which more was preempted than may be: in all, or of a namespace."""
    found, ordered = [], sorted(spent)
    for first in ordered:
        lost = Counter[str]()
        for each in ordered:
            if first.at <= each.at < first.at + MINUTE:
                lost[each.namespace] += each.replicas
        if lost.total() > OF_ALL or max(lost.values()) > OF_A_NAMESPACE:
            found.append(f"in the minute from {first.at} were preempted {dict(lost)}")
    return found
