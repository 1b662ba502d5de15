"""Decisions a second of this tree beside those of another commit, on this machine.

``bench_decisions`` of both runs by turns, the other's in a clone, so that whatever else the machine
does comes to both. Prints medians, their ratios, and what PostgreSQL alone commits.

    python -m tools.bench_against COMMIT [--runs N] [--seconds S]
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# "  single calls, 32 in flight    480/s  p50  60.1 ms  p99  120.3 ms ..."
LOAD = re.compile(
    r"^  (?P<name>\S.*?) +(?P<rate>\d+)/s +p50 .*?p99 +(?P<p99>[\d.]+) ms"
    r"(?:.*?(?P<cpu>[\d.]+) ms of CPU each)?"
)
ALONE = re.compile(r"^  (?P<name>PostgreSQL alone) +(?P<rate>\d+) one-row commits/s")
BOTH = re.compile(r"one (?P<one>\d+)/s, both (?P<both>\d+)/s")

Figures = Mapping[str, float]


def figures_of(lines: Sequence[str]) -> dict[str, float]:
    """By what was measured, in the order of the lines."""
    figures, agents = {}, ""
    for line in lines:
        if not line.startswith(" "):
            agents = "agents there: " if "connected" in line else ""
        if found := LOAD.match(line) or ALONE.match(line):
            name = agents + found["name"]
            figures[f"{name}, a second"] = float(found["rate"])
            if "p99" in found.groupdict():
                figures[f"{name}, p99 ms"] = float(found["p99"])
                figures[f"{name}, CPU ms each"] = float(found["cpu"] or "nan")
        elif found := BOTH.search(line):
            figures["two control planes, of one"] = int(found["both"]) / int(found["one"])
    return figures


def measured(tree: Path, seconds: float) -> dict[str, float]:
    """What the measurement of that tree prints, with this tree's Python and packages."""
    command = [sys.executable, "-m", "lab.benchmarks.bench_decisions", str(seconds)]
    done = subprocess.run(
        command,
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree)},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(done.stderr)
    return figures_of(done.stdout.splitlines())


def show(before: Sequence[Figures], after: Sequence[Figures]) -> None:
    print(f"{'medians of ' + str(len(after)) + ' runs':58} {'before':>9} {'now':>9}  ratio")
    for name in after[0]:
        old, new = (
            statistics.median(figures.get(name, float("nan")) for figures in runs)
            for runs in (before, after)
        )
        print(f"{name:58} {old:9.2f} {new:9.2f}  {new / old:.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.bench_against", description=__doc__)
    parser.add_argument("commit")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each load")
    given = parser.parse_args()
    runs: dict[Path, list[Figures]] = defaultdict(list)
    with tempfile.TemporaryDirectory(prefix="fedsched-against-", dir="/var/tmp") as folder:
        other = Path(folder) / "other"
        subprocess.run(["git", "clone", "--quiet", "--no-checkout", ROOT, other], check=True)
        subprocess.run(["git", "checkout", "--quiet", given.commit], cwd=other, check=True)
        for _ in range(given.runs):
            for tree in (other, ROOT):
                runs[tree].append(measured(tree, given.seconds))
        show(runs[other], runs[ROOT])


if __name__ == "__main__":
    main()
