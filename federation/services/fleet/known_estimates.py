"""A cache of estimates by replica shape, which stay valid until their clusters change.

Threads may share it. Must not hold more than ``MAX_NUMBERS``: then it drops all entries, and the
next estimate computes every cluster.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from threading import Lock
from types import MappingProxyType
from typing import TypeAlias

import numpy as np

from federation.capacity.deductions import Deductions
from federation.capacity.fleet_cells import FleetCells
from federation.capacity.fleet_reports import FleetCapacity
from federation.capacity.pool_estimates import (
    PoolBounds,
    improved_by_pools,
    open_above_c,
    pool_bounds,
    put_some,
)
from federation.capacity.promised_bounds import PromisedColumns, bounds_beside
from federation.model.arrays import IntArray
from federation.model.estimate import EstimateOptions, Estimates, Source
from federation.model.positions import GONE
from federation.model.reservations import Outstanding
from federation.model.workload import ReplicaRequirements

# Outstanding replicas (promised, and not in a report yet) by a cluster's position.
PromisedByPosition: TypeAlias = Mapping[int, Sequence[Outstanding]]
NOTHING_PROMISED: PromisedByPosition = MappingProxyType({})

# Bounds of all shapes and clusters together, of about 45 bytes each; as many for whole answers.
MAX_NUMBERS = 2_000_000


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Bounds:
    """Bounds of one shape, valid where cells have ``version_c`` and promises have ``number_c``.

    It holds numbers and no cells. A shape that is not asked for again would keep old cells alive.
    """

    version_c: IntArray
    bounds: PoolBounds
    number_c: IntArray
    lower_after_promises_c: IntArray

    def at_c(self, version_c: IntArray) -> IntArray:
        """Return the positions here of clusters of a newer fleet; GONE where their cells differ."""
        if len(version_c) == len(self.version_c):
            is_same_c = version_c == self.version_c
            if 2 * np.count_nonzero(is_same_c) >= len(version_c):
                return np.where(is_same_c, np.arange(len(version_c)), GONE)
        order_c = np.argsort(self.version_c)
        sorted_c = self.version_c[order_c]
        place_c = np.minimum(np.searchsorted(sorted_c, version_c), len(sorted_c) - 1)
        return np.where(sorted_c[place_c] == version_c, order_c[place_c], GONE)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Answers:
    """Estimates of whole shapes for one state of the fleet."""

    capacity: FleetCapacity
    cells: FleetCells
    outstanding: PromisedByPosition
    promised: PromisedColumns
    by_question: dict[Hashable, Estimates] = field(default_factory=dict)


class KnownEstimates:
    """A cache on two levels: whole estimates of the fleet, and bounds of each shape by cluster.

    Any heartbeat makes another fleet, which drops the whole estimates. Bounds from pools stay valid
    in clusters without a new report or another promise.
    """

    def __init__(self) -> None:
        self._bounds: dict[Hashable, _Bounds] = {}
        self._deductions: Deductions | None = None
        self._answers: _Answers | None = None
        # The columns that all estimates of one fleet need are computed once, under this lock.
        self._lock = Lock()

    def estimates(
        self,
        capacity: FleetCapacity,
        cells: FleetCells,
        requirements: ReplicaRequirements,
        options: EstimateOptions,
        outstanding: PromisedByPosition = NOTHING_PROMISED,
    ) -> Estimates:
        """Return the estimates of one shape; the caller must not write to them.

        ``cells`` and ``capacity`` are those of reports, from which ``outstanding`` is deducted.
        """
        return self.estimates_of_each(capacity, cells, [requirements], options, outstanding)[0]

    def estimates_of_each(
        self,
        capacity: FleetCapacity,
        cells: FleetCells,
        shapes: Sequence[ReplicaRequirements],
        options: EstimateOptions,
        outstanding: PromisedByPosition = NOTHING_PROMISED,
    ) -> list[Estimates]:
        """Return the estimates of many shapes, in their order."""
        answers = self._answers_of(capacity, cells, outstanding)
        questions = [(shape_key(shape), options) for shape in shapes]
        by_question: dict[tuple[Hashable, EstimateOptions], Estimates] = {}
        new: dict[tuple[Hashable, EstimateOptions], ReplicaRequirements] = {}
        for question, shape in zip(questions, shapes, strict=True):
            cached = answers.by_question.get(question)
            if cached is None:
                new[question] = shape
            else:
                by_question[question] = cached
        estimated = self._estimated(answers, list(new.values()), options)
        by_question.update(zip(new, estimated, strict=True))
        for question in new:
            if len(answers.by_question) * len(capacity) >= MAX_NUMBERS:
                answers.by_question.clear()
            answers.by_question[question] = by_question[question]
        return [by_question[question] for question in questions]

    def share_changed(self, cells: FleetCells, requirements: ReplicaRequirements) -> float:
        """Return the part of the clusters whose cells changed since the shape's last estimate."""
        cached = self._bounds.get(shape_key(requirements))
        if cached is None or not len(cached.version_c):
            return 1.0
        return float(np.mean(cached.at_c(cells.version_c) == GONE)) if len(cells) else 0.0

    def deductions(self, capacity: FleetCapacity, outstanding: PromisedByPosition) -> Deductions:
        """Return the deductions of outstanding replicas, for estimates without pools.

        The capacity may be that of an older snapshot.
        """
        with self._lock:
            deductions = self._deductions
            if deductions is None:
                deductions = Deductions.of(capacity, outstanding)
            elif deductions.capacity is not capacity or deductions.outstanding is not outstanding:
                deductions = deductions.after(capacity, outstanding)
            self._deductions = deductions
            return deductions

    def _answers_of(
        self, capacity: FleetCapacity, cells: FleetCells, outstanding: PromisedByPosition
    ) -> _Answers:
        with self._lock:
            answers = self._answers
            if (
                answers is None
                or answers.capacity is not capacity
                or answers.cells is not cells
                or answers.outstanding is not outstanding
            ):
                promised = answers.promised if answers is not None else PromisedColumns()
                # A heartbeat changes the capacity and no promise.
                if answers is None or answers.outstanding is not outstanding:
                    promised = promised.after(outstanding)
                answers = self._answers = _Answers(
                    capacity=capacity, cells=cells, outstanding=outstanding, promised=promised
                )
            return answers

    def _estimated(
        self, answers: _Answers, shapes: Sequence[ReplicaRequirements], options: EstimateOptions
    ) -> list[Estimates]:
        capacity = answers.capacity
        if options.highest < Source.POOLS:
            deductions = self.deductions(capacity, answers.outstanding)
            return deductions.estimates_of_each(shapes, options)
        return [
            improved_by_pools(
                partial(self._without_pools, answers, shape, options),
                self._bounds_after_promises(answers, shape),
                options,
                open_above_c(capacity, answers.cells, shape.node_claim),
            )
            for shape in shapes
        ]

    def _without_pools(
        self, answers: _Answers, requirements: ReplicaRequirements, options: EstimateOptions
    ) -> Estimates:
        """Return estimates from totals and resource models only."""
        deductions = self.deductions(answers.capacity, answers.outstanding)
        return deductions.estimates(requirements, options)

    def _bounds_after_promises(
        self, answers: _Answers, requirements: ReplicaRequirements
    ) -> PoolBounds:
        """Return a shape's bounds; compute those of clusters that changed since the last call."""
        cells, promised = answers.cells, answers.promised
        shape = shape_key(requirements)
        cached, number_c = self._bounds.get(shape), promised.number_c(len(cells))
        if cached is None or not len(cached.version_c):
            bounds, cached_lower_c = pool_bounds(cells, requirements), None
        else:
            at_c = cached.at_c(cells.version_c)
            bounds = _newer_bounds(cells, requirements, cached.bounds, at_c)
            is_same_c = (at_c != GONE) & (cached.number_c[at_c] == number_c)
            cached_lower_c = np.where(is_same_c, cached.lower_after_promises_c[at_c], -1)
        after_promises = bounds_beside(cells, bounds, requirements, promised, cached_lower_c)
        if len(self._bounds) * len(cells) >= MAX_NUMBERS:
            self._bounds.clear()
        self._bounds[shape] = _Bounds(
            version_c=cells.version_c,
            bounds=bounds,
            number_c=number_c,
            lower_after_promises_c=after_promises.lower_c,
        )
        return after_promises


def _newer_bounds(
    cells: FleetCells, requirements: ReplicaRequirements, cached: PoolBounds, at_c: IntArray
) -> PoolBounds:
    """Return bounds for newer cells; ``at_c`` are the positions of their clusters in ``cached``."""
    stale_c = np.flatnonzero(at_c == GONE)
    if 2 * len(stale_c) > len(cells):
        return pool_bounds(cells, requirements)
    reasons = {}
    if cached.reasons:
        positions = enumerate(at_c.tolist())
        reasons = {c: cached.reasons[at] for c, at in positions if at in cached.reasons}
    bounds = PoolBounds(
        lower_c=cached.lower_c[at_c],
        upper_c=cached.upper_c[at_c],
        answered_c=cached.answered_c[at_c],
        reasons=reasons,
    )
    put_some(bounds, cells, stale_c, requirements)
    return bounds


def shape_key(requirements: ReplicaRequirements) -> Hashable:
    """Return a key that is equal for shapes with equal estimates, in any order of resources."""
    claim = requirements.node_claim
    return frozenset(requirements.request.items()), claim and claim.key
