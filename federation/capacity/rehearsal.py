"""Where kube-scheduler puts pods: its stock scores over the nodes of a cluster, shape after shape.

Pure, whole-array; closed form, never a loop over pods. Must not promise anything: ``second_looks``
does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from federation.model.arrays import BoolArray, FloatArray, IntArray, UintArray
from federation.model.pools.bounds import fit_in_k, per_replica
from federation.model.pools.values import SCORED, Cells
from federation.model.resources import CPU, MEMORY

# What pods that ask for none are scored as if they asked for.
_UNASKED: Final = {CPU: 100, MEMORY: 200 * 1024 * 1024}
# The releases from which on balance is scored in another way.
_DEVIATION_FROM: Final = 22
_CHANGE_FROM: Final = 36
# More than any sum of scores.
_SCORES: Final = 256
_NEVER: Final = -1
# How many more pods of a node are looked at where a few do not show where all pods go.
_DEEPER: Final = 3
# Nodes of all runs that take a pod, times the pods that one of them takes at most, summed over all
# parts: the work of a rehearsal from its beginning, however much of it is remembered. 40 to 60 ms
# of CPU on a busy machine, from 60 to 4,096 unlike nodes.
MAX_STEPS: Final = 400_000
# What a part costs beside, in such steps; and so many cells of nodes, whether they take any or not,
# cost one more.
PART_STEPS: Final = 2_000
CELLS_A_STEP: Final = 3
# Odd numbers without a pattern, for hashes.
_MIXERS: Final = tuple(
    np.uint64(each) for each in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
)


class Balance(Enum):
    """What NodeResourcesBalancedAllocation makes of the shares of cpu and memory, by release."""

    DIFFERENCE = "to 1.21"
    DEVIATION = "1.22 to 1.35"
    CHANGE = "from 1.36 on: how much more alike they become"

    @classmethod
    def of(cls, kubernetes_minor: int) -> Balance:
        """By the second number of a release."""
        if kubernetes_minor >= _CHANGE_FROM:
            return cls.CHANGE
        return cls.DEVIATION if kubernetes_minor >= _DEVIATION_FROM else cls.DIFFERENCE


class Placed(NamedTuple):
    """Where the pods of a part went: ``pods_d`` on each of ``nodes_d`` nodes of the cells
    ``cell_d`` that the stage had before, which are cells of all runs. It took so many ``steps``.
    """

    cell_d: npt.NDArray[np.intp]
    nodes_d: IntArray
    pods_d: IntArray
    steps: int


class Part(NamedTuple):
    """So many pods of a shape; ``suiting_p`` are the cluster's pools that they may be in."""

    request: Mapping[str, int]
    suiting_p: BoolArray
    replicas: int


class RehearsedRoom(NamedTuple):
    """How many replicas of one shape surely fit after a rehearsal; none where it gave up, as
    ``is_too_much`` is on its way. Of its runs the unluckiest left room for ``least_replicas``, None
    where nothing was rehearsed.
    """

    replicas: int
    is_too_much: bool = False
    least_replicas: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Rehearsal:
    """The nodes of a cluster in several runs (axis l), which differ in luck among equal nodes.

    Cells of all runs side by side (axis k): ``count_k`` nodes alike, of the run ``run_k`` and the
    cell ``origin_k`` of the report, in the pool at ``pool_k``. ``free_rk`` is what each has of
    ``resources``, ``allocatable_sk`` all it has of what is SCORED. ``late_l`` pods found no node so
    far, in as many ``turns`` as shapes came. Nodes are scored by the run's of the ``balances``.
    ``steps_left`` are left of those that a rehearsal may take.
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
        """As reported: nodes of a cell may have more than that."""
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
        """How many more pods of the shape all nodes take, in each run."""
        return self._sums_l(self._fits_k(part) * self.count_k)

    def with_pods(self, part: Part) -> Rehearsal | None:
        """Once the pods have nodes, or as many of them as find any; None where that takes more
        steps than are left.
        """
        found = self.placing(part)
        return None if found is None else self.after(part, found)

    def placing(self, part: Part) -> Placed | None:
        """Where the pods go; None where that takes more steps than are left.

        One after the other they go where the score is highest. A node's pods come in the order of
        the least score on the way to each: so those with the highest such scores of all are taken,
        and of those with the last score any.
        """
        most_k = np.minimum(self._fits_k(part), part.replicas)
        replicas_l = np.minimum(self._sums_l(most_k * self.count_k), part.replicas)
        # In full clusters few cells take any (axis i).
        (cell_i,) = np.nonzero(most_k)
        run_i, most_i, count_i = self.run_k[cell_i], most_k[cell_i], self.count_k[cell_i]
        deepest = int(most_i.max(initial=0))
        # Nodes mostly take a few pods each; what a node would take after a pod that nobody needs on
        # it is not needed either.
        depth = min(deepest, self._first_depth(replicas_l, most_k))
        steps = PART_STEPS + len(self.count_k) // CELLS_A_STEP
        while True:
            steps += depth * len(cell_i)
            if steps > self.steps_left:
                return None
            score_ji = self._scores(part, depth, cell_i)
            score_ji[np.arange(depth)[:, np.newaxis] >= most_i] = _NEVER
            np.minimum.accumulate(score_ji, axis=0, out=score_ji)
            last_l = _last_scores(score_ji, run_i, count_i, replicas_l)
            last_i = last_l[run_i]
            is_short_l = self._sums_l(np.minimum(most_k, depth) * self.count_k) < replicas_l
            may_take_i = is_short_l[run_i] | (score_ji[-1:] >= last_i)
            if not ((most_i > depth) & may_take_i).any():
                break
            depth = min(deepest, depth * _DEEPER)
        taken_k = np.zeros_like(most_k)
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

    def after(self, part: Part, found: Placed) -> Rehearsal:
        """What is left once the pods are there."""
        count_k = self.count_k.copy()
        np.subtract.at(count_k, found.cell_d, found.nodes_d)
        (there_k,) = np.nonzero(count_k)
        from_k = np.concatenate([there_k, found.cell_d])
        pods_k = np.concatenate([np.zeros_like(there_k), found.pods_d])
        amounts = per_replica(part.request)
        amount_r1 = np.array([[amounts.get(name, 0)] for name in self.resources], dtype=np.int64)
        placed_l = np.zeros_like(self.late_l)
        np.add.at(placed_l, self.run_k[found.cell_d], found.nodes_d * found.pods_d)
        return Rehearsal(
            resources=self.resources,
            run_k=self.run_k[from_k],
            origin_k=self.origin_k[from_k],
            pool_k=self.pool_k[from_k],
            count_k=np.concatenate([count_k[there_k], found.nodes_d]),
            free_rk=self.free_rk[:, from_k] - amount_r1 * pods_k,
            allocatable_sk=self.allocatable_sk[:, from_k],
            late_l=self.late_l + part.replicas - placed_l,
            balances=self.balances,
            turns=self.turns + 1,
            steps_left=self.steps_left - found.steps,
        )

    def _first_depth(self, replicas_l: IntArray, most_k: IntArray) -> int:
        """The pods of a node that are looked at first."""
        nodes_l = np.maximum(self._sums_l((most_k > 0) * self.count_k), 1)
        return int((replicas_l // nodes_l).max(initial=0)) + 2

    def _sums_l(self, number_k: IntArray) -> IntArray:
        sums_l = np.zeros(len(self.late_l), dtype=np.int64)
        np.add.at(sums_l, self.run_k, number_k)
        return sums_l

    def _fits_k(self, part: Part) -> IntArray:
        """How many more pods of the shape each node takes."""
        found_k = fit_in_k(self.resources, self.free_rk, per_replica(part.request))
        suits_k: IntArray = found_k * part.suiting_p[self.pool_k]
        return suits_k

    def _lots(
        self, lucky_j: npt.NDArray[np.intp], lucky_k: npt.NDArray[np.intp], rest_l: IntArray
    ) -> IntArray:
        """Which pods of equal score (axis i) find a node: how many nodes of the cell ``lucky_k``
        take the one that would be their ``lucky_j``-th. Lots are drawn by hash.
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
        """What the nodes of some cells (axis i) score for their first pod of the shape, their
        second, and so on (axis j).
        """
        total_si = np.maximum(self.allocatable_sk[:, cell_i], 1).astype(np.float64)
        rows = [self.resources.index(name) for name in SCORED]
        # What agents report need not go together.
        used_si = np.clip(total_si - self.free_rk[rows][:, cell_i], 0.0, total_si)
        pods_j1 = np.arange(depth + 1, dtype=np.float64)[:, np.newaxis]
        fit_ji = np.zeros((depth, len(cell_i)))
        shares: list[FloatArray] = []
        for name, total_i, used_i in zip(SCORED, total_si, used_si, strict=True):
            asked = part.request.get(name, 0)
            scored = asked or _UNASKED[name]
            left_ji = np.maximum(total_i - used_i - pods_j1[1:] * scored, 0.0)
            fit_ji += np.floor(left_ji * 100 / total_i)
            shares.append(np.minimum((used_i + pods_j1 * asked) / total_i, 1.0))
        score_ji = np.floor(fit_ji / 2)
        for balance in set(self.balances):
            is_so_l = np.array([each is balance for each in self.balances])
            score_ji += _balance_scores(balance, *shares) * is_so_l[self.run_k[cell_i]]
        return score_ji.astype(np.int64)


def _last_scores(
    score_ji: IntArray, run_i: npt.NDArray[np.intp], count_i: IntArray, replicas_l: IntArray
) -> IntArray:
    """The score of the last pod that finds a node, by run."""
    counts = np.bincount(
        # The first of a run's numbers counts what takes no pod.
        (score_ji - _NEVER + run_i * (_SCORES - _NEVER)).ravel(),
        weights=np.broadcast_to(count_i, score_ji.shape).ravel(),
        minlength=len(replicas_l) * (_SCORES - _NEVER),
    ).reshape(len(replicas_l), _SCORES - _NEVER)
    enough = np.cumsum(counts[:, :0:-1], axis=1) >= replicas_l[:, np.newaxis]
    last_l: IntArray = _SCORES - 1 - enough.argmax(axis=1)
    return last_l


def _balance_scores(balance: Balance, cpu_jk: FloatArray, memory_jk: FloatArray) -> FloatArray:
    """Of nodes with such shares taken before any pod and after each."""
    apart_jk = np.abs(cpu_jk - memory_jk)
    if balance is Balance.DIFFERENCE:
        is_full_jk = np.maximum(cpu_jk, memory_jk)[1:] >= 1.0
        return np.where(is_full_jk, 0.0, np.floor((1 - apart_jk[1:]) * 100))
    even_jk: FloatArray = np.floor((1 - apart_jk / 2) * 100)
    if balance is Balance.DEVIATION:
        return even_jk[1:]
    return 50 + np.trunc((50 + even_jk[1:] - even_jk[:-1]) / 2)


def _hashed(lucky_j: npt.NDArray[np.intp], lucky_k: npt.NDArray[np.intp], turns: int) -> UintArray:
    """Numbers that look drawn, and are the same each time."""
    first, second, third = _MIXERS
    seed = np.uint64((turns + 1) * int(third) % 2**64)
    mixed_i: UintArray = lucky_k.astype(np.uint64) * first + lucky_j.astype(np.uint64) * second
    mixed_i = (mixed_i + seed) * third
    mixed_i ^= mixed_i >> np.uint64(29)
    mixed_i *= second
    mixed_i ^= mixed_i >> np.uint64(32)
    return mixed_i
