"""How long promises take: a decision, the fleet asked, a room made again, preemption, many rooms.

The clusters report what shipped agents report of 500 nodes. Prints what was measured beside its
goal. Every figure is CPU time of many runs but where it is of memory.
"""

from __future__ import annotations

import os
import resource
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from federation.capacity.cluster_room import ReportId, Room
from federation.capacity.reserve import FleetRooms, packable_c, promise
from federation.model.cluster import Cluster, ClusterState
from federation.model.placement import Certificate, Placement, PreemptionPolicy
from federation.model.reservations import Outstanding, PromiseCertificate
from federation.model.resources import CPU
from federation.model.workload import ReplicaRequirements
from federation.scheduler.decision import Outcome
from federation.simulation.capacity import SimulationOptions
from federation.simulation.decisions import Simulation
from lab.benchmarks.measuring import chosen, millis
from lab.benchmarks.members import PLAN
from lab.fleet import FleetPlan, cluster_name, pod_size, report_of, stored_pools
from lab.processes import resident_mebibytes
from lab.services import DYNAMIC, WEB
from lab.verdicts import Verdicts, at_most

REPORT = ReportId(1, 1)
FLEETS = chosen((100, 1000), quick=(100,), full=(100, 1000, 10_000))
GOAL_CLUSTERS = 100
TARGETS = 5
# The first decisions find a fleet without promises.
FIRST = chosen(100, quick=20)
DECISIONS, REPEATS = chosen((400, 5), quick=(40, 1))
DECISION_GOAL_MILLIS, EVERYWHERE_GOAL_MILLIS = 0.35, 1.5
SMALL_BINDINGS, LARGE_REPLICAS = chosen((200, 80), quick=(50, 20))
SMALL_CLUSTERS = FleetPlan(nodes=25, distinct=3)
LAST_PROMISE, AROUND = chosen((1000, 50), quick=(100, 20))
MAX_GROWTH = 1.2
STRICT_REPORTS = chosen(20, quick=2, full=50)
KIBIBYTES_PER_MEBIBYTE = 1024

FIGURES = Verdicts("bench_reserve")


def outstanding(binding: str, replicas: int, requirements: ReplicaRequirements) -> Outstanding:
    return Outstanding(
        binding=binding,
        requirements=requirements,
        certificate=PromiseCertificate.CAREFUL,
        in_cells=replicas,
    )


def workload(number: int, *, is_new: bool = False) -> ReplicaRequirements:
    """One of six sizes, 5 of 100 large; a new one differs a little from all before."""
    request = dict(pod_size(number))
    if is_new:
        request[CPU] += 1 + number % 997
    return ReplicaRequirements(request=request)


def show(name: str, millis: Sequence[float], goal_millis: float | None = None) -> None:
    goal = None if goal_millis is None else at_most(goal_millis)
    detail = f"least {min(millis):.3f} ms"
    FIGURES.row(name, statistics.median(millis), "ms", goal=goal, detail=detail)


def rooms(clusters: int) -> list[Room]:
    return [Room.of(REPORT, stored_pools(number, PLAN)) for number in range(clusters)]


def packed_fleet(clusters: int, decisions: int) -> tuple[FleetRooms, list[float]]:
    """A fleet after so many decisions, and how long each took, the estimate with the promise.

    Every other size was never seen before.
    """
    random = np.random.default_rng(1)
    names = [cluster_name(number) for number in range(clusters)]
    fleet = FleetRooms.of(rooms(clusters))
    times = []
    for number in range(decisions):
        requirements = workload(number, is_new=number % 2 == 0)
        binding = f"b{number}"
        start = time.process_time_ns()
        most_c = packable_c(fleet, requirements, Certificate.CAREFUL)
        took = time.process_time_ns() - start
        targets = random.permutation(clusters)[:TARGETS].tolist()
        asks = asked(binding, requirements, {c: min(int(most_c[c]), 20) for c in targets})
        start = time.process_time_ns()
        answer = promise(fleet, names, binding, asks, ())
        times.append((took + time.process_time_ns() - start) / 1e6)
        if not isinstance(answer, FleetRooms):
            raise TypeError(answer)
        fleet = answer
    return fleet, times


def asked(
    binding: str, requirements: ReplicaRequirements, replicas: Mapping[int, int]
) -> dict[int, tuple[Outstanding, ...]]:
    return {c: (outstanding(binding, count, requirements),) for c, count in replicas.items()}


def print_decisions(clusters: int) -> None:
    FIGURES.section(
        f"{clusters:,} clusters of {PLAN.nodes} nodes as agents report them, one decision after "
        "the other"
    )
    fleet, first = packed_fleet(clusters, DECISIONS)
    # The same decisions again: what else runs on the machine does not come at the same ones.
    repeats = REPEATS if clusters <= GOAL_CLUSTERS else 1
    again = [packed_fleet(clusters, DECISIONS)[1] for _ in range(repeats - 1)]
    times = [min(turns) for turns in zip(first, *again, strict=True)]
    columns = sum(layer.free_cells.table_xk.shape[1] for layer in fleet.layers)
    FIGURES.note(f"in the end {columns / 2 / clusters:.0f} columns a cluster and view")
    show(f"estimate and promise of {TARGETS} targets", times[FIRST:], DECISION_GOAL_MILLIS)
    large = [times[number] for number in range(FIRST, DECISIONS) if is_large(number)]
    show("  those of large pods", large)
    requirements = workload(3, is_new=True)
    names = [cluster_name(number) for number in range(clusters)]
    most_c = packable_c(fleet, requirements, Certificate.CAREFUL)
    asks = asked("new", requirements, {c: min(int(most_c[c]), 20) for c in range(clusters)})

    def decide() -> None:
        packable_c(fleet, requirements, Certificate.CAREFUL)
        promise(fleet, names, "new", asks, ())

    runs = max(3, 10_000 // clusters)
    show(
        f"estimate and promise of all {clusters:,}",
        millis(decide, runs),
        goal_of_all(clusters),
    )
    strict = millis(lambda: packable_c(fleet, requirements, Certificate.STRICT), 3)
    show("the most a strict promise may be in each cluster", strict)
    print_strict_memory(fleet, clusters)


def print_outstanding() -> None:
    """One decision after the other: the cost must not grow with the promises before it."""
    FIGURES.section(f"3 clusters of {PLAN.nodes} nodes, one more promise after the other")
    for sizes, name, goal_ratio in ((6, "of 6 sizes", MAX_GROWTH), (100, "5 of 100 large", None)):
        runs = [one_by_one(sizes, LAST_PROMISE) for _ in range(REPEATS)]
        times = [min(turns) for turns in zip(*runs, strict=True)]
        tenth = statistics.median(times[10 : 10 + AROUND])
        last = statistics.median(times[-AROUND:])
        show(f"the 10th promise, {name}", times[10 : 10 + AROUND])
        show(f"the {LAST_PROMISE:,}th", times[-AROUND:])
        goal = None if goal_ratio is None else at_most(goal_ratio)
        FIGURES.row("  beside the 10th", last / tenth, "x", goal=goal)


def one_by_one(sizes: int, count: int) -> list[float]:
    """The CPU milliseconds of each of so many decisions of one replica."""
    fleet, names = FleetRooms.of(rooms(3)), [cluster_name(number) for number in range(3)]
    times = []
    for number in range(count):
        requirements, binding = workload(number % sizes), f"b{number}"
        asks = asked(binding, requirements, {number % 3: 1})
        start = time.process_time_ns()
        packable_c(fleet, requirements, Certificate.CAREFUL)
        answer = promise(fleet, names, binding, asks, ())
        times.append((time.process_time_ns() - start) / 1e6)
        if not isinstance(answer, FleetRooms):
            raise TypeError(answer)
        fleet = answer
    return times


def goal_of_all(clusters: int) -> float | None:
    """The goal was set for a fleet of a hundred."""
    return EVERYWHERE_GOAL_MILLIS if clusters == GOAL_CLUSTERS else None


def is_large(number: int) -> bool:
    return pod_size(number)[CPU] >= pod_size(7)[CPU]


def print_strict_memory(fleet: FleetRooms, clusters: int) -> None:
    """One strict size is asked for again and again, while one cluster after another reports."""
    requirements = workload(3)
    packable_c(fleet, requirements, Certificate.STRICT)
    before, times = resident_mebibytes(os.getpid()), []
    for number in range(STRICT_REPORTS):
        position = number * 7919 % clusters
        pools = stored_pools(number + 1, PLAN)
        fleet = fleet.with_rooms({position: Room.of(ReportId(1, number + 2), pools)})
        start = time.process_time_ns()
        packable_c(fleet, requirements, Certificate.STRICT)
        times.append((time.process_time_ns() - start) / 1e6)
    show("strict, after one cluster's report", times)
    FIGURES.row(
        f"memory more after {STRICT_REPORTS} reports, each asked strictly",
        resident_mebibytes(os.getpid()) - before,
        "MiB",
    )


def print_rebuilding() -> None:
    FIGURES.section(f"the room of one cluster of {PLAN.nodes} nodes, made anew")
    random = np.random.default_rng(2)
    report = stored_pools(1, PLAN)
    for count, goal_millis in ((100, 3), (1000, 10)):
        held = [
            outstanding(f"b{number}", int(random.integers(1, 4)), workload(number))
            for number in range(count)
        ]
        times = millis(partial(Room.of, REPORT, report, held), 30)
        show(f"a new report beside {count} outstanding of 6 sizes", times, goal_millis)
    held = [outstanding(f"b{number}", 3, workload(number, is_new=True)) for number in range(100)]
    show(
        "a new report beside 100 outstanding of 100 sizes",
        millis(lambda: Room.of(REPORT, report, held), 10),
    )
    room = Room.of(REPORT, report, held[:20])
    show(
        "the room without one of 20 bindings of 20 sizes",
        millis(lambda: room.without("b7"), 20),
    )


def print_large_fleet(clusters: int) -> None:
    FIGURES.section(f"{clusters:,} rooms without promises")
    own_rooms = rooms(clusters)
    times = millis(lambda: FleetRooms.of(own_rooms), 3)
    show(f"the fleet of {clusters:,} rooms", times, 3000)
    fleet = FleetRooms.of(own_rooms)
    own_rooms.clear()
    requirements = workload(3)
    show(
        "what can be packed into each",
        millis(lambda: packable_c(fleet, requirements, Certificate.CAREFUL), 5),
    )
    peak_kibibytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    FIGURES.row("the whole process at most", peak_kibibytes / KIBIBYTES_PER_MEBIBYTE, "MiB")


def print_preemption() -> None:
    """One large binding takes the room of many small ones of many sizes, in a full fleet."""
    FIGURES.section("preemption in three clusters of 25 nodes, full of promises")
    states = [
        ClusterState(
            cluster=Cluster(name=name), report=report_of(number, plan=SMALL_CLUSTERS), as_of=0.0
        )
        for number, name in enumerate(("a", "b", "c"))
    ]
    random = np.random.default_rng(3)
    anywhere = replace(WEB, uid="", placement=Placement(replica_scheduling=DYNAMIC))
    small = [
        replace(
            anywhere,
            name=f"small-{number}",
            replicas=int(random.integers(1, 4)),
            priority=int(random.integers(0, 6)),
            requirements=workload(number),
        )
        for number in range(SMALL_BINDINGS)
    ]
    fill = [replace(anywhere, name=f"fill-{n}", priority=50, replicas=2) for n in range(150)]
    large = replace(
        anywhere,
        name="large",
        replicas=LARGE_REPLICAS,
        priority=10,
        preemption_policy=PreemptionPolicy.PREEMPT_LOWER_PRIORITY,
    )
    simulation = Simulation(states, SimulationOptions(), now=0.0)
    simulation.decide_all([*small, *fill])
    start = time.process_time_ns()
    (decision,) = simulation.decide_all([large])
    took = (time.process_time_ns() - start) / 1e6
    assert decision.outcome is Outcome.SCHEDULED
    victims = len(decision.trace.preempted)
    show(
        f"{LARGE_REPLICAS} replicas take the room of {victims} of {SMALL_BINDINGS} bindings",
        [took],
        3000,
    )


def main() -> None:
    for clusters in FLEETS:
        print_decisions(clusters)
    print_outstanding()
    print_preemption()
    print_rebuilding()
    print_large_fleet(chosen(10_000, quick=300))


if __name__ == "__main__":
    main()
