"""Rehearsal of kube-scheduler: where its stock scores put pods on the nodes of a cluster, and the
packing of outstanding promises that follows where other packings fail.

Pure, whole-array; closed form, never a loop over pods. Must not promise anything, nor judge which
packing is better: ``careful`` and ``cluster_room`` do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from federation.capacity.assignments import Assignment, holdings_of
from federation.capacity.cells import (
    AMOUNTS,
    COUNT,
    KIND,
    ORIGIN,
    POOL,
    SIZE,
    FreeCells,
    View,
    with_view,
)
from federation.capacity.packing import Takes
from federation.capacity.pool_kinds import PoolKinds
from federation.model.arrays import BoolArray, FloatArray, IntArray, UintArray
from federation.model.pools.bounds import fit_in_k, per_replica
from federation.model.pools.cell_order import size_k
from federation.model.pools.matching import Match
from federation.model.pools.values import SCORED, Cells, Pools
from federation.model.reservations import Outstanding
from federation.model.resources import CPU, MEMORY

# Requests that the scores assume for pods without any, as kube-scheduler does.
_UNASKED: Final = {CPU: 100, MEMORY: 200 * 1024 * 1024}
# Kubernetes minor releases that changed the score of balance.
_DEVIATION_FROM: Final = 22
_CHANGE_FROM: Final = 36
# Larger than any sum of scores.
_SCORES: Final = 256
_NEVER: Final = -1
# Factor by which more pods of a node are scored, if too few were to show where all pods go.
_DEEPER: Final = 3
# Steps of a whole rehearsal, from its beginning, however much of it is cached. Each part takes the
# nodes of all runs with room, times the pods that one of them takes at most. 40 to 60 ms of CPU on
# a busy machine, for 60 to 4,096 unlike nodes.
MAX_STEPS: Final = 400_000
# Each part takes these steps as well, and one step for each CELLS_A_STEP cells.
PART_STEPS: Final = 2_000
CELLS_A_STEP: Final = 3
# Odd numbers without a pattern, for hashes.
_MIXERS: Final = tuple(
    np.uint64(number) for number in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
)


class Balance(Enum):
    """How NodeResourcesBalancedAllocation scores the shares of cpu and memory, by release."""

    DIFFERENCE = "to 1.21"
    DEVIATION = "1.22 to 1.35"
    CHANGE = "from 1.36 on: how much more alike they become"

    @classmethod
    def of(cls, kubernetes_minor: int) -> Balance:
        """Return the balance of a Kubernetes minor release."""
        if kubernetes_minor >= _CHANGE_FROM:
            return cls.CHANGE
        return cls.DEVIATION if kubernetes_minor >= _DEVIATION_FROM else cls.DIFFERENCE


class Placed(NamedTuple):
    """Placement of the pods of a part (axis d): ``pods_d`` on each of ``nodes_d`` nodes.

    The nodes are of the cells ``cell_d`` of the stage before, which has cells of all runs. The
    placement took ``steps``.
    """

    cell_d: npt.NDArray[np.intp]
    nodes_d: IntArray
    pods_d: IntArray
    steps: int


class Part(NamedTuple):
    """Equal pods: ``replicas`` of a request; ``suiting_p`` marks the pools that they may be in."""

    request: Mapping[str, int]
    suiting_p: BoolArray
    replicas: int


class RehearsedRoom(NamedTuple):
    """How many replicas of a shape surely fit after a rehearsal.

    None fit where the rehearsal took too many steps (``is_too_much``). ``least_replicas`` fit
    after the run with least room, None where nothing was rehearsed.
    """

    replicas: int
    is_too_much: bool = False
    least_replicas: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Rehearsal:
    """The nodes of a cluster in several runs (axis l), which differ in draws among equal scores.

    Cells of all runs side by side (axis k): ``count_k`` equal nodes of run ``run_k``, of the
    reported cell ``origin_k`` and the pool ``pool_k``. Each has ``free_rk`` of ``resources`` (axis
    r), and allocatable amounts ``allocatable_sk`` of those in SCORED (axis s). ``late_l`` pods
    found no node, in ``turns`` parts so far. ``balances`` has the balance score of each run. The
    rehearsal may take ``steps_left`` more steps.
    """

    resources: tuple[str, ...]
    run_k: npt.NDArray[np.intp]
    origin_k: npt.NDArray[np.intp]
    pool_k: npt.NDArray[np.int32]
    count_k: IntArray
    free_rk: IntArray
    allocatable_sk: IntArray
    late_l: IntArray
    balances: tuple[Balance, ...]
    turns: int = 0
    steps_left: int = MAX_STEPS

    @classmethod
    def of(cls, cells: Cells, allocatable_sk: IntArray, balances: tuple[Balance, ...]) -> Rehearsal:
        """Start with the reported minimums: nodes of a cell may have more."""
        runs, size = len(balances), len(cells)
        return cls(
            resources=cells.resources,
            run_k=np.arange(runs).repeat(size),
            origin_k=np.tile(np.arange(size), runs),
            pool_k=np.tile(cells.pool_k, runs),
            count_k=np.tile(cells.count_k, runs),
            free_rk=np.tile(cells.min_rk, runs),
            allocatable_sk=np.tile(allocatable_sk, runs),
            late_l=np.zeros(runs, dtype=np.int64),
            balances=balances,
        )

    def room_l(self, part: Part) -> IntArray:
        """Return how many more pods of the shape fit on all nodes, by run."""
        return self._sums_l(self._fits_k(part) * self.count_k)

    def with_pods(self, part: Part) -> Rehearsal | None:
        """Return the stage after the pods are placed; None where that takes too many steps.

        Pods that find no node are late.
        """
        placed = self.placing(part)
        return None if placed is None else self.after(part, placed)

    def placing(self, part: Part) -> Placed | None:
        """Return where the pods go; None where that takes too many steps.

        Pods go one by one where the score is highest. The rank of a node's n-th pod is the least
        score of its first n pods. Pods with the highest ranks are placed, and any of the last rank.
        """
        max_k = np.minimum(self._fits_k(part), part.replicas)
        replicas_l = np.minimum(self._sums_l(max_k * self.count_k), part.replicas)
        # In full clusters few cells have room (axis i).
        (cell_i,) = np.nonzero(max_k)
        run_i, max_i, count_i = self.run_k[cell_i], max_k[cell_i], self.count_k[cell_i]
        deepest = int(max_i.max(initial=0))
        # Usually a node takes few pods, and scores of further ones are not needed.
        depth = min(deepest, self._first_depth(replicas_l, max_k))
        steps = PART_STEPS + len(self.count_k) // CELLS_A_STEP
        while True:
            steps += depth * len(cell_i)
            if steps > self.steps_left:
                return None
            score_ji = self._scores(part, depth, cell_i)
            score_ji[np.arange(depth)[:, np.newaxis] >= max_i] = _NEVER
            np.minimum.accumulate(score_ji, axis=0, out=score_ji)
            last_l = _last_scores(score_ji, run_i, count_i, replicas_l)
            last_i = last_l[run_i]
            is_short_l = self._sums_l(np.minimum(max_k, depth) * self.count_k) < replicas_l
            may_take_i = is_short_l[run_i] | (score_ji[-1:] >= last_i)
            if not ((max_i > depth) & may_take_i).any():
                break
            depth = min(deepest, depth * _DEEPER)
        taken_k = np.zeros_like(max_k)
        taken_k[cell_i] = (score_ji > last_i).sum(axis=0)
        rest_l = replicas_l - self._sums_l(taken_k * self.count_k)
        lucky_j, lucky_i = np.nonzero(score_ji == last_i)
        lucky_k = cell_i[lucky_i]
        share_i = self._lots(lucky_j, lucky_k, rest_l)
        whole_i = share_i == self.count_k[lucky_k]
        np.add.at(taken_k, lucky_k[whole_i], 1)
        (divided_i,) = np.nonzero((share_i > 0) & ~whole_i)
        (taking_k,) = np.nonzero(taken_k)
        divided_k, nodes_d = lucky_k[divided_i], share_i[divided_i]
        rest_k = self.count_k.copy()
        rest_k[divided_k] -= nodes_d
        return Placed(
            cell_d=np.concatenate([taking_k, divided_k]),
            nodes_d=np.concatenate([rest_k[taking_k], nodes_d]),
            pods_d=np.concatenate([taken_k[taking_k], taken_k[divided_k] + 1]),
            steps=steps,
        )

    def after(self, part: Part, placed: Placed) -> Rehearsal:
        """Return the stage after the pods are placed."""
        count_k = self.count_k.copy()
        np.subtract.at(count_k, placed.cell_d, placed.nodes_d)
        (nonempty_k,) = np.nonzero(count_k)
        from_k = np.concatenate([nonempty_k, placed.cell_d])
        pods_k = np.concatenate([np.zeros_like(nonempty_k), placed.pods_d])
        amounts = per_replica(part.request)
        amount_r1 = np.array([[amounts.get(name, 0)] for name in self.resources], dtype=np.int64)
        placed_l = np.zeros_like(self.late_l)
        np.add.at(placed_l, self.run_k[placed.cell_d], placed.nodes_d * placed.pods_d)
        return Rehearsal(
            resources=self.resources,
            run_k=self.run_k[from_k],
            origin_k=self.origin_k[from_k],
            pool_k=self.pool_k[from_k],
            count_k=np.concatenate([count_k[nonempty_k], placed.nodes_d]),
            free_rk=self.free_rk[:, from_k] - amount_r1 * pods_k,
            allocatable_sk=self.allocatable_sk[:, from_k],
            late_l=self.late_l + part.replicas - placed_l,
            balances=self.balances,
            turns=self.turns + 1,
            steps_left=self.steps_left - placed.steps,
        )

    def _first_depth(self, replicas_l: IntArray, max_k: IntArray) -> int:
        """Return the number of a node's pods that are scored at first."""
        nodes_l = np.maximum(self._sums_l((max_k > 0) * self.count_k), 1)
        return int((replicas_l // nodes_l).max(initial=0)) + 2

    def _sums_l(self, number_k: IntArray) -> IntArray:
        sums_l = np.zeros(len(self.late_l), dtype=np.int64)
        np.add.at(sums_l, self.run_k, number_k)
        return sums_l

    def _fits_k(self, part: Part) -> IntArray:
        """Return how many more pods of the shape each node takes."""
        fits_k = fit_in_k(self.resources, self.free_rk, per_replica(part.request))
        suits_k: IntArray = fits_k * part.suiting_p[self.pool_k]
        return suits_k

    def _lots(
        self, lucky_j: npt.NDArray[np.intp], lucky_k: npt.NDArray[np.intp], rest_l: IntArray
    ) -> IntArray:
        """Draw which pods of equal score (axis i) find a node, by hash.

        Return how many nodes of the cell ``lucky_k`` take a pod that is their ``lucky_j``-th.
        """
        run_i, count_i = self.run_k[lucky_k], self.count_k[lucky_k]
        order_i = np.lexsort((_hashed(lucky_j, lucky_k, self.turns), run_i))
        end_i = np.cumsum(count_i[order_i])
        edge_l = np.concatenate([[0], end_i])[
            np.searchsorted(run_i[order_i], np.arange(len(rest_l)))
        ]
        left_i = (rest_l + edge_l)[run_i[order_i]] - (end_i - count_i[order_i])
        share_i = np.zeros_like(count_i)
        share_i[order_i] = np.clip(left_i, 0, count_i[order_i])
        return share_i

    def _scores(self, part: Part, depth: int, cell_i: npt.NDArray[np.intp]) -> IntArray:
        """Return the scores of nodes (axis i) for their first pod, their second, … (axis j)."""
        total_si = np.maximum(self.allocatable_sk[:, cell_i], 1).astype(np.float64)
        rows = [self.resources.index(name) for name in SCORED]
        # Reported amounts need not be consistent.
        used_si = np.clip(total_si - self.free_rk[rows][:, cell_i], 0.0, total_si)
        pods_j1 = np.arange(depth + 1, dtype=np.float64)[:, np.newaxis]
        fit_ji = np.zeros((depth, len(cell_i)))
        shares: list[FloatArray] = []
        for name, total_i, used_i in zip(SCORED, total_si, used_si, strict=True):
            requested = part.request.get(name, 0)
            scored = requested or _UNASKED[name]
            left_ji = np.maximum(total_i - used_i - pods_j1[1:] * scored, 0.0)
            fit_ji += np.floor(left_ji * 100 / total_i)
            shares.append(np.minimum((used_i + pods_j1 * requested) / total_i, 1.0))
        score_ji = np.floor(fit_ji / 2)
        for balance in set(self.balances):
            is_run_l = np.array([run_balance is balance for run_balance in self.balances])
            score_ji += _balance_scores(balance, *shares) * is_run_l[self.run_k[cell_i]]
        return score_ji.astype(np.int64)


def _last_scores(
    score_ji: IntArray, run_i: npt.NDArray[np.intp], count_i: IntArray, replicas_l: IntArray
) -> IntArray:
    """Return the score of the last pod that finds a node, by run."""
    counts = np.bincount(
        # The first number of each run counts nodes that take no pod.
        (score_ji - _NEVER + run_i * (_SCORES - _NEVER)).ravel(),
        weights=np.broadcast_to(count_i, score_ji.shape).ravel(),
        minlength=len(replicas_l) * (_SCORES - _NEVER),
    ).reshape(len(replicas_l), _SCORES - _NEVER)
    enough = np.cumsum(counts[:, :0:-1], axis=1) >= replicas_l[:, np.newaxis]
    last_l: IntArray = _SCORES - 1 - enough.argmax(axis=1)
    return last_l


def _balance_scores(balance: Balance, cpu_jk: FloatArray, memory_jk: FloatArray) -> FloatArray:
    """Return scores after each pod, from the shares taken before any pod and after each."""
    apart_jk = np.abs(cpu_jk - memory_jk)
    if balance is Balance.DIFFERENCE:
        is_full_jk = np.maximum(cpu_jk, memory_jk)[1:] >= 1.0
        return np.where(is_full_jk, 0.0, np.floor((1 - apart_jk[1:]) * 100))
    even_jk: FloatArray = np.floor((1 - apart_jk / 2) * 100)
    if balance is Balance.DEVIATION:
        return even_jk[1:]
    return 50 + np.trunc((50 + even_jk[1:] - even_jk[:-1]) / 2)


def _hashed(lucky_j: npt.NDArray[np.intp], lucky_k: npt.NDArray[np.intp], turns: int) -> UintArray:
    """Return pseudo-random numbers that are the same in each process."""
    first, second, third = _MIXERS
    seed = np.uint64((turns + 1) * int(third) % 2**64)
    mixed_i: UintArray = lucky_k.astype(np.uint64) * first + lucky_j.astype(np.uint64) * second
    mixed_i = (mixed_i + seed) * third
    mixed_i ^= mixed_i >> np.uint64(29)
    mixed_i *= second
    mixed_i ^= mixed_i >> np.uint64(32)
    return mixed_i


# Runs of a rehearsal, which differ in the draw among nodes of equal score.
RUNS: Final = 6


def rehearsal_of(pools: Pools) -> Rehearsal | None:
    """Start a rehearsal on the reported nodes; None where no allocatable amounts are reported.

    Where no Kubernetes release is reported, half of the runs score as the newest releases.
    """
    cells = pools.cells
    if cells.allocatable_rk is None:
        return None
    balances = (Balance.CHANGE, Balance.DEVIATION) * (RUNS // 2)
    if pools.kubernetes_minor:
        balances = (Balance.of(pools.kubernetes_minor),) * RUNS
    return Rehearsal.of(cells, cells.allocatable_rk, balances)


def part_of(outstanding: Outstanding, kind_p: IntArray, kinds: PoolKinds) -> Part:
    """Return the pods of a promise, and the pools of the cluster that they may be in.

    As in other packings, a promise without proof may be in all pools that do not exclude it.
    """
    requirements = outstanding.requirements
    least = Match.YES if outstanding.certificate.is_packed else Match.UNKNOWN
    suiting = kinds.suiting(requirements.node_claim, least)
    suiting_p = np.ones(kind_p.shape, dtype=np.bool_) if suiting is None else suiting[kind_p]
    return Part(requirements.request, suiting_p, outstanding.to_pack)


class _Step(NamedTuple):
    """The rehearsal of one promise after ``earlier`` ones: where its pods went in one run."""

    earlier: _Step | None
    promise: Outstanding
    replicas: int
    takes: Takes


class _Trail(NamedTuple):
    """The steps of one run, linked from the ``newest`` back."""

    run: int = 0
    newest: _Step | None = None


class RehearsedPromises(NamedTuple):
    """The ``stage`` of a rehearsal after these promises.

    None where they take too many steps, or where no allocatable amounts are reported.
    """

    promises: tuple[Outstanding, ...] = ()
    stage: Rehearsal | None = None
    trail: _Trail = _Trail()

    def begins(self, promises: tuple[Outstanding, ...]) -> bool:
        """Tell whether all rehearsed promises are the first of these."""
        first = len(self.promises)
        return first > 0 and promises[:first] == self.promises

    def going_on(
        self,
        pools: Pools,
        kind_p: IntArray,
        kinds: PoolKinds,
        promises: tuple[Outstanding, ...],
        run: int | None = None,
    ) -> RehearsedPromises:
        """Rehearse these promises; start again where they do not begin with the rehearsed ones.

        ``run`` is the run whose steps are recorded, None for any. The result does not depend on
        earlier rehearsals.
        """
        first, stage, trail = len(self.promises), self.stage, self.trail
        is_other_run = run is not None and run != trail.run
        if is_other_run or not self.begins(promises):
            first, stage, trail = 0, rehearsal_of(pools), _Trail(run or 0)
        for promise in promises[first:]:
            if stage is None:
                break
            part = part_of(promise, kind_p, kinds)
            placed = stage.placing(part)
            if placed is None:
                stage, trail = None, _Trail()
                break
            takes = _takes(stage, placed, trail.run, kind_p)
            replicas = int((takes.full_j * takes.unit_j).sum())
            trail = trail._replace(newest=_Step(trail.newest, promise, replicas, takes))
            stage = stage.after(part, placed)
        return RehearsedPromises(promises, stage, trail)

    def packed(self, free: FreeCells, kind_p: IntArray) -> tuple[FreeCells, list[Assignment]]:
        """Return the free cells with best fit's view as in the recorded run, and the assignments.

        The other view stays as it is in ``free``.
        """
        if self.stage is None:
            raise ValueError("nothing was rehearsed")
        (run_k,) = np.nonzero(self.stage.run_k == self.trail.run)
        columns_xk = _columns(self.stage, run_k, kind_p)
        columns_xk[SIZE] = size_k(columns_xk[AMOUNTS:], free.weight_rc)
        assignments, step = list[Assignment](), self.trail.newest
        while step is not None:
            resources = step.takes.resources
            assignments += holdings_of([step.promise], step.replicas, step.takes, resources)
            step = step.earlier
        return with_view(free, View.FILLED, columns_xk), assignments[::-1]


def _takes(stage: Rehearsal, placed: Placed, run: int, kind_p: IntArray) -> Takes:
    """Return the placement in one run."""
    (run_d,) = np.nonzero(stage.run_k[placed.cell_d] == run)
    size = len(run_d)
    return Takes(
        resources=stage.resources,
        first_s=np.array([0, size, size]),
        column_xj=_columns(stage, placed.cell_d[run_d], kind_p),
        unit_j=placed.pods_d[run_d],
        full_j=placed.nodes_d[run_d],
        left_j=np.zeros(size, dtype=np.int64),
    )


def _columns(stage: Rehearsal, cell_j: IntArray, kind_p: IntArray) -> IntArray:
    """Return some cells of the stage as columns of a table, sizes not set."""
    columns_xj = np.zeros((AMOUNTS + len(stage.resources), len(cell_j)), dtype=np.int64)
    columns_xj[COUNT] = stage.count_k[cell_j]
    columns_xj[POOL] = stage.pool_k[cell_j]
    columns_xj[ORIGIN] = stage.origin_k[cell_j]
    columns_xj[KIND] = kind_p[columns_xj[POOL]]
    columns_xj[AMOUNTS:] = stage.free_rk[:, cell_j]
    return columns_xj
