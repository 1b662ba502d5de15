"""Estimates for files of cases beside workloads that are assumed to be there, in sets or replicas.

Must not estimate on its own: whole sets are placed on nodes as an agent places them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from estimator.estimation.exact import ExactEstimates, Workload
from federation.capacity.deductions import UnitRequest
from federation.capacity.fleet_reports import UNMODELLED, FleetCapacity
from federation.capacity.summary_estimates import PODS_PER_SIMULATED_NODE, positive_amounts
from federation.model.cluster import ClusterState
from federation.model.component_sets import shape_of_set
from federation.model.estimate import EstimateOptions, Estimates, ModelRule, Source
from federation.model.grades import minimums
from federation.model.resources import PODS
from federation.model.workload import ReplicaRequirements
from federation.simulation.totals import SimulatedTotals

# Nodes that are made up one by one; a cluster of more is answered from its summary.
MAX_SIMULATED_NODES: Final = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Units:
    """Replicas, or whole sets; None where no level can answer."""

    units: int | None
    source: Source


def replicas_beside(
    state: ClusterState,
    requirements: ReplicaRequirements,
    assumed: Sequence[Workload],
    options: EstimateOptions,
) -> Units:
    """How many replicas fit beside the assumed workloads."""
    outstanding = _beside(FleetCapacity.of([state]), assumed, options)
    return _units(outstanding.available(UnitRequest(requirements=requirements)))


def sets_beside(
    state: ClusterState,
    workload: Workload,
    assumed: Sequence[Workload],
    options: EstimateOptions,
) -> Units:
    """How many whole sets of the workload fit beside the assumed ones.

    By the summary; models count sets under the rule ``simulated`` alone, and then the least of
    both is the answer, as it is Karmada's.
    """
    capacity = FleetCapacity.of([state])
    summary = replace(options, highest=Source.SUMMARY)
    outstanding = _beside(capacity, assumed, summary)
    replicas = _units(outstanding.available(UnitRequest(requirements=shape_of_set(workload))))
    nodes = _simulated_nodes(capacity, workload, options)
    if replicas.units is None or nodes is None:
        return replicas
    simulated = nodes.sets(workload, assumed)
    return Units(units=min(simulated, replicas.units), source=Source.MODELS)


def _beside(
    capacity: FleetCapacity, assumed: Sequence[Workload], options: EstimateOptions
) -> SimulatedTotals:
    outstanding = SimulatedTotals(capacity, options)
    for component in (component for workload in assumed for component in workload):
        outstanding.take({0: component.replicas}, UnitRequest(requirements=component.requirements))
    return outstanding


def _units(estimates: Estimates) -> Units:
    source = Source(int(estimates.source_c[0]))
    units = None if source is Source.NONE else int(estimates.replicas_c[0])
    return Units(units=units, source=source)


def _simulated_nodes(
    capacity: FleetCapacity, workload: Workload, options: EstimateOptions
) -> ExactEstimates | None:
    """Nodes of exactly the grades' minimums; None where models do not count such sets."""
    (state,) = capacity.states
    if (
        options.model_rule is not ModelRule.SIMULATED
        or options.highest < Source.MODELS
        or state.report is None
        or capacity.model_c[0] == UNMODELLED
    ):
        return None
    by_name = minimums(state.cluster.model)
    replicated = [component for component in workload if component.replicas]
    requested = {
        name for component in replicated for name in positive_amounts(component.requirements)
    }
    counts = state.report.grade_counts
    if (
        not replicated
        or not requested <= by_name.keys()
        or sum(counts.values()) > MAX_SIMULATED_NODES
    ):
        return None
    return ExactEstimates.of_empty_nodes(
        {
            PODS: PODS_PER_SIMULATED_NODE,
            **{name: least[column] for name, least in by_name.items()},
        }
        for column, grade in enumerate(state.cluster.model.grades)
        for _ in range(counts.get(grade.grade, 0))
    )
