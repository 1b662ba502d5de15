"""Deductions of promises that no report shows yet, for clusters whose nodes are not reported.

Pure. For the levels ``summary`` and ``models`` only; in cells, promises are packed
(``cluster_room``). Must not decide anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import NamedTuple

import numpy as np

from federation.capacity.fleet_reports import FleetCapacity
from federation.capacity.summary_estimates import (
    PODS_PER_SIMULATED_NODE,
    SURE_RULE,
    estimate_shapes,
    fits_by_grade,
    positive_amounts,
)
from federation.model.arrays import FloatArray, IntArray
from federation.model.cluster import ClusterState, ResourceSummary
from federation.model.estimate import EstimateOptions, Estimates, ModelRule, Source
from federation.model.grades import minimums
from federation.model.quantity import divide_up
from federation.model.reservations import Outstanding
from federation.model.resources import PODS
from federation.model.workload import ReplicaRequirements


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitRequest:
    """A unit's request: of a replica, or of a whole set of components with so many pods."""

    requirements: ReplicaRequirements
    pods: int = 1

    @property
    def request(self) -> dict[str, int]:
        """The positive amounts, without pods."""
        return positive_amounts(self.requirements)


class Taken(NamedTuple):
    """Units of one shape that a cluster has promised: the request and the pods of each."""

    request: tuple[tuple[str, int], ...]
    units: int
    pods: int = 1

    @classmethod
    def of(cls, requirements: ReplicaRequirements, units: int, pods: int = 1) -> Taken:
        return cls(tuple(sorted(positive_amounts(requirements).items())), units, pods)


@dataclass(slots=True, kw_only=True)
class _Cell:
    """Equal nodes, and the free amounts and pod slots of each."""

    nodes: int
    free: dict[str, int]
    pods: int

    def fits(self, request: Mapping[str, int]) -> int:
        return min(
            (self.free.get(name, 0) // amount for name, amount in request.items()),
            default=self.pods,
        )

    def after(self, nodes: int, request: Mapping[str, int], units: int) -> _Cell:
        """Return ``nodes`` of the nodes, with ``units`` placed on each."""
        rest = {name: free - request.get(name, 0) * units for name, free in self.free.items()}
        return _Cell(nodes=nodes, free=rest, pods=self.pods - units)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Deductions:
    """Outstanding promises of a fleet by position, as both levels deduct them.

    Pods that wait for a node are in the totals of a report already, but in no node's free amounts.
    ``left`` has the totals as if the pods of all promises waited; ``taken`` is on no node yet.
    """

    capacity: FleetCapacity
    outstanding: Mapping[int, Sequence[Outstanding]]
    left: FleetCapacity
    taken: Mapping[int, Sequence[Taken]]

    @classmethod
    def of(
        cls, capacity: FleetCapacity, outstanding: Mapping[int, Sequence[Outstanding]]
    ) -> Deductions:
        nothing = cls(capacity=capacity, outstanding={}, left=capacity, taken={})
        return nothing.after(capacity, outstanding)

    def after(
        self, capacity: FleetCapacity, outstanding: Mapping[int, Sequence[Outstanding]]
    ) -> Deductions:
        """Return the deductions of a newer state; only clusters that changed are computed."""
        if len(capacity) != len(self.capacity):
            return Deductions.of(capacity, outstanding)
        changed = {
            position
            for position in outstanding.keys() | self.outstanding.keys()
            if outstanding.get(position) is not self.outstanding.get(position)
        }
        taken = dict(self.taken)
        for position in changed:
            taken.pop(position, None)
            if promised := outstanding.get(position, ()):
                taken[position] = _in_runs((), promised)
        if capacity is not self.capacity:
            states = zip(capacity.states, self.capacity.states, strict=True)
            changed.update(c for c, (newer, older) in enumerate(states) if newer is not older)
        waiting = {
            position: with_waiting(
                capacity.states[position],
                [
                    Taken.of(promise.requirements, promise.in_summary)
                    for promise in outstanding.get(position, ())
                ],
            )
            for position in changed
        }
        totals = self.left.with_clusters(waiting) if waiting else self.left
        return Deductions(capacity=capacity, outstanding=outstanding, left=totals, taken=taken)

    def with_more(self, added: Mapping[int, Sequence[Outstanding]]) -> Deductions:
        """Add promises at some positions; the cost depends on these only."""
        added = {position: promised for position, promised in added.items() if promised}
        if not added:
            return self
        waiting = {
            position: with_waiting(
                self.left.states[position],
                [Taken.of(promise.requirements, promise.in_summary) for promise in promised],
            )
            for position, promised in added.items()
        }
        taken = dict(self.taken)
        for position, promised in added.items():
            taken[position] = _in_runs(taken.get(position, ()), promised)
        # Without these positions, so that ``after`` computes them again.
        unchanged = {c: promised for c, promised in self.outstanding.items() if c not in added}
        totals = self.left.with_clusters(waiting)
        return replace(self, outstanding=unchanged, left=totals, taken=taken)

    def with_others(self, replaced: Mapping[int, Sequence[Outstanding]]) -> Deductions:
        """Replace all promises at some positions."""
        if not replaced:
            return self
        return self.after(self.capacity, {**self.outstanding, **replaced})

    def estimates(self, requirements: ReplicaRequirements, options: EstimateOptions) -> Estimates:
        """Estimate by summaries and grade counts, less what is outstanding."""
        return self.estimates_of_each([requirements], options)[0]

    def estimates_of_each(
        self, shapes: Sequence[ReplicaRequirements], options: EstimateOptions
    ) -> list[Estimates]:
        """Estimate many shapes at once."""
        return [
            less_in_models(self.left, estimates, shape, options.model_rule, self.taken)
            for shape, estimates in zip(
                shapes, estimate_shapes(self.left, shapes, options), strict=True
            )
        ]


def _in_runs(taken: Sequence[Taken], promised: Iterable[Outstanding]) -> Sequence[Taken]:
    """Append promises; equal neighbours become one, which changes no deduction."""
    runs = list(taken)
    for promise in promised:
        added = Taken.of(promise.requirements, promise.in_cells)
        if runs and runs[-1].request == added.request and runs[-1].pods == added.pods:
            added = added._replace(units=added.units + runs.pop().units)
        runs.append(added)
    return tuple(runs)


def less_in_models(
    capacity: FleetCapacity,
    estimates: Estimates,
    requirements: ReplicaRequirements,
    rule: ModelRule,
    taken: Mapping[int, Sequence[Taken]],
    displaced_c: Callable[[Mapping[str, int]], IntArray] | None = None,
) -> Estimates:
    """Deduct what was taken from estimates by grade counts.

    The totals of ``capacity`` have it deducted already. ``displaced_c`` returns the replicas of a
    request that all units ``taken`` displace, by cluster; by default they are added up here.
    """
    request = positive_amounts(requirements)
    position_j = np.fromiter(taken, dtype=np.intp, count=len(taken))
    position_j = position_j[estimates.source_c[position_j] == int(Source.MODELS)]
    if not len(position_j) or not request:
        return estimates
    free_pods_j = capacity.free_pods_c[position_j]
    replicas_c, sure_c = estimates.replicas_c.copy(), estimates.sure_c
    if rule is ModelRule.SIMULATED:
        rest_j = np.array(
            [_simulated(capacity.states[c], request, taken[c]) for c in position_j.tolist()]
        )
    else:
        if displaced_c is None:
            lost_j = _displaced_j([taken[c] for c in position_j.tolist()], request)
        else:
            lost_j = displaced_c(request)[position_j]
        rest_j = _whole(capacity, request, rule)[position_j].astype(np.int64) - lost_j
        if sure_c is not None:
            sure_j = _whole(capacity, request, SURE_RULE)[position_j].astype(np.int64) - lost_j
            sure_c = sure_c.copy()
            sure_c[position_j] = np.minimum(np.maximum(sure_j, 0), free_pods_j)
    replicas_c[position_j] = np.minimum(np.maximum(rest_j, 0), free_pods_j)
    if sure_c is not None:
        sure_c = np.minimum(sure_c, replicas_c)
    return replace(estimates, replicas_c=replicas_c, sure_c=sure_c)


def with_waiting(state: ClusterState, taken: Iterable[Taken]) -> ClusterState:
    """Return the cluster as its next report would show it, with pods waiting for a node."""
    if state.report is None:
        return state
    summary = state.report.summary
    waiting = dict(summary.allocating)
    for run in taken:
        for name, amount in (*run.request, (PODS, run.pods)):
            waiting[name] = waiting.get(name, 0) + amount * run.units
    summary = ResourceSummary(
        allocatable=summary.allocatable, allocated=summary.allocated, allocating=waiting
    )
    return replace(state, report=replace(state.report, summary=summary))


def _simulated(state: ClusterState, request: Mapping[str, int], taken: Sequence[Taken]) -> int:
    cells = _cells(state)
    for run in taken:
        cells = _packed(cells, run)
    return sum(cell.nodes * min(cell.fits(request), cell.pods) for cell in cells)


def _whole(capacity: FleetCapacity, request: Mapping[str, int], rule: ModelRule) -> FloatArray:
    """Return how many replicas all nodes hold in each cluster, without pod slots; 0 unmodelled."""
    whole_c = np.zeros(len(capacity))
    for position, model in enumerate(capacity.models):
        if request.keys() <= model.minimums.keys():
            (fit_g,) = fits_by_grade([request], model.minimums, rule)
            is_of_model_c = capacity.model_c == position
            whole_c[is_of_model_c] = capacity.count_cg[is_of_model_c, : len(fit_g)] @ fit_g
    return whole_c


def _cells(state: ClusterState) -> list[_Cell]:
    """Return a cell for each grade: nodes with exactly the grade's minimums."""
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


def displaced(held: tuple[tuple[str, int], ...], request: Mapping[str, int]) -> int:
    """Return the most replicas of ``request`` that a unit with the request ``held`` displaces."""
    held_by_name = dict(held)
    return max(divide_up(held_by_name.get(name, 0), amount) for name, amount in request.items())


def _displaced_j(runs_j: Sequence[Sequence[Taken]], request: Mapping[str, int]) -> IntArray:
    """Return the replicas of a request that runs of units displace, for each sequence of runs."""
    displaced_by = cache(partial(displaced, request=request))
    return np.array(
        [sum([run.units * displaced_by(run.request) for run in runs]) for runs in runs_j],
        dtype=np.int64,
    )


def _packed(cells: Sequence[_Cell], taken: Taken) -> list[_Cell]:
    """Pack first fit in the order of the cells; units without a node are dropped."""
    request, units = dict(taken.request), taken.units
    packed: list[_Cell] = []
    for cell in cells:
        fit = min(cell.fits(request), cell.pods // taken.pods)
        full = min(cell.nodes, units // fit) if fit else 0
        rest = min(units - full * fit, fit) if full < cell.nodes else 0
        units -= full * fit + rest
        packed.append(cell.after(full, request, fit))
        packed.append(cell.after(1 if rest else 0, request, rest))
        packed.append(cell.after(cell.nodes - full - (1 if rest else 0), request, 0))
    return [cell for cell in packed if cell.nodes]
