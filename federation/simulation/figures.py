"""Results of a what-if: recorded decisions, the same with a change, and figures of both.

Plain values. Must not decide anything, nor say how figures are shown.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple

from federation.scheduler.decision import Outcome
from federation.simulation.standings import REPLICAS, Figures

# Different decisions that are named.
MAX_DIFFERENT: Final = 50
MINUTE: Final = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class DifferentDecision:
    """A decision that comes out differently; both results as text."""

    id: str
    binding: str
    at: float
    recorded: str
    changed: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """The result of recorded decisions, and of the same with a change.

    ``skipped`` decisions were taken as recorded, because their inputs are not stored. ``retried``
    ones come about only by the change. ``clusters`` were in recorded fleets. ``sha256`` is over
    all decisions with the change.
    """

    decisions: int = 0
    different: int = 0
    skipped: int = 0
    retried: int = 0
    first_different: tuple[DifferentDecision, ...] = ()
    seconds: float = 0.0
    clusters: frozenset[str] = frozenset()
    recorded: Figures = field(default_factory=Figures)
    changed: Figures = field(default_factory=Figures)
    sha256: str = ""

    def then(self, later: WhatIf) -> WhatIf:
        """Return the result of both windows, one after the other."""
        both = bytes.fromhex(self.sha256) + bytes.fromhex(later.sha256)
        return WhatIf(
            decisions=self.decisions + later.decisions,
            different=self.different + later.different,
            skipped=self.skipped + later.skipped,
            retried=self.retried + later.retried,
            first_different=(*self.first_different, *later.first_different)[:MAX_DIFFERENT],
            seconds=self.seconds + later.seconds,
            clusters=self.clusters | later.clusters,
            recorded=self.recorded.then(later.recorded),
            changed=self.changed.then(later.changed),
            sha256=hashlib.sha256(both).hexdigest(),
        )


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
    """Return the percentage of all replicas, over time, in the fullest cluster."""
    held = [
        seconds for (_, resource), seconds in figures.held_seconds.items() if resource == REPLICAS
    ]
    return round(100 * max(held, default=0) / max(sum(held), 1), 2)


def _count(outcome: Outcome, figures: Figures) -> float:
    return figures.outcomes[outcome]


FIGURES: Final = (
    *(
        Figure(outcome.lower(), f"{outcome} decisions", partial(_count, outcome))
        for outcome in Outcome
    ),
    Figure("bindingsWaited", "bindings that waited", lambda figures: figures.bindings_waited),
    Figure(
        "waitedReplicaMinutes",
        "replica-minutes waited",
        lambda figures: round(sum(figures.waited.values()) / MINUTE),
    ),
    Figure(
        "longestWaitSeconds", "longest wait in seconds", lambda figures: round(figures.longest_wait)
    ),
    Figure("moved", "replicas moved", lambda figures: sum(figures.moved.values())),
    Figure("placed", "replicas placed at the end", lambda figures: sum(figures.placed.values())),
    Figure(
        "pending", "replicas without a place then", lambda figures: sum(figures.pending.values())
    ),
    Figure(
        "clustersPerBinding",
        "clusters of a binding then",
        lambda figures: round(figures.clusters_used / max(figures.bindings_placed, 1), 2),
    ),
    Figure("fullestPercent", "percent of all in one cluster", _fullest),
)


def differing(pairs: Iterable[Pair]) -> list[Pair]:
    """Return the figures that the change makes a difference to."""
    return [pair for pair in pairs if pair.recorded != pair.changed]


def by_cluster(result: WhatIf, resource: str) -> list[Pair]:
    """Return how much of a resource clusters held on average, the largest differences first."""
    seconds = result.seconds or 1.0
    was, now = result.recorded.held_seconds, result.changed.held_seconds
    names = {cluster for cluster, held in (*was, *now) if held == resource}
    pairs = [
        Pair(name, round(was[name, resource] / seconds, 2), round(now[name, resource] / seconds, 2))
        for name in names
    ]
    return sorted(pairs, key=lambda pair: (-abs(pair.changed - pair.recorded), pair.label))
