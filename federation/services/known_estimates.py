"""Estimates of shapes that were asked for before, as long as they are still true.

May be used from many threads. Must not outgrow its limits: then it forgets everything and begins
anew, which costs one pass.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

from federation.model.capacity import FleetCapacity
from federation.model.estimate import EstimateOptions, Estimates, Source
from federation.model.fleet_estimates import estimate_fleet
from federation.model.pools.fleet_cells import FleetCells
from federation.model.pools.level import PoolBounds, block_bounds, joined_bounds
from federation.model.summary import estimate_replicas
from federation.model.workload import ReplicaRequirements

# Numbers kept: about 20 bytes each.
MAX_NUMBERS = 4_000_000


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Bounds:
    """A shape's bounds for one state of the fleet, and those of its blocks."""

    cells: FleetCells
    blocks: tuple[PoolBounds, ...]
    bounds: PoolBounds


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Answers:
    """Whole answers for one state of the fleet."""

    capacity: FleetCapacity
    cells: FleetCells
    by_question: dict[Hashable, Estimates] = field(default_factory=dict)


class KnownEstimates:
    """Answers by shape and options; what pools prove is kept longer, block of clusters by block.

    Any heartbeat makes another fleet, and with it whole answers are forgotten; pools change only
    with reports, and then only in the blocks that the reports are about.
    """

    def __init__(self) -> None:
        self._bounds: dict[Hashable, _Bounds] = {}
        self._answers: _Answers | None = None

    def estimates(
        self,
        capacity: FleetCapacity,
        cells: FleetCells,
        requirements: ReplicaRequirements,
        options: EstimateOptions,
    ) -> Estimates:
        """The shape's estimates from reports; must not be written to."""
        answers = self._answers
        if answers is None or answers.capacity is not capacity or answers.cells is not cells:
            self._answers = answers = _Answers(capacity=capacity, cells=cells)
        shape = shape_key(requirements)
        question = shape, options
        found = answers.by_question.get(question)
        if found is None:
            if options.highest < Source.POOLS:
                found = estimate_replicas(capacity, requirements, options)
            else:
                bounds = self._bounds_of(shape, cells, requirements)
                found = estimate_fleet(capacity, bounds, requirements, options)
            if len(answers.by_question) * len(capacity) >= MAX_NUMBERS:
                answers.by_question.clear()
            answers.by_question[question] = found
        return found

    def _bounds_of(
        self, shape: Hashable, cells: FleetCells, requirements: ReplicaRequirements
    ) -> PoolBounds:
        known = self._bounds.get(shape)
        if known is not None and known.cells is cells:
            return known.bounds
        same = known.cells.blocks if known is not None else ()
        blocks = tuple(
            known.blocks[place]
            if known is not None and place < len(same) and same[place] is block
            else block_bounds(block, requirements)
            for place, block in enumerate(cells.blocks)
        )
        bounds = joined_bounds(cells, blocks)
        if len(self._bounds) * len(cells) >= MAX_NUMBERS:
            self._bounds.clear()
        self._bounds[shape] = _Bounds(cells=cells, blocks=blocks, bounds=bounds)
        return bounds


def shape_key(requirements: ReplicaRequirements) -> Hashable:
    """Equal for what is answered alike, whatever the order it was written in."""
    claim = requirements.node_claim
    if claim is None:
        return frozenset(requirements.request.items())
    return (
        frozenset(requirements.request.items()),
        frozenset(claim.node_selector.items()),
        claim.required_terms,
        claim.tolerations,
    )
