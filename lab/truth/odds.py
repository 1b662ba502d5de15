"""How likely a pod stays pending where careful refused, and what an oracle promises in its place.

In memory, on virtual time. The oracle knows everything but the luck of kube-scheduler among equal
nodes: its very rules, every node, and when which pod comes. So it shows what any rule that leaves
as few pending has to refuse.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from lab.truth.plans import Answered, Found, Plan, asked_of, fitted, pods_of
from lab.truth.streams import CPU, MEMORY, ROWS, Int64Array, Node, Wanted, free_rn
from lab.truth.virtual import VirtualMember, VirtualStudy


class Moment(NamedTuple):
    """A member's nodes, what is free on each (ROWS x nodes), and the promised pods that are on no
    node yet, in the order in which they come.
    """

    nodes: Sequence[Node]
    free_rn: Int64Array
    coming: tuple[tuple[Wanted, int], ...]

    def with_more(self, wanted: Wanted, replicas: int) -> Moment:
        return self._replace(coming=(*self.coming, (wanted, replicas)))


def moment_of(member: VirtualMember, answered: Sequence[Answered]) -> Moment:
    """As its next report would show it."""
    rows = {node.name: row for row, node in enumerate(member.nodes)}
    free = free_rn(member.nodes)
    coming: list[tuple[Wanted, int]] = []
    for answer in answered:
        names = pods_of(answer).get(member.name, [])
        seen = [member.bound[name] for name in names if name in member.bound]
        for node in seen:
            free[:, rows[node]] -= asked_of(answer.wanted)
        if len(seen) < len(names):
            coming.append((answer.wanted, len(names) - len(seen)))
    return Moment(nodes=member.nodes, free_rn=free, coming=tuple(coming))


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """``odds``: in what share of runs a pod had stayed pending had it been promised, divided as
    well as may be. ``had_fitted``: in the one run that was studied there was room in the end.
    """

    wanted: Wanted
    odds: float
    had_fitted: bool


class Oracle:
    """Promises what in no more than an ``allowed`` share of runs leaves a pod pending."""

    def __init__(self, runs: int, allowed: float) -> None:
        self._runs = runs
        self._allowed = allowed
        self._ahead: dict[str, ManyRuns] = {}
        self._reports = 0

    def reported(self, members: Mapping[str, VirtualMember], answered: Sequence[Answered]) -> None:
        self._reports += 1
        self._ahead = {
            name: runs_after(moment_of(member, answered), self._runs, self._reports)
            for name, member in members.items()
        }

    def decide(self, wanted: Wanted, *, looks_again: bool) -> Mapping[str, int] | None:
        del looks_again
        odds, division = best_division(wanted, list(self._ahead.values()))
        if odds > self._allowed or sum(division) < wanted.replicas:
            return None
        shares = dict(zip(self._ahead, division, strict=True))
        for name, replicas in shares.items():
            self._ahead[name].place(wanted, replicas)
        return {name: replicas for name, replicas in shares.items() if replicas}


def runs_after(moment: Moment, runs: int, seed: int) -> ManyRuns:
    """Once all that was coming has come."""
    ahead = ManyRuns(moment.nodes, moment.free_rn, runs, seed)
    for wanted, replicas in moment.coming:
        ahead.place(wanted, replicas)
    return ahead


def best_division(wanted: Wanted, ahead: Sequence[ManyRuns]) -> tuple[float, list[int]]:
    """Replicas by member so that hardly any pod stays pending, and the odds that one does."""
    # Of all members so far, so many replicas in all: how sure they are, and the last one's part.
    sure_k = np.zeros(wanted.replicas + 1)
    sure_k[0] = 1.0
    parts: list[list[int]] = []
    for runs in ahead:
        room_l = runs.room_l(wanted)
        has_j = np.array([(room_l >= replicas).mean() for replicas in range(len(sure_k))])
        by_part = [sure_k[: k + 1][::-1] * has_j[: k + 1] for k in range(len(sure_k))]
        parts.append([int(sure_j.argmax()) for sure_j in by_part])
        sure_k = np.array([sure_j.max() for sure_j in by_part])
    division, left = list[int](), wanted.replicas
    for part_k in reversed(parts):
        division.insert(0, part_k[left])
        left -= division[0]
    return 1.0 - float(sure_k[-1]), division


def refusals_of(plan: Plan, runs: int) -> tuple[Found, list[Refusal]]:
    """What careful refuses in a study, and the odds of each."""
    asked: list[tuple[int, Wanted, float]] = []

    def look(wanted: Wanted) -> None:
        ahead = [
            runs_after(moment_of(member, study.answered), runs, len(study.answered))
            for member in study.members.values()
        ]
        asked.append((len(study.answered), wanted, best_division(wanted, ahead)[0]))

    study = VirtualStudy(plan, on_refused=look)
    found = study.run()
    nodes = {name: member.nodes for name, member in study.members.items()}
    bound = {name: member.bound for name, member in study.members.items()}
    return found, [
        Refusal(
            wanted=wanted,
            odds=odds,
            had_fitted=bool(fitted([*_promised(study.answered[:place]), answer], nodes, bound)),
        )
        for place, wanted, odds in asked
        for answer in [study.answered[place]]
    ]


def found_by_oracle(plan: Plan, runs: int, allowed: float) -> Found:
    """The same stream, where the oracle decides."""
    return VirtualStudy(plan, Oracle(runs, allowed)).run()


def _promised(answered: Sequence[Answered]) -> list[Answered]:
    return [each for each in answered if each.shares]
