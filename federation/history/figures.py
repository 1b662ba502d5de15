"""Figures of a what-if: what both worlds come to, in numbers that people compare.

Must not say how they are shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, NamedTuple

from federation.history.what_ifs import WhatIf
from federation.history.worlds import REPLICAS, Figures
from federation.scheduler.decision import Outcome

MINUTE: Final = 60


class Pair(NamedTuple):
    """One figure in both worlds."""

    label: str
    recorded: float
    changed: float


class Figure(NamedTuple):
    """One figure of both worlds: its name for programs, and for people."""

    name: str
    words: str
    of: Callable[[Figures], float]


def _fullest(figures: Figures) -> float:
    """The part of all replicas, over the time, that the fullest cluster has."""
    held = [each for (_, resource), each in figures.held_seconds.items() if resource == REPLICAS]
    return round(100 * max(held, default=0) / max(sum(held), 1), 2)


def _count(outcome: Outcome, figures: Figures) -> float:
    return figures.outcomes[outcome]


FIGURES: Final = (
    *(
        Figure(outcome.lower(), f"{outcome} decisions", partial(_count, outcome))
        for outcome in Outcome
    ),
    Figure("bindingsWaited", "bindings that waited", lambda each: each.bindings_waited),
    Figure(
        "waitedReplicaMinutes",
        "replica-minutes waited",
        lambda each: round(sum(each.waited.values()) / MINUTE),
    ),
    Figure("longestWaitSeconds", "longest wait in seconds", lambda each: round(each.longest_wait)),
    Figure("moved", "replicas moved", lambda each: sum(each.moved.values())),
    Figure("placed", "replicas placed at the end", lambda each: sum(each.placed.values())),
    Figure("pending", "replicas without a place then", lambda each: sum(each.pending.values())),
    Figure(
        "clustersPerBinding",
        "clusters of a binding then",
        lambda each: round(each.clusters_used / max(each.bindings_placed, 1), 2),
    ),
    Figure("fullestPercent", "percent of all in one cluster", _fullest),
)


def differing(pairs: Iterable[Pair]) -> list[Pair]:
    """Those that the change makes any difference to, as far as figures are shown."""
    return [each for each in pairs if each.recorded != each.changed]


def by_cluster(came: WhatIf, resource: str) -> list[Pair]:
    """How much of a resource each held on average; those that differ most first."""
    seconds = came.seconds or 1.0
    was, now = came.recorded.held_seconds, came.changed.held_seconds
    names = {cluster for cluster, held in (*was, *now) if held == resource}
    pairs = [
        Pair(name, round(was[name, resource] / seconds, 2), round(now[name, resource] / seconds, 2))
        for name in names
    ]
    return sorted(pairs, key=lambda each: (-abs(each.changed - each.recorded), each.label))
