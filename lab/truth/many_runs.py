"""The simulated kube-scheduler many times at once: nodes of many runs, which differ in luck alone.

Nobody's pods choose their nodes here, but for taints. Held to the simulated kube-scheduler by a
test. Must not know what is promised.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from lab.truth.judging import asked_of
from lab.truth.members import CPU, MEMORY, ROWS, Int64Array, Node
from lab.truth.streams import Wanted

FloatArray = npt.NDArray[np.float64]
NEVER = -1.0


class ManyRuns:
    """A member's nodes in so many runs (axis l), each with as much free as is said (ROWS x nodes).

    ``late_l`` is how many pods found no node so far.
    """

    def __init__(self, nodes: Sequence[Node], free_rn: Int64Array, runs: int, seed: int) -> None:
        self._nodes = nodes
        self._free_rln = np.repeat(free_rn[:, np.newaxis], runs, axis=1)
        self._total_rn = np.array([[node.allocatable[row] for node in nodes] for row in ROWS])
        self._random = np.random.default_rng(seed)
        self.late_l = np.zeros(runs, dtype=np.int64)

    def place(self, wanted: Wanted, replicas: int) -> None:
        """One pod after the other goes where the score is highest; of equals, to any."""
        runs, size = self._free_rln.shape[1:]
        takes_n = np.array([wanted.takes(node) for node in self._nodes])
        asked_r = asked_of(wanted)
        every_l = np.arange(runs)
        score_ln = self._scores(
            asked_r, takes_n, np.repeat(every_l, size), np.tile(np.arange(size), runs)
        ).reshape(runs, size)
        for _ in range(replicas):
            lots_ln = self._random.random((runs, size), dtype=np.float32)
            node_l = (score_ln + lots_ln).argmax(axis=1)
            is_placed_l = score_ln[every_l, node_l] > NEVER
            self.late_l += ~is_placed_l
            self._free_rln[:, every_l, node_l] -= asked_r[:, np.newaxis] * is_placed_l
            score_ln[every_l, node_l] = self._scores(asked_r, takes_n, every_l, node_l)

    def best(self, wanted: Wanted) -> list[list[int]]:
        """The nodes that its next pod may go to, by run."""
        runs, size = self._free_rln.shape[1:]
        takes_n = np.array([wanted.takes(node) for node in self._nodes])
        every_l, every_n = np.repeat(np.arange(runs), size), np.tile(np.arange(size), runs)
        score_ln = self._scores(asked_of(wanted), takes_n, every_l, every_n).reshape(runs, size)
        most_l = score_ln.max(axis=1)
        is_best_ln = (score_ln == most_l[:, np.newaxis]) & (score_ln > NEVER)
        return [np.flatnonzero(is_best_n).tolist() for is_best_n in is_best_ln]

    def put(self, wanted: Wanted, node: int) -> None:
        """A pod of it goes to this node in every run."""
        self._free_rln[:, :, node] -= asked_of(wanted)[:, np.newaxis]

    def room_l(self, wanted: Wanted) -> Int64Array:
        """How many more of its pods all nodes take, by run."""
        takes_n = np.array([wanted.takes(node) for node in self._nodes])
        asked_r11 = asked_of(wanted)[:, np.newaxis, np.newaxis]
        fits_ln = (np.maximum(self._free_rln, 0) // asked_r11).min(axis=0)
        room_l: Int64Array = (fits_ln * takes_n).sum(axis=1)
        return room_l

    def _scores(
        self,
        asked_r: Int64Array,
        takes_n: npt.NDArray[np.bool_],
        run_i: npt.NDArray[np.intp],
        node_i: npt.NDArray[np.intp],
    ) -> npt.NDArray[np.float32]:
        """Of some nodes of some runs, with one pod more; NEVER where that finds no room."""
        free_ri, total_ri = self._free_rln[:, run_i, node_i], self._total_rn[:, node_i]
        left_ri = free_ri - asked_r[:, np.newaxis]
        fits_i = takes_n[node_i] & (left_ri >= 0).all(axis=0)
        cpu, memory = ROWS.index(CPU), ROWS.index(MEMORY)
        points_ri = np.maximum(left_ri, 0) * 100 // total_ri
        fit_i = (points_ri[cpu] + points_ri[memory]) // 2
        change_i = _evenness(left_ri, total_ri) - _evenness(free_ri, total_ri)
        balance_i = 50 + np.trunc((50 + change_i) / 2)
        score_i: npt.NDArray[np.float32] = np.where(fits_i, fit_i + balance_i, NEVER).astype(
            np.float32
        )
        return score_i


def _evenness(free_ri: Int64Array, total_ri: Int64Array) -> FloatArray:
    cpu, memory = ROWS.index(CPU), ROWS.index(MEMORY)
    shares = [
        np.minimum((total_ri[row] - free_ri[row]) / np.maximum(total_ri[row], 1), 1.0)
        for row in (cpu, memory)
    ]
    even_i: FloatArray = np.trunc((1 - np.abs(shares[0] - shares[1]) / 2) * 100)
    return even_i
