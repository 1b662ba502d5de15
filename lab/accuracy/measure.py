"""What every method answers for one synthetic cluster, beside the truth.

Must not judge: ``lab.accuracy.goals`` does.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from federation.capacity.fleet_cells import FleetCells
from federation.capacity.fleet_reports import FleetCapacity
from federation.capacity.pool_estimates import pool_bounds
from federation.capacity.summary_estimates import estimate_replicas
from federation.model.cluster import (
    CapacityReport,
    Cluster,
    ClusterState,
    NodeSummary,
    ResourceSummary,
)
from federation.model.estimate import EstimateOptions, ModelRule, Source
from federation.model.grade_counts import count_grades
from federation.model.grades import DEFAULT_MODEL, model_hash
from federation.model.pools.building import build_pools, partition_nodes
from federation.model.pools.refreshing import refresh_pools
from federation.model.pools.values import Cells
from federation.model.workload import ReplicaRequirements
from lab.fleets import (
    CPU_ROW,
    MEMORY_ROW,
    RESOURCES,
    ClusterPlan,
    Int64Array,
    node_columns,
    packed_clusters,
)
from lab.simple_bounds import simple_lower_bound

BUDGETS = (16, 64, 256)
TIMED_BUDGET = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """Answers for one cluster at one fill by method, axis s: customary shapes, then random ones.

    ``lower_bs``, ``simple_bs`` and ``upper_bs`` are by budget of cells (axis b, as BUDGETS);
    ``byte_count_b`` is what the cells take on the wire with minimums, with sums of cpu, memory and
    pods, and with all sums.
    """

    plan: ClusterPlan
    fill: float
    distinct_nodes: int
    truth_s: Int64Array
    simple_bs: Int64Array
    lower_bs: Int64Array
    upper_bs: Int64Array
    rivals: Mapping[str, Int64Array]
    byte_count_b: Sequence[tuple[int, int, int]]
    build_seconds: float
    refresh_seconds: float


def answers(plan: ClusterPlan, shapes: Sequence[Mapping[str, int]]) -> list[Answers]:
    """All methods on the cluster of a plan, at every fill."""
    return [_answers(plan, fill, free_rn, shapes) for fill, free_rn in packed_clusters(plan)]


def _answers(
    plan: ClusterPlan, fill: float, free_rn: Int64Array, shapes: Sequence[Mapping[str, int]]
) -> Answers:
    nodes = node_columns(free_rn)
    started = time.thread_time()
    partition = partition_nodes(nodes, TIMED_BUDGET, ()).partition
    built = time.thread_time()
    refresh_pools(nodes, partition)
    refreshed = time.thread_time()
    by_budget = [build_pools(nodes, budget) for budget in BUDGETS]
    fleets = [FleetCells.of([pools]) for pools in by_budget]
    requirements = [ReplicaRequirements(request=shape) for shape in shapes]
    bounds = [[pool_bounds(fleet, each) for each in requirements] for fleet in fleets]
    return Answers(
        plan=plan,
        fill=fill,
        distinct_nodes=len(np.unique(free_rn, axis=1).T),
        truth_s=np.array([_truth(free_rn, shape) for shape in shapes]),
        simple_bs=np.array(
            [[simple_lower_bound(pools, each) for each in requirements] for pools in by_budget]
        ),
        lower_bs=np.array([[int(each.lower_c[0]) for each in row] for row in bounds]),
        upper_bs=np.array([[int(each.upper_c[0]) for each in row] for row in bounds]),
        rivals=_rivals(free_rn, requirements),
        byte_count_b=[_byte_counts(pools.cells) for pools in by_budget],
        build_seconds=built - started,
        refresh_seconds=refreshed - built,
    )


def _truth(free_rn: Int64Array, shape: Mapping[str, int]) -> int:
    """Replicas that fit, node by node."""
    rows = dict(zip(RESOURCES, free_rn, strict=True))
    fits = [rows["pods"], *(rows[name] // amount for name, amount in shape.items())]
    return int(np.maximum(np.minimum.reduce(fits), 0).sum())


def _rivals(
    free_rn: Int64Array, requirements: Sequence[ReplicaRequirements]
) -> dict[str, Int64Array]:
    """Totals, and node counts by grade under every rule, with totals where grades cannot tell."""
    totals = dict(zip(RESOURCES, free_rn.sum(axis=1).tolist(), strict=True))
    report = CapacityReport(
        epoch=1,
        sequence=1,
        snapshot_time=0.0,
        summary=ResourceSummary(allocatable=totals),
        nodes=NodeSummary(),
        grade_counts=count_grades(DEFAULT_MODEL, free_rn[[CPU_ROW, MEMORY_ROW]]),
        model_hash=model_hash(DEFAULT_MODEL),
    )
    capacity = FleetCapacity.of([ClusterState(cluster=Cluster(name="member"), report=report)])
    options = {"summary": EstimateOptions(highest=Source.SUMMARY)} | {
        rule.value: EstimateOptions(highest=Source.MODELS, model_rule=rule) for rule in ModelRule
    }
    return {
        name: np.array(
            [int(estimate_replicas(capacity, each, option).replicas_c[0]) for each in requirements]
        )
        for name, option in options.items()
    }


def _byte_counts(cells: Cells) -> tuple[int, int, int]:
    """Bytes as varints: minimums; with sums and maximums of cpu, memory and pods; with all.

    Rows in which everything is a multiple of a power of two, as memory is, are sent in that unit.
    """
    least = int(_varint_bytes(cells.count_k).sum())
    sums = []
    for min_k, sum_k, max_k in zip(cells.min_rk, cells.sum_rk, cells.max_rk, strict=True):
        over_k, spread_k = sum_k - min_k * cells.count_k, max_k - min_k
        together = int(np.bitwise_or.reduce(np.concatenate([min_k, over_k, spread_k])))
        unit = max(together & -together, 1)
        least += int(_varint_bytes(min_k // unit).sum())
        sums.append(int((_varint_bytes(over_k // unit) + _varint_bytes(spread_k // unit)).sum()))
    return least, least + sum(sums[:3]), least + sum(sums)


def _varint_bytes(values: Int64Array) -> npt.NDArray[np.int64]:
    bits = np.ceil(np.log2(values.astype(np.float64) + 1))
    return np.maximum(np.ceil(bits / 7), 1).astype(np.int64)
