"""What is promised and not yet in any report, deducted where nodes cannot be seen.

Pure. The levels ``summary`` and ``models`` only: into cells it is packed (``room``). Must not
decide anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from federation.capacity.fleet_reports import FleetCapacity
from federation.capacity.summary_estimates import (
    PODS_PER_SIMULATED_NODE,
    estimate_replicas,
    fits_by_grade,
    positive_amounts,
)
from federation.model.cluster import ClusterState, ResourceSummary
from federation.model.estimate import EstimateOptions, Estimates, ModelRule, Source
from federation.model.grades import minimums
from federation.model.quantity import divide_up
from federation.model.reservations import Outstanding
from federation.model.resources import PODS
from federation.model.workload import ReplicaRequirements


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What one unit (a replica, or a whole set of components) asks for, and how many pods it is."""

    requirements: ReplicaRequirements
    pods: int = 1

    @property
    def request(self) -> dict[str, int]:
        """The positive amounts, pods aside."""
        return positive_amounts(self.requirements)


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """Units of one shape that a cluster has promised."""

    shape: Shape
    units: int


@dataclass(slots=True, kw_only=True)
class _Cell:
    """Equal nodes: how many, and what each has free."""

    nodes: int
    free: dict[str, int]
    pods: int

    def fits(self, request: Mapping[str, int]) -> int:
        return min(
            (self.free.get(name, 0) // amount for name, amount in request.items()),
            default=self.pods,
        )

    def after(self, nodes: int, request: Mapping[str, int], units: int) -> _Cell:
        """So many of its nodes, each with so many units placed."""
        left = {name: free - request.get(name, 0) * units for name, free in self.free.items()}
        return _Cell(nodes=nodes, free=left, pods=self.pods - units)


def deducted(
    capacity: FleetCapacity,
    requirements: ReplicaRequirements,
    options: EstimateOptions,
    outstanding: Mapping[int, Sequence[Outstanding]],
) -> Estimates:
    """Estimates of summaries and grade counts, less what clusters have outstanding (by position).

    Pods that wait for a node are in the totals of a report already, and in no node's free amounts.
    """
    left = with_all_waiting(capacity, outstanding)
    return deducted_from(left, requirements, options, outstanding)


def with_all_waiting(
    capacity: FleetCapacity, outstanding: Mapping[int, Sequence[Outstanding]]
) -> FleetCapacity:
    """The totals as if all pods that are outstanding waited for a node."""
    waiting = {
        position: with_waiting(
            capacity.states[position],
            [_taken(each.requirements, each.in_summary) for each in promised],
        )
        for position, promised in outstanding.items()
    }
    return capacity.with_clusters(waiting) if waiting else capacity


def deducted_from(
    left: FleetCapacity,
    requirements: ReplicaRequirements,
    options: EstimateOptions,
    outstanding: Mapping[int, Sequence[Outstanding]],
) -> Estimates:
    """``deducted``, where ``left`` already has all that is outstanding waiting."""
    held = {
        position: [_taken(each.requirements, each.in_cells) for each in promised]
        for position, promised in outstanding.items()
    }
    estimates = estimate_replicas(left, requirements, options)
    return less_in_models(left, estimates, requirements, options.model_rule, held)


def less_in_models(
    capacity: FleetCapacity,
    estimates: Estimates,
    requirements: ReplicaRequirements,
    rule: ModelRule,
    taken: Mapping[int, Sequence[Taken]],
) -> Estimates:
    """The estimates with what was taken deducted where grade counts answered.

    Of ``capacity`` only the totals know of it.
    """
    request = positive_amounts(requirements)
    changed = [c for c in taken if estimates.source_c[c] == Source.MODELS]
    if not changed or not request:
        return estimates
    replicas_c = estimates.replicas_c.copy()
    free_pods_c = capacity.free_pods_c
    for position in changed:
        left = _left_in_model(capacity.states[position], request, rule, taken[position])
        replicas_c[position] = min(left, int(free_pods_c[position]))
    return replace(estimates, replicas_c=replicas_c)


def with_waiting(state: ClusterState, taken: Iterable[Taken]) -> ClusterState:
    """The cluster as its next report would show it: the pods wait for a node."""
    if state.report is None:
        return state
    summary = state.report.summary
    waiting = dict(summary.allocating)
    for each in taken:
        for name, amount in (*each.shape.request.items(), (PODS, each.shape.pods)):
            waiting[name] = waiting.get(name, 0) + amount * each.units
    summary = ResourceSummary(
        allocatable=summary.allocatable, allocated=summary.allocated, allocating=waiting
    )
    return replace(state, report=replace(state.report, summary=summary))


def _taken(requirements: ReplicaRequirements, units: int) -> Taken:
    return Taken(shape=Shape(requirements=requirements), units=units)


def _left_in_model(
    state: ClusterState, request: Mapping[str, int], rule: ModelRule, taken: Sequence[Taken]
) -> int:
    cells = _cells(state)
    if rule is ModelRule.SIMULATED:
        for each in taken:
            cells = _packed(cells, each)
        return sum(cell.nodes * min(cell.fits(request), cell.pods) for cell in cells)
    fits: list[int] = fits_by_grade([request], minimums(state.cluster.model), rule)[0].tolist()
    whole = sum(cell.nodes * fit for cell, fit in zip(cells, fits, strict=True))
    return max(0, whole - sum(_displaced(each, request) for each in taken))


def _cells(state: ClusterState) -> list[_Cell]:
    """A cell for each grade: nodes with exactly the grade's minimums, as in the model."""
    counts = state.report.grade_counts if state.report else {}
    bounds = minimums(state.cluster.model)
    return [
        _Cell(
            nodes=counts.get(grade.grade, 0),
            free={name: least[column] for name, least in bounds.items()},
            pods=PODS_PER_SIMULATED_NODE,
        )
        for column, grade in enumerate(state.cluster.model.grades)
    ]


def _displaced(taken: Taken, request: Mapping[str, int]) -> int:
    """How many replicas of ``request`` the taken ones stand in the way of, at most."""
    held = taken.shape.request
    return taken.units * max(
        divide_up(held.get(name, 0), amount) for name, amount in request.items()
    )


def _packed(cells: Sequence[_Cell], taken: Taken) -> list[_Cell]:
    """First fit in the order of the cells; units for which no node is left are dropped."""
    request, left = taken.shape.request, taken.units
    packed: list[_Cell] = []
    for cell in cells:
        fit = min(cell.fits(request), cell.pods // taken.shape.pods)
        full = min(cell.nodes, left // fit) if fit else 0
        rest = min(left - full * fit, fit) if full < cell.nodes else 0
        left -= full * fit + rest
        packed.append(cell.after(full, request, fit))
        packed.append(cell.after(1 if rest else 0, request, rest))
        packed.append(cell.after(cell.nodes - full - (1 if rest else 0), request, 0))
    return [cell for cell in packed if cell.nodes]
