"""How many recorded decisions a second a what-if makes again, on one core and on two.

A storm on clusters with so much room each: a trace holds what was available, and no reports. Prints
figures beside their goals; must not judge them.
"""

from __future__ import annotations

import tempfile
import time
from functools import partial, reduce
from pathlib import Path

from federation.history.shards import worked_out
from federation.history.trace_files import TraceFile
from federation.scheduler.plugins.profile import DEFAULT_PROFILES
from federation.simulation.changes import WhatIfChange
from federation.simulation.figures import WhatIf
from federation.simulation.what_if_runs import played, windows_of
from lab.benchmarks.measuring import CORES, chosen
from lab.traces import storm_trace
from lab.verdicts import Verdicts, at_least

FLEETS = chosen((100, 1000), quick=(100,), full=(100, 1000, 10_000))
GOAL_CLUSTERS, ROOM = 100, 60
RATE_GOAL = 2000
DECISIONS = chosen(4000, quick=400)
WINDOWS = 8
# As of a longer trace: workers take a while to start.
SWEEPS = chosen(5, quick=1)
CHANGES = {
    "nothing changed": WhatIfChange(),
    "a cluster cordoned": WhatIfChange(cordoned=frozenset({"member007"})),
}

FIGURES = Verdicts("bench_what_if")


def came(trace: TraceFile, change: WhatIfChange, workers: int, sweeps: int = 1) -> WhatIf:
    work = partial(played, trace.unindexed, change, DEFAULT_PROFILES)
    windows = windows_of(trace, DECISIONS // WINDOWS) * sweeps
    return reduce(WhatIf.then, worked_out(work, windows, workers), WhatIf())


def main(folder: Path, clusters: int) -> None:
    began = time.process_time()
    path = storm_trace(folder / "storm.trace", DECISIONS, clusters, ROOM)
    decided_micros = 1e6 * (time.process_time() - began) / DECISIONS
    trace = TraceFile.opened(path)
    FIGURES.section(f"what-ifs of {DECISIONS} decisions on {clusters:,} clusters")
    FIGURES.row("bytes of a recorded decision", path.stat().st_size / DECISIONS, "bytes")
    FIGURES.row("to decide and record each, CPU", decided_micros, "us")
    for name, change in CHANGES.items():
        began = time.process_time()
        one = came(trace, change, 1)
        rate = DECISIONS / (time.process_time() - began)
        goal = at_least(RATE_GOAL) if clusters == GOAL_CLUSTERS else None
        detail = f"{one.different} differ"
        FIGURES.row(f"{name}, made again on one core", rate, "/s", goal=goal, detail=detail)
    if CORES < 2 or clusters != GOAL_CLUSTERS:
        return
    change = CHANGES["a cluster cordoned"]
    seconds, sums = [], set()
    for workers in (1, 2):
        began = time.perf_counter()
        sums.add(came(trace, change, workers, SWEEPS).sha256)
        seconds.append(time.perf_counter() - began)
    detail = "one SHA-256" if len(sums) == 1 else "SHA-256 DIFFERS"
    ratio = seconds[0] / seconds[1]
    FIGURES.row("two workers, of one", ratio, "x", goal=at_least(1.7), detail=detail)


if __name__ == "__main__":
    for size in FLEETS:
        with tempfile.TemporaryDirectory() as directory:
            main(Path(directory), size)
