"""What decisions cost in a cluster of many unlike nodes where a tenth of the workloads is large.

The report is made by the agent's own code, with what nodes have allocatable; pods are made as they
are promised, and a simulated kube-scheduler places them. Prints CPU a decision, what of it looks at
large pods and rehearses, and the large pods that were left pending.

    bench_large_pods.py [NODES] [BINDINGS]
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from federation.capacity import careful
from federation.model.placement import Certificate
from lab.benchmarks.measuring import arguments, chosen
from lab.packed_clusters import GIB
from lab.simulator import ControlPlane
from lab.truth.kube_scheduler import Timeline
from lab.truth.plans import MAKING_SECONDS
from lab.truth.streams import CPU, MEMORY, PLAIN_SHAPES, SCHEDULINGS, Wanted, nodes_of
from lab.truth.virtual import VirtualMember
from lab.verdicts import Goal, Verdicts, at_most

NODES, BINDINGS, ROUNDS = 240, 150, chosen(2, quick=1, full=5)
LARGE_EVERY = 10
LARGE = ((8000, 16), (12000, 16))
GOAL_MILLIS = 10.0
NAME = "member1"

FIGURES = Verdicts("bench_large_pods")


class Clocked:
    """The CPU time of some functions, with what they call."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._depth = 0

    def counting(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*given: Any) -> Any:
            began = time.thread_time()
            self._depth += 1
            try:
                return function(*given)
            finally:
                self._depth -= 1
                if not self._depth:
                    self.seconds += time.thread_time() - began

        return counted


def stream(seed: int, count: int) -> list[Wanted]:
    """Small workloads of requests that all differ a little, and large ones of a pod or two."""
    choices = random.Random(f"large-{seed}")
    wanted = []
    for number in range(count):
        if number % LARGE_EVERY == 0:
            (cores, gibibytes), replicas = choices.choice(LARGE), choices.randint(1, 2)
            request = {CPU: cores, MEMORY: gibibytes * GIB}
        else:
            cores, mebibytes = choices.choice(PLAIN_SHAPES)
            replicas = choices.randint(1, 30)
            request = {CPU: cores + choices.randint(0, 9), MEMORY: mebibytes * GIB // 1024}
        scheduling = SCHEDULINGS[number % len(SCHEDULINGS)]
        name = f"app-{number:04}"
        wanted.append(Wanted(name=name, replicas=replicas, request=request, scheduling=scheduling))
    return wanted


def measured(seed: int, nodes: int, bindings: int, clocked: Clocked) -> tuple[list[float], ...]:
    """CPU milliseconds of each decision in all, and of looking at large pods and rehearsing."""
    timeline = Timeline()
    member = VirtualMember(
        name=NAME, nodes=nodes_of(NAME, nodes, seed), timeline=timeline, seed=seed
    )
    control = ControlPlane((NAME,))
    control.accept(NAME, member.report(0, control))
    whole, looked = list[float](), list[float]()
    # The pods of large workloads are made last, as where their images are.
    large, small = list[Wanted](), list[Wanted]()
    for wanted in stream(seed, bindings):
        clocked.seconds, began = 0.0, time.thread_time()
        decided = control.submit(wanted.binding(Certificate.CAREFUL), looks_again=True)
        whole.append((time.thread_time() - began) * 1000)
        looked.append(clocked.seconds * 1000)
        if decided is not None:
            placed = replace(wanted, replicas=decided.binding.clusters[0].replicas)
            (large if wanted.request[CPU] >= LARGE[0][0] else small).append(placed)
    for place, wanted in enumerate([*small, *large]):
        for number in range(wanted.replicas):
            timeline.at(MAKING_SECONDS + place / 100, lambda w=wanted, n=number: member.make(w, n))
    timeline.run(MAKING_SECONDS + 120.0)
    pods = [f"{each.name}-{number}" for each in large for number in range(each.replicas)]
    pending = [float(pod not in member.bound) for pod in pods]
    return whole, looked, pending


def show(name: str, values: Sequence[float], goal: Goal | None = None) -> None:
    detail = f"99 % {statistics.quantiles(values, n=100)[98]:.2f} ms, most {max(values):.2f} ms"
    FIGURES.row(name, statistics.median(values), "ms", goal=goal, detail=detail)


def main() -> None:
    given = [int(each) for each in arguments()]
    nodes, bindings = (*given, *(NODES, BINDINGS)[len(given) :])
    clocked = Clocked()
    careful.max_beside_large = clocked.counting(careful.max_beside_large)  # type: ignore[attr-defined]  # it is imported there
    careful.max_surely_rehearsed = clocked.counting(careful.max_surely_rehearsed)  # type: ignore[attr-defined]  # it is called there
    rows = [measured(seed, nodes, bindings, clocked) for seed in range(1, ROUNDS + 1)]
    whole, looked, pending = ([value for row in rows for value in row[part]] for part in range(3))
    FIGURES.section(f"{nodes} unlike nodes, {bindings} bindings, one of {LARGE_EVERY} large")
    show("a decision, CPU", whole)
    show("looking at large pods, CPU", looked, at_most(GOAL_MILLIS))
    promised = f"of {len(pending)} promised"
    FIGURES.row("large pods left pending", int(sum(pending)), detail=promised)


if __name__ == "__main__":
    main()
