"""The capacity of a cluster: its totals, its nodes by grade, and whether it changed much.

Pure. Must not hold what the control plane decides on it: reservations are deducted there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

import numpy as np

from estimator.snapshot import Snapshot
from federation.model.arrays import BoolArray, IntArray
from federation.model.cluster import NodeSummary, ReportedPools, ResourceSummary
from federation.model.grade_counts import count_grades
from federation.model.grades import ResourceModel
from federation.model.resources import CPU, MAX_AMOUNT, MEMORY, PODS

# A greater part than this of what was free came or went.
CHANGED_PART: Final = 0.05
# Of the allocatable.
MIN_BASE: Final = 0.01


class NodeSet(Enum):
    """Which nodes count as capacity, and which pods without a node as allocating."""

    SCHEDULABLE = "Ready and not cordoned; pods that wait for a node, none behind gates"
    EVERY = "all, as Karmada counts; pods without a node, even ended ones"


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """A cluster's totals, its nodes counted, and how many of them are in each grade.

    ``allocated_elsewhere`` is requested on nodes that are not capacity, and so in no total.
    ``grade_counts`` is empty without a model. Nodes that are overdrawn are in no grade, and
    are not among the graded; in a schedulable set those without a free pod slot, too. ``gated``
    is what pods behind scheduling gates ask for, in no other total of a schedulable set. ``pools``
    is None where nobody made them.
    """

    summary: ResourceSummary
    nodes: NodeSummary
    grade_counts: Mapping[int, int] = field(default_factory=dict)
    allocated_elsewhere: Mapping[str, int] = field(default_factory=dict)
    gated: Mapping[str, int] = field(default_factory=dict)
    pools: ReportedPools | None = None


def counted_nodes(snapshot: Snapshot, node_set: NodeSet) -> BoolArray:
    """The nodes (axis n) that are capacity."""
    if node_set is NodeSet.EVERY:
        return np.ones(len(snapshot), dtype=np.bool_)
    return snapshot.table.ready_n & ~snapshot.table.unschedulable_n


def capacity_of(snapshot: Snapshot, model: ResourceModel, node_set: NodeSet) -> Capacity:
    """The capacity of a snapshot, graded by ``model`` unless that has no grades."""
    counted_n = counted_nodes(snapshot, node_set)
    # Totals count nominated pods with those that wait.
    nominated = snapshot.nominated_amounts(counted_n)
    if node_set is NodeSet.SCHEDULABLE:
        allocated = _without(_totals(snapshot.requested, counted_n), nominated)
        elsewhere = _without(
            _sum(_totals(snapshot.requested, ~counted_n), snapshot.homeless),
            snapshot.nominated_amounts(~counted_n),
        )
        allocating = _sum(snapshot.waiting)
    else:
        allocated = _without(
            _sum(_totals(snapshot.requested, counted_n), snapshot.homeless), nominated
        )
        elsewhere = {}
        allocating = _sum(snapshot.waiting, snapshot.gated, snapshot.dropped)
    graded_n = counted_n
    if node_set is NodeSet.SCHEDULABLE:
        # A replica takes a pod slot whatever it asks for: a node without any is of no use.
        graded_n = counted_n & (snapshot.free_n(PODS) > 0)
    grade_counts = _grade_counts(snapshot, model, graded_n)
    return Capacity(
        summary=ResourceSummary(
            allocatable=_totals(snapshot.table.allocatable, counted_n),
            allocated=allocated,
            allocating=allocating,
        ),
        nodes=NodeSummary(
            total=len(snapshot),
            ready=int(snapshot.table.ready_n.sum()),
            graded=sum(grade_counts.values()),
        ),
        grade_counts=grade_counts,
        allocated_elsewhere=elsewhere,
        gated=_sum(snapshot.gated),
    )


def _grade_counts(snapshot: Snapshot, model: ResourceModel, graded_n: BoolArray) -> dict[int, int]:
    if not model.grades:
        return {}
    free_rn = np.stack([snapshot.free_n(name)[graded_n] for name in model.resources])
    return count_grades(model, free_rn)


def _totals(columns: Mapping[str, IntArray], counted_n: BoolArray) -> dict[str, int]:
    """Sums without zeros. In Python's integers: a sum of int64 may pass what an int64 holds."""
    sums = {name: sum(column[counted_n].tolist()) for name, column in columns.items()}
    return _sum(sums)


def _without(total: Mapping[str, int], nominated: Mapping[str, int]) -> dict[str, int]:
    if not nominated:
        return dict(total)
    return _sum({name: max(0, amount - nominated.get(name, 0)) for name, amount in total.items()})


def _sum(*totals: Mapping[str, int]) -> dict[str, int]:
    """The sum by resource name, up to MAX_AMOUNT, without zeros, names in order."""
    names = sorted({name for total in totals for name in total})
    sums = {name: sum(total.get(name, 0) for total in totals) for name in names}
    return {name: min(amount, MAX_AMOUNT) for name, amount in sums.items() if amount}


def changed_much(
    sent: tuple[ResourceSummary, NodeSummary], now: tuple[ResourceSummary, NodeSummary]
) -> bool:
    """A node came or went, or more than 5 % of the free cpu or memory did."""
    (summary, nodes), (summary_now, nodes_now) = sent, now
    if (nodes.total, nodes.ready) != (nodes_now.total, nodes_now.ready):
        return True
    return any(_moved(summary, summary_now, name) for name in (CPU, MEMORY))


def _moved(summary: ResourceSummary, now: ResourceSummary, name: str) -> bool:
    free = _free(summary, name)
    # Where next to nothing is free every pod would move it much.
    base = max(free, MIN_BASE * summary.allocatable.get(name, 0))
    return abs(_free(now, name) - free) > CHANGED_PART * base


def _free(summary: ResourceSummary, name: str) -> int:
    used = summary.allocated.get(name, 0) + summary.allocating.get(name, 0)
    return summary.allocatable.get(name, 0) - used
