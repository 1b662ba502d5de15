"""How many recorded decisions a second a what-if makes again, on one core and on two.

A storm on 100 clusters. Prints figures beside their goals; must not judge them.
"""

from __future__ import annotations

import tempfile
import time
from functools import partial, reduce
from pathlib import Path

from federation.history.changes import WhatIfChange
from federation.history.shards import worked_out
from federation.history.trace_files import TraceFile
from federation.history.what_ifs import WhatIf
from federation.history.windows import played, windows_of
from federation.scheduler.plugins.profile import DEFAULT_PROFILES
from lab.benchmarks.measuring import CORES, chosen, show
from lab.storms import storm_trace

CLUSTERS, ROOM = 100, 60
DECISIONS = chosen(4000, quick=400)
WINDOWS = 8
# As of a longer trace: workers take a while to start.
SWEEPS = chosen(5, quick=1)
CHANGES = {
    "nothing changed": WhatIfChange(),
    "a cluster cordoned": WhatIfChange(cordoned=frozenset({"member007"})),
}


def came(trace: TraceFile, change: WhatIfChange, workers: int, sweeps: int = 1) -> WhatIf:
    work = partial(played, trace.unindexed, change, DEFAULT_PROFILES)
    windows = windows_of(trace, DECISIONS // WINDOWS) * sweeps
    return reduce(WhatIf.then, worked_out(work, windows, workers), WhatIf())


def main(folder: Path) -> None:
    began = time.process_time()
    path = storm_trace(folder / "storm.trace", DECISIONS, CLUSTERS, ROOM)
    decided = 1e6 * (time.process_time() - began) / DECISIONS
    trace = TraceFile.opened(path)
    size = path.stat().st_size / DECISIONS
    print(f"what-ifs of {DECISIONS} decisions on {CLUSTERS} clusters, {size:.0f} bytes each")
    print(f"  to decide and record each took {decided:.0f} us of CPU")
    for name, change in CHANGES.items():
        began = time.process_time()
        one = came(trace, change, 1)
        rate = DECISIONS / (time.process_time() - began)
        figure = f"{rate:.0f}/s a core"
        show(f"{name}, {one.different} differ", figure, goal=">= 2000/s", kept=rate >= 2000)
    if CORES < 2:
        return
    change = CHANGES["a cluster cordoned"]
    seconds, sums = [], set()
    for workers in (1, 2):
        began = time.perf_counter()
        sums.add(came(trace, change, workers, SWEEPS).sha256)
        seconds.append(time.perf_counter() - began)
    ratio = seconds[0] / seconds[1]
    same = "one SHA-256" if len(sums) == 1 else "SHA-256 DIFFERS"
    show("two workers", f"{ratio:.2f} x one", goal=f">= 1.7, {same}", kept=ratio >= 1.7)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        main(Path(directory))
