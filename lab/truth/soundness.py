"""What an adversary leaves of strict promises, and what a rule could promise at most beside it.

In memory, on virtual time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from federation.model.cluster import Cluster
from federation.scheduler.fleet import Fleet
from lab.truth.adversary import room_against
from lab.truth.deciding import shares_of
from lab.truth.judging import Answered, Found
from lab.truth.moments import Moment, moment_of
from lab.truth.plans import Plan
from lab.truth.streams import Wanted
from lab.truth.virtual import VirtualMember, VirtualStudy


@dataclass(frozen=True, slots=True, kw_only=True)
class Challenged:
    """What strict promised in a study, and of how many refused bindings the adversary left a pod
    without a node, however they were divided.
    """

    found: Found
    broken: int


class Unbroken:
    """Promises whatever the adversary cannot break: no less than any sound rule may promise of the
    same workload at the same time.
    """

    def __init__(self, names: Sequence[str], seed: int) -> None:
        self._fleet = Fleet.of(Cluster(name=name) for name in names)
        self._random = np.random.default_rng(seed)
        self._moments: dict[str, Moment] = {}

    def reported(self, members: Mapping[str, VirtualMember], answered: Sequence[Answered]) -> None:
        self._moments = {name: moment_of(member, answered) for name, member in members.items()}

    def decide(self, wanted: Wanted, *, looks_again: bool) -> Mapping[str, int] | None:
        del looks_again
        room = [
            room_against(wanted, self._moments[name], self._random) for name in self._fleet.names
        ]
        shares = shares_of(wanted.binding(None), self._fleet, room)
        for name, replicas in shares.items():
            self._moments[name] = self._moments[name].with_more(wanted, replicas)
        return shares or None


def challenged(plan: Plan) -> Challenged:
    """Strict's own refusals, put before the adversary."""
    random = np.random.default_rng(plan.seed)
    broken: list[Wanted] = []

    def look(wanted: Wanted) -> None:
        room = 0
        for member in study.members.values():
            room += room_against(wanted, moment_of(member, study.answered), random)
        if room < wanted.replicas:
            broken.append(wanted)

    study = VirtualStudy(plan, on_refused=look)
    return Challenged(found=study.run(), broken=len(broken))


def found_unbroken(plan: Plan) -> Found:
    """The same stream, where everything is promised that the adversary cannot break."""
    names = [f"member{number}" for number in range(1, len(plan.nodes) + 1)]
    return VirtualStudy(plan, Unbroken(names, plan.seed)).run()
