"""How long promises take: a decision, the fleet asked, a room made again, preemption, many rooms.

Prints what was measured beside its goal. Every figure is CPU time of many runs.
"""

from __future__ import annotations

import resource
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from federation.capacity.cluster_room import ReportId, Room
from federation.capacity.reserve import FleetRooms, packable_c, promise
from federation.model.cluster import Cluster, ClusterState
from federation.model.placement import Certificate, Placement, PreemptionPolicy
from federation.model.pools.values import Cells, NodePool, Pools
from federation.model.reservations import Outstanding, PromiseCertificate
from federation.model.workload import ReplicaRequirements
from federation.scheduler.decision import Outcome
from federation.scheduler.simulation import Simulation, SimulationOptions
from lab.benchmarks.measuring import chosen
from lab.reports import nodes
from lab.services import DYNAMIC, WEB, make_report

GIB = 1 << 30
REPORT = ReportId(1, 1)
CLUSTERS = 100
CELLS = 64
TARGETS = 5
SHAPES = 6
SMALL, LARGE = 200, 80
DECISIONS, REPEATS = chosen((400, 7), quick=(120, 2))


def pools(cells: int, seed: int) -> Pools:
    """Cells of 1 to 40 nodes, as a few thousand nodes make them."""
    random = np.random.default_rng(seed)
    count_k = random.integers(1, 41, cells)
    min_rk = np.stack(
        [
            random.integers(0, 64_000, cells),
            random.integers(0, 256 * GIB, cells),
            random.integers(0, 110, cells),
            random.integers(0, 200 * GIB, cells),
        ]
    )
    return Pools(
        label_keys=(),
        pools=(NodePool(),),
        cells=Cells(
            resources=("cpu", "memory", "pods", "ephemeral-storage"),
            pool_k=np.zeros(cells, dtype=np.int32),
            count_k=count_k,
            min_rk=min_rk,
            sum_rk=min_rk * count_k,
            max_rk=min_rk.copy(),
            sum_exact_k=np.ones(cells, dtype=np.bool_),
        ),
    )


def outstanding(binding: str, replicas: int, requirements: ReplicaRequirements) -> Outstanding:
    return Outstanding(
        binding=binding,
        requirements=requirements,
        certificate=PromiseCertificate.CAREFUL,
        in_cells=replicas,
    )


def any_shape(random: np.random.Generator) -> ReplicaRequirements:
    return ReplicaRequirements(
        request={
            "cpu": int(random.integers(50, 4_000)),
            "memory": int(random.integers(1, 16)) * GIB,
        }
    )


def cpu_micros(call: Callable[[], object], *, runs: int) -> list[float]:
    """The CPU time of single calls, in microseconds."""
    call()
    times = []
    for _ in range(chosen(runs, quick=min(runs, 3))):
        start = time.process_time_ns()
        call()
        times.append((time.process_time_ns() - start) / 1000)
    return times


def show(what: str, micros: Sequence[float], goal_micros: float | None = None) -> None:
    median = statistics.median(micros)
    verdict = ""
    if goal_micros is not None:
        is_met = median <= goal_micros
        verdict = f"goal {goal_micros / 1000:>8.2f} ms  {'PASS' if is_met else 'over'}"
    print(f"{what:<66} min {min(micros) / 1000:>8.3f} median {median / 1000:>8.3f} ms  {verdict}")


def packed_fleet(decisions: int) -> tuple[FleetRooms, list[float]]:
    """A fleet after so many decisions, and how long each took, the estimate with the promise.

    Every other shape was never seen before.
    """
    random = np.random.default_rng(1)
    shapes = [any_shape(random) for _ in range(SHAPES)]
    fleet = FleetRooms.of(Room.of(REPORT, pools(CELLS, seed)) for seed in range(CLUSTERS))
    times = []
    for number in range(decisions):
        requirements = shapes[number % SHAPES] if number % 2 else any_shape(random)
        binding = f"b{number}"
        start = time.process_time_ns()
        most_c = packable_c(fleet, requirements, Certificate.CAREFUL, {})
        took = time.process_time_ns() - start
        targets = random.permutation(CLUSTERS)[:TARGETS].tolist()
        asks = asked(binding, requirements, {c: min(int(most_c[c]), 20) for c in targets})
        start = time.process_time_ns()
        answer = promise(fleet, NAMES, binding, asks, ())
        times.append((took + time.process_time_ns() - start) / 1000)
        if not isinstance(answer, FleetRooms):
            raise TypeError(answer)
        fleet = answer
    return fleet, times


NAMES = tuple(f"member{number:05}" for number in range(CLUSTERS))


def asked(
    binding: str, requirements: ReplicaRequirements, replicas: Mapping[int, int]
) -> dict[int, tuple[Outstanding, ...]]:
    return {c: (outstanding(binding, count, requirements),) for c, count in replicas.items()}


def print_decisions() -> None:
    print(f"{CLUSTERS} clusters of {CELLS} cells in their reports, one decision after the other")
    fleet, first = packed_fleet(DECISIONS)
    # The same decisions again: what else runs on the machine does not come at the same ones.
    again = [packed_fleet(DECISIONS)[1] for _ in range(REPEATS - 1)]
    times = [min(each) for each in zip(first, *again, strict=True)]
    columns = sum(layer.residues.table_xk.shape[1] for layer in fleet.layers)
    print(f"  in the end {columns / 2 / CLUSTERS:.0f} columns a cluster and view")
    show(f"estimate and promise of {TARGETS} targets", times[100:], 350)
    requirements = any_shape(np.random.default_rng(7))
    most_c = packable_c(fleet, requirements, Certificate.CAREFUL, {})
    asks = asked("new", requirements, {c: min(int(most_c[c]), 20) for c in range(CLUSTERS)})

    def decide() -> None:
        packable_c(fleet, requirements, Certificate.CAREFUL, {})
        promise(fleet, NAMES, "new", asks, ())

    show(f"estimate and promise of all {CLUSTERS} clusters", cpu_micros(decide, runs=100), 1500)
    show(
        "the most a strict promise may be in each cluster",
        cpu_micros(lambda: packable_c(fleet, requirements, Certificate.STRICT, {}), runs=3),
    )


def print_rebuilding() -> None:
    random = np.random.default_rng(2)
    shapes = [any_shape(random) for _ in range(SHAPES)]
    report = pools(CELLS, 1)
    for count, goal in ((100, 3_000), (1000, 10_000)):
        held = [
            outstanding(f"b{number}", int(random.integers(1, 4)), shapes[number % SHAPES])
            for number in range(count)
        ]
        show(
            f"a new report beside {count} outstanding of {SHAPES} shapes",
            cpu_micros(lambda held=held: Room.of(REPORT, report, held), runs=30),
            goal,
        )
    held = [outstanding(f"b{number}", 3, any_shape(random)) for number in range(100)]
    show(
        "a new report beside 100 outstanding of 100 shapes",
        cpu_micros(lambda: Room.of(REPORT, report, held), runs=10),
    )
    room = Room.of(REPORT, report, held[:20])
    show(
        "the room without one of 20 bindings of 20 shapes",
        cpu_micros(lambda: room.without("b7"), runs=20),
    )


def print_large_fleet(clusters: int) -> None:
    rooms = [Room.of(REPORT, pools(CELLS, number)) for number in range(clusters)]
    times = cpu_micros(lambda: FleetRooms.of(rooms), runs=3)
    show(f"the fleet of {clusters:,} rooms", times, 3_000_000)
    fleet = FleetRooms.of(rooms)
    rooms.clear()
    requirements = any_shape(np.random.default_rng(7))
    show(
        "what can be packed into each",
        cpu_micros(lambda: packable_c(fleet, requirements, Certificate.CAREFUL, {}), runs=5),
    )
    peak_gib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 20)
    print(f"{'the whole process at most':<66} {peak_gib:.2f} GiB")


def print_preemption() -> None:
    """One large binding takes the room of many small ones of many shapes, in a full fleet."""
    free = nodes(25, cpu=4000, memory=64 * GIB)
    states = [
        ClusterState(cluster=Cluster(name=name), report=replace(make_report(1), pools=free))
        for name in ("a", "b", "c")
    ]
    random = np.random.default_rng(3)
    anywhere = replace(WEB, uid="", placement=Placement(replica_scheduling=DYNAMIC))
    small = [
        replace(
            anywhere,
            name=f"small-{number}",
            replicas=int(random.integers(1, 4)),
            priority=int(random.integers(0, 6)),
            requirements=any_request(random),
        )
        for number in range(SMALL)
    ]
    fill = [replace(anywhere, name=f"fill-{n}", priority=50, replicas=2) for n in range(150)]
    large = replace(
        anywhere,
        name="large",
        replicas=LARGE,
        priority=10,
        preemption_policy=PreemptionPolicy.PREEMPT_LOWER_PRIORITY,
    )

    simulation = Simulation(states, SimulationOptions(), now=0.0)
    simulation.decide_all([*small, *fill])
    start = time.process_time_ns()
    (decision,) = simulation.decide_all([large])
    took = (time.process_time_ns() - start) / 1000
    assert decision.outcome is Outcome.SCHEDULED
    victims = len(decision.trace.preempted)
    show(f"{LARGE} replicas take the room of {victims} of {SMALL} bindings", [took], 3_000_000)


def any_request(random: np.random.Generator) -> ReplicaRequirements:
    cpu, memory = random.choice((500, 750, 1000, 1500)), random.integers(1, 4)
    return ReplicaRequirements(request={"cpu": int(cpu), "memory": int(memory) * GIB})


def main() -> None:
    print_decisions()
    print_preemption()
    print_rebuilding()
    print_large_fleet(chosen(10_000, quick=300))


if __name__ == "__main__":
    main()
