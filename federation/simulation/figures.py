"""Figures of a what-if: bindings over time in two worlds, as recorded and with a change.

Must not decide anything, nor say how figures are shown.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple

import numpy as np

from federation.model.arrays import IntArray
from federation.model.component_sets import shape_of
from federation.model.placement import Binding, BindingName
from federation.model.resources import PODS
from federation.model.workload import TargetCluster
from federation.scheduler.decision import Outcome

# A resource in addition to those that are requested.
REPLICAS: Final = "replicas"


class Axes:
    """The rows of resources and the columns of clusters, in the order of their first use."""

    def __init__(self) -> None:
        self.rows: dict[str, int] = {REPLICAS: 0}
        self.columns: dict[str, int] = {}

    def row(self, resource: str) -> int:
        return self.rows.setdefault(resource, len(self.rows))

    def column(self, cluster: str) -> int:
        return self.columns.setdefault(cluster, len(self.columns))


class UnitAmounts(NamedTuple):
    """The request of one unit (a replica, or a whole set of components), and its replicas.

    ``claim`` tells units apart that select other nodes.
    """

    request: tuple[tuple[str, int], ...]
    replicas: int = 1
    claim: str = ""

    @classmethod
    def of(cls, binding: Binding) -> UnitAmounts:
        amounts = {name: amount for name, amount in shape_of(binding).request.items() if amount > 0}
        replicas = sum(component.replicas for component in binding.components) or 1
        amounts |= {PODS: replicas, REPLICAS: replicas}
        claim = binding.requirements.node_claim
        return cls(tuple(sorted(amounts.items())), replicas, "" if claim is None else str(claim))


@dataclass(slots=True, kw_only=True)
class WorldBinding:
    """The clusters of a binding, its unit, and how many of its replicas wait."""

    unit: UnitAmounts
    clusters: tuple[TargetCluster, ...] = ()
    held_since: float
    pending: int = 0
    pending_since: float = 0.0
    waits_since: float | None = None


@dataclass(slots=True, kw_only=True)
class Figures:
    """Figures of decisions. Waits are replicas times seconds, and the longest of a binding."""

    outcomes: Counter[str] = field(default_factory=Counter)
    # By namespace.
    waited: Counter[str] = field(default_factory=Counter)
    moved: Counter[str] = field(default_factory=Counter)
    placed: Counter[str] = field(default_factory=Counter)
    pending: Counter[str] = field(default_factory=Counter)
    bindings_waited: int = 0
    longest_wait: float = 0.0
    bindings_placed: int = 0
    clusters_used: int = 0
    # By cluster; at the end.
    replicas: Counter[str] = field(default_factory=Counter)
    # By cluster and resource.
    held_seconds: Counter[tuple[str, str]] = field(default_factory=Counter)

    def then(self, later: Figures) -> Figures:
        """Return the figures of both windows; replicas at the end are those of the later one."""
        return Figures(
            outcomes=self.outcomes + later.outcomes,
            waited=self.waited + later.waited,
            moved=self.moved + later.moved,
            placed=later.placed,
            pending=later.pending,
            bindings_waited=self.bindings_waited + later.bindings_waited,
            longest_wait=max(self.longest_wait, later.longest_wait),
            bindings_placed=later.bindings_placed,
            clusters_used=later.clusters_used,
            replicas=later.replicas,
            held_seconds=self.held_seconds + later.held_seconds,
        )


class World:
    """Bindings where decisions put them. Times only go forward."""

    def __init__(self, axes: Axes) -> None:
        self._axes = axes
        self._held_rc: IntArray = np.zeros((4, 64), dtype=np.int64)
        self.bindings: dict[BindingName, WorldBinding] = {}
        self.figures = Figures()

    def add(self, key: BindingName, binding: Binding, unit: UnitAmounts, now: float) -> None:
        """Add a binding with its unit, as it was before the first decision about it."""
        self.bindings[key] = WorldBinding(unit=unit, held_since=now)
        if binding.clusters:
            self._move(self.bindings[key], binding.clusters, now)

    def settle(
        self,
        key: BindingName,
        clusters: tuple[TargetCluster, ...],
        pending: int,
        now: float,
        unit: UnitAmounts,
    ) -> None:
        """Move a binding to these clusters; the ``pending`` replicas wait."""
        standing = self.bindings[key]
        self._wait(key, standing, pending, now)
        if clusters == standing.clusters and unit == standing.unit:
            return
        old = {target.name: target.replicas for target in standing.clusters}
        after = {target.name: target.replicas for target in clusters}
        steps = [after.get(name, 0) - old.get(name, 0) for name in old.keys() | after.keys()]
        came = sum(step for step in steps if step > 0)
        self.figures.moved[key[0]] += min(came, came - sum(steps))
        self._move(standing, (), now)
        standing.unit = unit
        self._move(standing, clusters, now)

    def remove(self, key: BindingName, now: float) -> None:
        """Delete a binding."""
        standing = self.bindings.pop(key, None)
        if standing is not None:
            self._wait(key, standing, 0, now)
            self._move(standing, (), now)

    def held(self, resource: str, columns_c: IntArray) -> IntArray:
        """Return how much of a resource is held in these columns."""
        held: IntArray = self.held_of([self._axes.row(resource)], columns_c)[0]
        return held

    def held_of(self, rows: Sequence[int] | IntArray, columns_c: IntArray) -> IntArray:
        """Return how much is held of some rows of the axes: rows x columns."""
        self._grow()
        held_rc: IntArray = self._held_rc.take(rows, axis=0).take(columns_c, axis=1)
        return held_rc

    def finish(self, now: float) -> Figures:
        """Return the figures of everything up to a time."""
        figures = self.figures
        for key, standing in self.bindings.items():
            self._wait(key, standing, standing.pending, now)
            self._count(standing, now)
            replicas = sum(target.replicas for target in standing.clusters)
            figures.placed[key[0]] += replicas
            figures.pending[key[0]] += standing.pending
            figures.bindings_placed += bool(replicas)
            figures.clusters_used += sum(target.replicas > 0 for target in standing.clusters)
            for target in standing.clusters:
                figures.replicas[target.name] += target.replicas
        return figures

    def _wait(self, key: BindingName, standing: WorldBinding, pending: int, now: float) -> None:
        """Count the wait up to now; ``pending`` replicas wait from now on."""
        figures = self.figures
        if standing.waits_since is not None:
            waited = standing.pending * (now - standing.pending_since)
            figures.waited[key[0]] += round(waited)
            figures.longest_wait = max(figures.longest_wait, now - standing.waits_since)
        elif pending:
            standing.waits_since = now
            figures.bindings_waited += 1
        if not pending:
            standing.waits_since = None
        standing.pending, standing.pending_since = pending, now

    def _count(self, standing: WorldBinding, now: float) -> None:
        """Count what the binding held up to now."""
        seconds, standing.held_since = now - standing.held_since, now
        if seconds > 0:
            for target in standing.clusters:
                units = target.replicas // standing.unit.replicas
                for resource, amount in standing.unit.request:
                    held = round(amount * units * seconds)
                    self.figures.held_seconds[target.name, resource] += held

    def _move(
        self, standing: WorldBinding, clusters: tuple[TargetCluster, ...], now: float
    ) -> None:
        """Release what the binding holds, and hold its shares in other clusters."""
        self._count(standing, now)
        self._add(standing.unit, standing.clusters, -1)
        self._add(standing.unit, clusters, 1)
        standing.clusters = clusters

    def _add(self, unit: UnitAmounts, clusters: Sequence[TargetCluster], sign: int) -> None:
        if not clusters:
            return
        rows = [self._axes.row(resource) for resource, _ in unit.request]
        columns = [self._axes.column(target.name) for target in clusters]
        self._grow()
        held_rc = self._held_rc
        for column, target in zip(columns, clusters, strict=True):
            units = sign * (target.replicas // unit.replicas)
            for row, (_, amount) in zip(rows, unit.request, strict=True):
                held_rc[row, column] += amount * units

    def _grow(self) -> None:
        rows, columns = self._held_rc.shape
        if len(self._axes.rows) > rows or len(self._axes.columns) > columns:
            larger = np.zeros(
                (2 * len(self._axes.rows), 2 * len(self._axes.columns)), dtype=np.int64
            )
            larger[:rows, :columns] = self._held_rc
            self._held_rc = larger


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
