"""How likely a pod stays pending where careful refused, and what an oracle promises in its place.

In memory, on virtual time. The oracle knows everything but the luck of kube-scheduler among equal
nodes: its very rules, every node, and when which pod comes. So it shows what any rule that leaves
as few pending has to refuse.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from lab.truth.judging import Answered, Found, fitted
from lab.truth.many_runs import ManyRuns
from lab.truth.moments import Moment, moment_of
from lab.truth.plans import Plan
from lab.truth.streams import Wanted
from lab.truth.virtual import VirtualMember, VirtualStudy


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
