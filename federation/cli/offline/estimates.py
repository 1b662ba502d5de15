"""Estimates on clusters from files, and for files of cases.

Must not compute estimates: ``federation.capacity`` does, as in the control plane.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from federation.capacity.deductions import Deductions
from federation.capacity.fleet_cells import FleetCells
from federation.capacity.fleet_reports import FleetCapacity
from federation.capacity.pool_estimates import improved_by_pools, open_above_c, pool_bounds
from federation.capacity.promised_bounds import PromisedColumns, bounds_beside
from federation.cli import inputs
from federation.codec.estimates import bound_word, source_word
from federation.model.cluster import ClusterState
from federation.model.estimate import BLIND_UP_TO, Bound, EstimateOptions, Estimates, Source
from federation.model.reported_pools import pools_of
from federation.model.workload import ReplicaRequirements

Row = dict[str, Any]
CASE_COLUMNS: Final = ("cluster", "replicas", "source", "bound")


def answer_case(case: inputs.Case) -> dict[str, Any]:
    """One line of a file of cases."""
    states = inputs.clusters_of(
        inputs.by_position(inputs.objects_at(case, "clusters"), "clusters"), now=0.0
    )
    requirements = inputs.requirements_of(case.get("request"), case.get("nodeClaim"))
    components = inputs.components_of(case.get("components"), "components")
    assumed = inputs.workloads_of(case.get("assumed"), "assumed")
    # Cases are compared with Karmada's estimators, which count without node claims.
    options = replace(inputs.estimate_options(inputs.options_at(case)), ignore_claims=True)
    if not components and not assumed:
        rows = offline_rows(states, requirements, options)
        return {"estimates": [{name: row[name] for name in CASE_COLUMNS} for row in rows]}
    # Few cases are like that, and what makes up nodes takes long to load.
    from federation.cli.offline.simulating import replicas_beside, sets_beside  # noqa: PLC0415 - see above

    if components:
        counted = "sets"
        answers = [sets_beside(state, components, assumed, options) for state in states]
    else:
        counted = "replicas"
        answers = [replicas_beside(state, requirements, assumed, options) for state in states]
    return {
        "estimates": [
            {
                "cluster": state.cluster.name,
                counted: answer.units,
                "source": source_word(answer.source),
                "bound": bound_word(Bound.NONE),
            }
            for state, answer in zip(states, answers, strict=True)
        ]
    }


def offline_rows(
    states: Sequence[ClusterState], requirements: ReplicaRequirements, options: EstimateOptions
) -> list[Row]:
    """An estimate a cluster, in the order of the clusters; ``replicas`` is None where unknown."""
    estimates = _estimated(states, requirements, options)
    upper_c = estimates.upper_c
    columns = zip(
        states,
        estimates.replicas_c.tolist(),
        estimates.source_c.tolist(),
        estimates.bound_c.tolist(),
        estimates.unknown_c.tolist(),
        [-1] * len(states) if upper_c is None else upper_c.tolist(),
        strict=True,
    )
    return [
        {
            "cluster": state.cluster.name,
            "replicas": None if unknown else replicas,
            "source": source_word(source),
            "bound": bound_word(bound),
            "atMost": None if upper < 0 else upper,
            "ignoresNodeClaim": requirements.chooses_nodes and 0 < source <= BLIND_UP_TO,
            "note": str(estimates.reasons.get(position, "")),
        }
        for position, (state, replicas, source, bound, unknown, upper) in enumerate(columns)
    ]


def _estimated(
    states: Sequence[ClusterState], requirements: ReplicaRequirements, options: EstimateOptions
) -> Estimates:
    """Estimates of a control plane that has in memory what the files have."""
    promised = {c: state.promised for c, state in enumerate(states) if state.promised}
    capacity = FleetCapacity.of(states)
    deductions = Deductions.of(capacity, promised)
    lesser = partial(deductions.estimates, requirements, options)
    if options.highest < Source.POOLS or not any(map(_has_pools, states)):
        return lesser()
    cells = FleetCells.of(
        pools_of(state.report.pools) if state.report and state.report.pools else None
        for state in states
    )
    columns = PromisedColumns.of(promised)
    bounds = bounds_beside(cells, pool_bounds(cells, requirements), requirements, columns)
    is_open_c = open_above_c(capacity, cells, requirements.node_claim)
    return improved_by_pools(lesser, bounds, options, is_open_c)


def _has_pools(state: ClusterState) -> bool:
    return state.report is not None and state.report.pools is not None
