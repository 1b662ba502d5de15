"""The pause of a look at all spared objects, and what a leak of cycles comes to before one.

Must not be more than what a control plane does: it uses its own functions.

    bench_garbage.py [--quick | --full]
"""

from __future__ import annotations

import gc
import time
from random import Random

from federation.garbage import SpareLooks, sparing_the_fleet
from lab.benchmarks.measuring import chosen
from lab.benchmarks.owned_fleets import owned_fleet, place
from lab.verdicts import Verdicts

CLUSTERS, BINDINGS = chosen((1000, 10_000), quick=(100, 300), full=(10_000, 100_000))

FIGURES = Verdicts("bench_garbage")


class Knot:
    """A call's cycle."""

    def __init__(self) -> None:
        self.itself = self


def main() -> None:
    choices = Random(1)
    with sparing_the_fleet():
        fleet = owned_fleet(CLUSTERS)
        for number in range(BINDINGS):
            place(fleet, number, choices)
    FIGURES.section(f"a fleet of {CLUSTERS:,} clusters with {BINDINGS:,} bindings, in memory")
    looks = SpareLooks()
    began = time.perf_counter()
    looks.look_if_grown()
    count_seconds = time.perf_counter() - began
    FIGURES.row("objects that are spared", gc.get_freeze_count())
    FIGURES.row("counting them", 1000 * count_seconds, "ms")
    gc.disable()
    most = freed = leaked = 0
    while not freed:
        # A cycle in use at a look: spared, and dropped after it.
        knots = [Knot() for _ in range(10_000)]
        gc.freeze()
        leaked += len(knots)
        del knots
        most = max(most, gc.get_freeze_count())
        began = time.perf_counter()
        freed = looks.look_if_grown()
    look_seconds = time.perf_counter() - began
    FIGURES.row(f"a look at {most:,}", 1000 * look_seconds, "ms", detail=f"{freed:,} freed")
    detail = f"still spared: {gc.get_freeze_count():,}"
    FIGURES.row("cycles leaked before it", leaked, detail=detail)
    assert fleet.size == CLUSTERS


if __name__ == "__main__":
    main()
