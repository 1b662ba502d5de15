"""How long fedctl takes to begin: help, a verb that connects to nobody, and one that reads files.

Prints wall and CPU time; must not judge them. What may be imported is held by a test.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

from lab.benchmarks.measuring import chosen
from lab.verdicts import Verdicts, at_most

GOAL_MILLIS = 250
RUNS = chosen(15, quick=3, full=40)
ROOT = Path(__file__).resolve().parents[2]
# Nobody listens at the endpoint: the refusal comes at once, by grpc.
NOBODY = ("--endpoint", "127.0.0.1:1", "--insecure", "--token-file", os.devnull)
CALLS = {
    "python -c pass": ("-c", "pass"),
    "python -c 'import grpc.aio'": ("-c", "import grpc.aio"),
    "fedctl --help": ("-m", "federation.cli", "--help"),
    "fedctl get --help": ("-m", "federation.cli", "get", "--help"),
    "fedctl get clusters": ("-m", "federation.cli", *NOBODY, "get", "clusters"),
    "fedctl explain": ("-m", "federation.cli", *NOBODY, "explain", "shop/web"),
    "fedctl estimate --from": (
        *("-m", "federation.cli", "estimate", "--request", "cpu=1"),
        *("--from", "examples/fleet.yaml"),
    ),
    "fedctl simulate --help": ("-m", "federation.cli", "simulate", "--help"),
    "fedctl what-if --help": ("-m", "federation.cli", "what-if", "--help"),
    "fedctl trace --help": ("-m", "federation.cli", "trace", "--help"),
}


def measured(arguments: tuple[str, ...]) -> tuple[float, float]:
    """Milliseconds that passed, and those of CPU."""
    before, began = os.times(), time.perf_counter()
    subprocess.run([sys.executable, *arguments], cwd=ROOT, capture_output=True, check=False)
    passed, after = time.perf_counter() - began, os.times()
    cpu = after.children_user + after.children_system - before.children_user
    return 1000 * passed, 1000 * (cpu - before.children_system)


def main() -> None:
    figures = Verdicts("bench_fedctl")
    figures.section(f"fedctl begins, median of {RUNS} runs; the goal is for quiet cores")
    for name, arguments in CALLS.items():
        measured(arguments)
        runs = [measured(arguments) for _ in range(RUNS)]
        wall, cpu = (median(each[at] for each in runs) for at in (0, 1))
        figures.row(name, wall, "ms", goal=at_most(GOAL_MILLIS), detail=f"{cpu:.0f} ms of CPU")


if __name__ == "__main__":
    main()
