"""What every method answers beside the truth, its errors, and the goals that it is held to.

Must not know where clusters come from.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

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
from lab.packed_clusters import (
    CPU_ROW,
    MEMORY_ROW,
    RESOURCES,
    ClusterPlan,
    Int64Array,
    node_columns,
    packed_clusters,
)
from lab.simple_bounds import simple_lower_bound
from lab.verdicts import Verdicts, at_least, at_most

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


# One shape that only a handful fits of would rule every mean.
WORST_ERROR = 10.0

Method: TypeAlias = Callable[[Answers], Int64Array]


@dataclass(frozen=True, slots=True, kw_only=True)
class Errors:
    """Relative errors where something fits, as shares; ``over`` is of all answers."""

    median: float
    mean: float
    p95: float
    bias: float
    over: float
    says_none: float
    count: int

    def __str__(self) -> str:
        return (
            f"{self.median:8.2%} {self.mean:8.2%} {self.p95:9.2%} {self.bias:+9.2%} "
            f"{self.over:8.2%} {self.says_none:8.2%}"
        )


def errors(results: Iterable[Answers], method: Method, shapes: slice) -> Errors:
    """Errors of a method over the given clusters and shapes."""
    results = list(results)
    answer = np.concatenate([method(each)[shapes] for each in results])
    truth = np.concatenate([each.truth_s[shapes] for each in results])
    fits = truth > 0
    signed = (answer[fits] - truth[fits]) / truth[fits]
    error = np.minimum(np.abs(signed), WORST_ERROR)
    return Errors(
        median=float(np.median(error)),
        mean=float(error.mean()),
        p95=float(np.percentile(error, 95)),
        bias=float(np.median(signed)),
        over=float((answer > truth).mean()),
        says_none=float((answer[fits] == 0).mean()),
        count=len(truth),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """How clusters are ordered and weighed by answers, over shapes that fit somewhere.

    ``correlation`` and ``worst_misplaced`` are of the worst shape, ``best_pick`` is the median of
    what the cluster ranked first truly holds over what the best one does, ``misplaced`` the median
    share of weight that goes to the wrong clusters.
    """

    correlation: float
    best_pick: float
    misplaced: float
    worst_misplaced: float


def ranking(results: Sequence[Answers], method: Method, shapes: slice) -> Ranking:
    """Rank and weigh the clusters by a method, shape after shape."""
    answer_cs = np.stack([method(each)[shapes] for each in results])
    truth_cs = np.stack([each.truth_s[shapes] for each in results])
    correlations, picks, misplaced = [], [], []
    for answer_c, truth_c in zip(answer_cs.T, truth_cs.T, strict=True):
        if np.ptp(truth_c) == 0 or answer_c.max() == 0:
            continue
        correlations.append(np.corrcoef(_rank_values(answer_c), _rank_values(truth_c))[0, 1])
        picks.append(truth_c[answer_c.argmax()] / truth_c.max())
        weights = answer_c / answer_c.sum() - truth_c / truth_c.sum()
        misplaced.append(np.abs(weights).sum() / 2)
    return Ranking(
        correlation=float(np.min(correlations)),
        best_pick=float(np.median(picks)),
        misplaced=float(np.median(misplaced)),
        worst_misplaced=float(np.max(misplaced)),
    )


def _rank_values(values: Int64Array) -> npt.NDArray[np.float64]:
    """Ranks from 0, the mean of them among equals (Spearman's)."""
    _, place, count = np.unique(values, return_inverse=True, return_counts=True)
    mean_rank = np.cumsum(count) - (count + 1) / 2
    ranks: npt.NDArray[np.float64] = mean_rank[place]
    return ranks


CUSTOMARY = slice(0, 33)
RANDOM = slice(33, None)
LARGE = 2000
KIB = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """Answers of clusters that fill up, and of two fleets that are ranked."""

    clusters: Sequence[Answers]
    mixed_fleet: Sequence[Answers]
    equal_fleet: Sequence[Answers]

    def of_size(self, nodes: int) -> list[Answers]:
        return [each for each in self.clusters if each.plan.nodes == nodes]

    @property
    def all(self) -> list[Answers]:
        return [*self.clusters, *self.mixed_fleet, *self.equal_fleet]

    @property
    def large(self) -> list[Answers]:
        return [each for each in self.clusters if each.plan.nodes >= LARGE]


def tighter(budget: int) -> Method:
    """LB+ with so many cells."""
    place = BUDGETS.index(budget)
    return lambda answers: answers.lower_bs[place]


def simple(budget: int) -> Method:
    """LB with so many cells."""
    place = BUDGETS.index(budget)
    return lambda answers: answers.simple_bs[place]


def upper(budget: int) -> Method:
    """UB with so many cells."""
    place = BUDGETS.index(budget)
    return lambda answers: answers.upper_bs[place]


def rival(name: str) -> Method:
    """Totals or a rule over grades."""

    def method(answers: Answers) -> Int64Array:
        return answers.rivals[name]

    return method


def judge(figures: Verdicts, results: Results, min_pairs: int) -> None:
    """Every goal; ``min_pairs`` is how many pairs of cluster and shape bounds are tried on."""
    _bounds_hold(figures, results, min_pairs)
    _few_nodes_are_exact(figures, results)
    _errors_are_small(figures, results)
    _ranks(figures, results)
    _bytes(figures, results)
    _times(figures, results)
    _against_grades(figures, results)


def _bounds_hold(figures: Verdicts, results: Results, min_pairs: int) -> None:
    pairs = sum(len(each.truth_s) for each in results.all)
    broken = sum(
        int((each.simple_bs > each.lower_bs).sum())
        + int((each.lower_bs > each.truth_s).sum())
        + int((each.upper_bs < each.truth_s).sum())
        for each in results.all
    )
    figures.row("G-1 bounds that are broken: LB <= LB+ <= truth <= UB", broken, goal=at_most(0))
    figures.row("G-1 pairs, with every budget", pairs, goal=at_least(min_pairs))


def _few_nodes_are_exact(figures: Verdicts, results: Results) -> None:
    wrong = tried = 0
    for each in results.all:
        for place, budget in enumerate(BUDGETS):
            if each.distinct_nodes <= budget:
                tried += len(each.truth_s)
                wrong += int((each.lower_bs[place] != each.truth_s).sum())
                wrong += int((each.upper_bs[place] != each.truth_s).sum())
    figures.row("G-2 errors with a cell for each distinct node", wrong, goal=at_most(0))
    figures.row("G-2 answers", tried, goal=at_least(1))


def _errors_are_small(figures: Verdicts, results: Results) -> None:
    every, large = results.clusters, results.large
    nearly_full = [each for each in large if each.fill >= 0.9]
    # As the goals were set: the emptiest clusters, which are easy, are left out.
    some_full = [each for each in large if each.fill >= 0.3]
    two_fills = [each for each in large if each.fill in (0.7, 0.95)]
    goals: tuple[tuple[str, list[Answers], int, slice, dict[str, float]], ...] = (
        ("G-3 64 cells", large, 64, CUSTOMARY, {"median": 1, "mean": 4, "p95": 16}),
        ("G-3 64 cells, >= 90 % full", nearly_full, 64, CUSTOMARY, {"median": 6, "mean": 9}),
        ("G-4 256 cells", large, 256, CUSTOMARY, {"median": 0.5, "mean": 2, "p95": 8}),
        ("G-4 256 cells, >= 90 % full", nearly_full, 256, CUSTOMARY, {"mean": 3}),
        ("G-5 64 cells", some_full, 64, RANDOM, {"median": 3, "mean": 8}),
        ("G-5 256 cells", some_full, 256, RANDOM, {"median": 2.5, "mean": 6}),
        ("G-5 64 cells, 70 and 95 % full", two_fills, 64, RANDOM, {"median": 5, "mean": 10}),
        ("G-6 customary shapes", list(every), 64, CUSTOMARY, {"says_none": 0.3}),
        ("G-6 random shapes", list(every), 64, RANDOM, {"says_none": 1}),
    )
    for goal, answered, budget, shapes, limits in goals:
        found = errors(answered, tighter(budget), shapes)
        for name, percent in limits.items():
            value = 100 * getattr(found, name)
            figures.row(f"{goal}, {name}", value, "%", goal=at_most(percent))


def _ranks(figures: Verdicts, results: Results) -> None:
    fleets = {"mixed sizes": results.mixed_fleet, "one size": results.equal_fleet}
    for name, fleet in fleets.items():
        found, goal = ranking(fleet, tighter(64), CUSTOMARY), f"G-7 {len(fleet)} clusters, {name}"
        figures.row(f"{goal}, worst Spearman", 100 * found.correlation, "%", goal=at_least(99.5))
        figures.row(f"{goal}, best pick", 100 * found.best_pick, "%", goal=at_least(99.5))
        figures.row(f"{goal}, misplaced", 100 * found.misplaced, "%", goal=at_most(1))
        worst = 100 * found.worst_misplaced
        figures.row(f"{goal}, misplaced at worst", worst, "%", goal=at_most(5))


def _bytes(figures: Verdicts, results: Results) -> None:
    for budget, limits in ((64, (1.2, 2.4, 3.0)), (256, (4.5, 8.0, 11.0))):
        place = BUDGETS.index(budget)
        counts = np.array([each.byte_count_b[place] for each in results.large]).max(axis=0) / KIB
        sent = ("minimums", "sums of three", "all sums")
        for name, count, limit in zip(sent, counts, limits, strict=True):
            figures.row(f"G-8 {budget} cells, {name}", float(count), "KiB", goal=at_most(limit))


def _times(figures: Verdicts, results: Results) -> None:
    largest = max(each.plan.nodes for each in results.clusters)
    builds = [each.build_seconds * 1000 for each in results.of_size(largest)]
    refreshes = [each.refresh_seconds * 1000 for each in results.of_size(largest)]
    for name, millis, limit in (
        (f"G-9 build, {largest} nodes, median", float(np.median(builds)), 100),
        (f"G-9 build, {largest} nodes, worst", max(builds), 300),
        (f"G-9 refresh, {largest} nodes, median", float(np.median(refreshes)), 5),
    ):
        figures.row(name, millis, "ms", goal=at_most(limit))


def _against_grades(figures: Verdicts, results: Results) -> None:
    ours = errors(results.large, tighter(64), CUSTOMARY)
    for rule in (ModelRule.SIMULATED, ModelRule.DOCUMENTED):
        theirs = errors(results.large, rival(rule.value), CUSTOMARY)
        name, above = f"G-14 against {rule.value}", f"theirs {theirs.over:.1%}"
        times = theirs.mean / ours.mean
        figures.row(f"{name}, mean error smaller", times, "times", goal=at_least(20))
        figures.row(f"{name}, above", 100 * ours.over, "%", goal=at_most(0), detail=above)
