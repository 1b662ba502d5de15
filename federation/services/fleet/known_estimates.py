"""Estimates of shapes that were asked for before, as long as they are still true.

May be used from many threads. Must not outgrow its limits: then it forgets everything and begins
anew, which costs one pass.
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
from federation.capacity.fleet_estimates import improved_by_pools, open_above_c
from federation.capacity.fleet_reports import FleetCapacity
from federation.capacity.pool_estimates import PoolBounds, pool_bounds, put_some
from federation.capacity.promised_bounds import PromisedColumns, bounds_beside
from federation.model.arrays import IntArray
from federation.model.estimate import EstimateOptions, Estimates, Source
from federation.model.positions import GONE
from federation.model.reservations import Outstanding
from federation.model.workload import ReplicaRequirements

# What is promised and in no report yet, by position.
PromisedByPosition: TypeAlias = Mapping[int, Sequence[Outstanding]]
NOTHING_PROMISED: PromisedByPosition = MappingProxyType({})

# Numbers kept: about 45 bytes each.
MAX_NUMBERS = 2_000_000


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Bounds:
    """A shape's bounds for one state of the fleet: of cells of these versions, and the lower ones
    beside promises of these numbers.

    Keeps no cells alive: of a shape that nobody asks for again they would be those of long ago.
    """

    version_c: IntArray
    bounds: PoolBounds
    number_c: IntArray
    lower_beside_c: IntArray

    def at_c(self, version_c: IntArray) -> IntArray:
        """Where the clusters of a newer state stand in this one, GONE where their cells do not."""
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
    """Whole answers for one state of the fleet."""

    capacity: FleetCapacity
    cells: FleetCells
    outstanding: PromisedByPosition
    promised: PromisedColumns
    by_question: dict[Hashable, Estimates] = field(default_factory=dict)


class KnownEstimates:
    """Answers by shape and options; what pools prove is kept longer, cluster by cluster.

    Any heartbeat makes another fleet, and with it whole answers are forgotten; what pools prove
    changes only in clusters that reported, or where something else is promised.
    """

    def __init__(self) -> None:
        self._bounds: dict[Hashable, _Bounds] = {}
        self._deductions: Deductions | None = None
        self._answers: _Answers | None = None
        # What all need of a state is worked out once, whoever comes first.
        self._working_out = Lock()

    def estimates(
        self,
        capacity: FleetCapacity,
        cells: FleetCells,
        requirements: ReplicaRequirements,
        options: EstimateOptions,
        outstanding: PromisedByPosition = NOTHING_PROMISED,
    ) -> Estimates:
        """The shape's estimates from reports; must not be written to.

        ``cells`` and ``capacity`` are as reports have them, whatever is ``outstanding`` there.
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
        """The same for many shapes at once."""
        answers = self._answers_of(capacity, cells, outstanding)
        questions = [(shape_key(each), options) for each in shapes]
        found: dict[tuple[Hashable, EstimateOptions], Estimates] = {}
        new: dict[tuple[Hashable, EstimateOptions], ReplicaRequirements] = {}
        for question, shape in zip(questions, shapes, strict=True):
            known = answers.by_question.get(question)
            if known is None:
                new[question] = shape
            else:
                found[question] = known
        estimated = self._estimated(answers, list(new.values()), options)
        found.update(zip(new, estimated, strict=True))
        for question in new:
            if len(answers.by_question) * len(capacity) >= MAX_NUMBERS:
                answers.by_question.clear()
            answers.by_question[question] = found[question]
        return [found[each] for each in questions]

    def share_changed(self, cells: FleetCells, requirements: ReplicaRequirements) -> float:
        """Of how many of the clusters the cells changed since somebody asked for the shape."""
        known = self._bounds.get(shape_key(requirements))
        if known is None or not len(known.version_c):
            return 1.0
        return float(np.mean(known.at_c(cells.version_c) == GONE)) if len(cells) else 0.0

    def deductions(self, capacity: FleetCapacity, outstanding: PromisedByPosition) -> Deductions:
        """What is outstanding, to be deducted from that capacity; where pools answer, nobody asks.

        Also of a state that is not the newest.
        """
        with self._working_out:
            known = self._deductions
            if known is None:
                known = Deductions.of(capacity, outstanding)
            elif known.capacity is not capacity or known.outstanding is not outstanding:
                known = known.after(capacity, outstanding)
            self._deductions = known
            return known

    def _answers_of(
        self, capacity: FleetCapacity, cells: FleetCells, outstanding: PromisedByPosition
    ) -> _Answers:
        with self._working_out:
            known = self._answers
            if (
                known is None
                or known.capacity is not capacity
                or known.cells is not cells
                or known.outstanding is not outstanding
            ):
                promised = known.promised if known is not None else PromisedColumns()
                # A heartbeat changes nothing that is promised.
                if known is None or known.outstanding is not outstanding:
                    promised = promised.after(outstanding)
                known = self._answers = _Answers(
                    capacity=capacity, cells=cells, outstanding=outstanding, promised=promised
                )
            return known

    def _estimated(
        self, answers: _Answers, shapes: Sequence[ReplicaRequirements], options: EstimateOptions
    ) -> list[Estimates]:
        capacity = answers.capacity
        if options.highest < Source.POOLS:
            deductions = self.deductions(capacity, answers.outstanding)
            return deductions.estimates_of_each(shapes, options)
        return [
            improved_by_pools(
                partial(self._blind, answers, each, options),
                self._bounds_beside(answers, each),
                options,
                open_above_c(capacity, answers.cells, each.node_claim),
            )
            for each in shapes
        ]

    def _blind(
        self, answers: _Answers, requirements: ReplicaRequirements, options: EstimateOptions
    ) -> Estimates:
        """What the levels say that cannot see nodes."""
        deductions = self.deductions(answers.capacity, answers.outstanding)
        return deductions.estimates(requirements, options)

    def _bounds_beside(self, answers: _Answers, requirements: ReplicaRequirements) -> PoolBounds:
        """Only of clusters that changed since somebody asked for the shape is it worked out."""
        cells, promised = answers.cells, answers.promised
        shape = shape_key(requirements)
        known, number_c = self._bounds.get(shape), promised.number_c(len(cells))
        if known is None or not len(known.version_c):
            bounds, known_c = pool_bounds(cells, requirements), None
        else:
            at_c = known.at_c(cells.version_c)
            bounds = _newer_bounds(cells, requirements, known.bounds, at_c)
            is_same_c = (at_c != GONE) & (known.number_c[at_c] == number_c)
            known_c = np.where(is_same_c, known.lower_beside_c[at_c], -1)
        beside = bounds_beside(cells, bounds, requirements, promised, known_c)
        if len(self._bounds) * len(cells) >= MAX_NUMBERS:
            self._bounds.clear()
        self._bounds[shape] = _Bounds(
            version_c=cells.version_c,
            bounds=bounds,
            number_c=number_c,
            lower_beside_c=beside.lower_c,
        )
        return beside


def _newer_bounds(
    cells: FleetCells, requirements: ReplicaRequirements, known: PoolBounds, at_c: IntArray
) -> PoolBounds:
    """The bounds of a newer state, whose clusters stand there in the known ones."""
    stale_c = np.flatnonzero(at_c == GONE)
    if 2 * len(stale_c) > len(cells):
        return pool_bounds(cells, requirements)
    reasons = {}
    if known.reasons:
        places = enumerate(at_c.tolist())
        reasons = {c: known.reasons[at] for c, at in places if at in known.reasons}
    bounds = PoolBounds(
        lower_c=known.lower_c[at_c],
        upper_c=known.upper_c[at_c],
        answered_c=known.answered_c[at_c],
        reasons=reasons,
    )
    put_some(bounds, cells, stale_c, requirements)
    return bounds


def shape_key(requirements: ReplicaRequirements) -> Hashable:
    """Equal for what is answered alike, whatever the order it was written in."""
    claim = requirements.node_claim
    return frozenset(requirements.request.items()), claim and claim.key
