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

from federation.capacity.deductions import Deductions
from federation.capacity.fleet_cells import FleetCells
from federation.capacity.fleet_estimates import improved_by_pools
from federation.capacity.fleet_reports import FleetCapacity
from federation.capacity.pool_estimates import PoolBounds, block_bounds, joined_bounds
from federation.capacity.promised_bounds import PromisedColumns, bounds_beside
from federation.model.estimate import EstimateOptions, Estimates, Source
from federation.model.reservations import Outstanding
from federation.model.workload import ReplicaRequirements

# What is promised and in no report yet, by position.
PromisedByPosition: TypeAlias = Mapping[int, Sequence[Outstanding]]
NOTHING_PROMISED: PromisedByPosition = MappingProxyType({})

# Numbers kept: about 45 bytes each, those of blocks among them.
MAX_NUMBERS = 2_000_000


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Bounds:
    """A shape's bounds for one state of the fleet, and those of its blocks by their tokens.

    Keeps no cells alive: of a shape that nobody asks for again they would be those of long ago.
    """

    cells: object
    blocks: Mapping[object, PoolBounds]
    bounds: PoolBounds


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Answers:
    """Whole answers for one state of the fleet."""

    capacity: FleetCapacity
    cells: FleetCells
    outstanding: PromisedByPosition
    promised: PromisedColumns
    by_question: dict[Hashable, Estimates] = field(default_factory=dict)


class KnownEstimates:
    """Answers by shape and options; what pools prove is kept longer, block of clusters by block.

    Any heartbeat makes another fleet, and with it whole answers are forgotten; pools change only
    with reports, and then only in the blocks that the reports are about.
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
        capacity, cells = answers.capacity, answers.cells
        if options.highest < Source.POOLS:
            deductions = self.deductions(capacity, answers.outstanding)
            return deductions.estimates_of_each(shapes, options)
        return [
            improved_by_pools(
                partial(self._blind, answers, each, options),
                bounds_beside(cells, self._bounds_of(cells, each), each, answers.promised),
                options,
                capacity.open_above_c(each.node_claim),
            )
            for each in shapes
        ]

    def _blind(
        self, answers: _Answers, requirements: ReplicaRequirements, options: EstimateOptions
    ) -> Estimates:
        """What the levels say that cannot see nodes."""
        deductions = self.deductions(answers.capacity, answers.outstanding)
        return deductions.estimates(requirements, options)

    def _bounds_of(self, cells: FleetCells, requirements: ReplicaRequirements) -> PoolBounds:
        shape = shape_key(requirements)
        known = self._bounds.get(shape)
        if known is not None and known.cells is cells.token:
            return known.bounds
        same = known.blocks if known is not None else {}
        newer = [block for block in cells.blocks if block.token not in same]
        found = zip(newer, block_bounds(newer, requirements), strict=True)
        of_newer = {block.token: bounds for block, bounds in found}
        blocks = {
            block.token: same.get(block.token) or of_newer[block.token] for block in cells.blocks
        }
        bounds = joined_bounds(cells, list(blocks.values()))
        if len(self._bounds) * len(cells) >= MAX_NUMBERS:
            self._bounds.clear()
        self._bounds[shape] = _Bounds(cells=cells.token, blocks=blocks, bounds=bounds)
        return bounds


def shape_key(requirements: ReplicaRequirements) -> Hashable:
    """Equal for what is answered alike, whatever the order it was written in."""
    claim = requirements.node_claim
    return frozenset(requirements.request.items()), claim and claim.key
