"""How much CPU promises take: packing a decision, making a room again, asking a fleet.

Prints medians; must not judge them.
"""

# ruff: noqa: T201

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import numpy as np

from federation.model.placement import Certificate
from federation.model.pools.values import Cells, NodePool, Pools
from federation.model.reservations import Outstanding, PromiseCertificate
from federation.model.workload import ReplicaRequirements
from federation.scheduler.reserve import Ask, FleetRooms, packable_c, reserve
from federation.scheduler.room import ReportId, Room

GIB = 1 << 30
REPORT = ReportId(1, 1)
TARGETS = 5
OUTSTANDING = 100
REQUIREMENTS = ReplicaRequirements(request={"cpu": 750, "memory": 3 * GIB})


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


def others(seed: int) -> list[Outstanding]:
    """What a busy cluster has outstanding."""
    random = np.random.default_rng(seed)
    return [
        outstanding(
            f"b{number}",
            int(random.integers(1, 40)),
            ReplicaRequirements(
                request={
                    "cpu": int(random.integers(50, 4_000)),
                    "memory": int(random.integers(1, 16)) * GIB,
                }
            ),
        )
        for number in range(OUTSTANDING)
    ]


def median_cpu_micros(call: Callable[[], object], *, rounds: int = 9, repeat: int = 10) -> float:
    """Median over rounds of the CPU time of one call, in microseconds."""
    call()
    times = []
    for _ in range(rounds):
        start = time.process_time_ns()
        for _ in range(repeat):
            call()
        times.append((time.process_time_ns() - start) / repeat / 1000)
    return statistics.median(times)


def show(what: str, micros: float) -> None:
    print(f"{what:<66} {micros:>10.1f} us")


def print_packing(cells: int) -> None:
    wanted = outstanding("new", 20, REQUIREMENTS)
    rooms = {f"member{n}": Room.of(REPORT, pools(cells, n)) for n in range(TARGETS)}
    asks = [Ask(cluster=name, room=room, outstanding=(wanted,)) for name, room in rooms.items()]
    show(
        f"{cells:>4} cells  promise a decision of {TARGETS} targets",
        median_cpu_micros(lambda: reserve("new", asks)),
    )
    held = others(1)
    busy = Room.of(REPORT, pools(cells, 0), held)
    show(
        f"{cells:>4} cells  one more beside {OUTSTANDING} outstanding",
        median_cpu_micros(lambda: busy.with_one(wanted)),
    )
    show(
        f"{cells:>4} cells  pack {OUTSTANDING} outstanding into a new report",
        median_cpu_micros(lambda: Room.of(REPORT, busy.pools, held), rounds=5, repeat=1),
    )
    show(
        f"{cells:>4} cells  the room without one of {OUTSTANDING} bindings",
        median_cpu_micros(lambda: busy.without("b50"), rounds=5, repeat=1),
    )
    show(
        f"{cells:>4} cells  the most a strict promise may be, beside {OUTSTANDING} others",
        median_cpu_micros(lambda: busy.most(REQUIREMENTS, PromiseCertificate.STRICT, 1000)),
    )


def print_fleet(clusters: int, cells: int) -> None:
    room = [Room.of(REPORT, pools(cells, n)) for n in range(50)]
    fleet = FleetRooms.of(room[n % 50] for n in range(clusters))
    show(
        f"{cells:>4} cells  what can be packed into each of {clusters} clusters",
        median_cpu_micros(
            lambda: packable_c(fleet, REQUIREMENTS, Certificate.CAREFUL, {}), repeat=3
        ),
    )
    changed = {7: room[8], 300: room[9], 550: room[1], 700: room[2], 999: room[3]}
    show(
        f"{cells:>4} cells  {TARGETS} newer rooms in a fleet of {clusters} clusters",
        median_cpu_micros(lambda: fleet.with_rooms(changed), repeat=1),
    )


def main() -> None:
    for cells in (64, 256):
        print_packing(cells)
    print_fleet(1_000, 64)


if __name__ == "__main__":
    main()
