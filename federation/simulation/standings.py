"""A world of a what-if: bindings, their clusters and waits, and figures over time.

Must not decide anything, nor know why the worlds differ.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np

from federation.model.arrays import IntArray
from federation.model.component_sets import shape_of
from federation.model.placement import Binding, BindingName
from federation.model.resources import PODS
from federation.model.workload import TargetCluster

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
