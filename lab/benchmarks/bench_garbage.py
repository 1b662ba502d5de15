"""The pause of a look at all spared objects, and what a leak of cycles comes to before one.

Must not be more than what a control plane does: it uses its own functions.

    bench_garbage.py [--quick]
"""

from __future__ import annotations

import gc
import time

from federation.garbage import SpareLooks, sparing_the_fleet
from lab.benchmarks.measuring import chosen

OBJECTS = chosen(3_000_000, quick=300_000)


class Knot:
    """A call's cycle."""

    def __init__(self) -> None:
        self.itself = self


def main() -> None:
    with sparing_the_fleet():
        fleet = [(number, [number]) for number in range(OBJECTS // 2)]
    looks = SpareLooks()
    began = time.perf_counter()
    looks.look_if_grown()
    print(f"counting {gc.get_freeze_count()} objects: {time.perf_counter() - began:.3f} s")
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
    print(f"a look at {most} objects: {time.perf_counter() - began:.3f} s, {freed} freed")
    print(f"cycles leaked before it: {leaked}; still spared: {gc.get_freeze_count()}")
    assert len(fleet) == OBJECTS // 2


if __name__ == "__main__":
    main()
