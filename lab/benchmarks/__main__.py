"""All measurements, or those that are named, one after the other; 1 if one of them failed.

With ``--quick`` two run at once for each core: they wait much, and their figures only hint then. A
goal that is missed is no failure: figures depend on the machine.

    python -m lab.benchmarks [--quick | --full] [NAME ...]      such as reserve, decisions
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from lab.benchmarks.measuring import CORES, IS_QUICK, OPTIONS
from lab.programs import parser

FOLDER = Path(__file__).parent
# They take longest, so that nothing waits for them at the end.
LONGEST = ("queue", "failover", "telemetry", "decisions", "mixed", "page", "bridge")
QUICK_AT_ONCE = 2 * CORES


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """A measurement that has ended, and what it printed where that was not shown at once."""

    name: str
    code: int
    seconds: float
    output: str = ""


def names(arguments: Sequence[str]) -> list[str]:
    """The measurements to run, the longest first; all where none is named."""
    known = sorted(programs())
    options = parser("benchmarks", __doc__)
    length = options.add_mutually_exclusive_group()
    length.add_argument("--quick", action="store_true", help="briefly: figures only hint")
    length.add_argument("--full", action="store_true", help="with 10,000 clusters, for certainty")
    options.add_argument("names", nargs="*", metavar="NAME", help=", ".join(known))
    chosen: list[str] = options.parse_args(arguments).names or known
    if unknown := set(chosen) - set(known):
        options.error(f"no such measurement: {', '.join(sorted(unknown))}")
    return sorted(chosen, key=lambda name: (*LONGEST, name).index(name))


def programs() -> dict[str, list[str]]:
    """The module of each measurement, and its name where the module has several."""
    found: dict[str, list[str]] = {}
    for path in FOLDER.glob("*.py"):
        names = re.findall(r"^def bench_(\w+)\(", path.read_text(encoding="utf-8"), re.MULTILINE)
        found |= {name: [f"lab.benchmarks.{path.stem}", name] for name in names}
        if path.stem.startswith("bench_"):
            found[path.stem.removeprefix("bench_")] = [f"lab.benchmarks.{path.stem}"]
    return found


def run(name: str) -> Done:
    """Run one; its output is shown as it comes unless others run beside it."""
    command = [sys.executable, "-m", *programs()[name], *OPTIONS]
    began = time.monotonic()
    done = subprocess.run(
        command,
        stdout=subprocess.PIPE if IS_QUICK else None,
        stderr=subprocess.STDOUT if IS_QUICK else None,
        text=True,
        check=False,
    )
    seconds = time.monotonic() - began
    return Done(name=name, code=done.returncode, seconds=seconds, output=done.stdout or "")


def main() -> int:
    failed = []
    with ThreadPoolExecutor(max_workers=QUICK_AT_ONCE if IS_QUICK else 1) as threads:
        for done in threads.map(run, names(sys.argv[1:])):
            print(f"{done.output}{done.name}: {done.seconds:.1f} s\n", flush=True)
            if done.code:
                failed.append(done.name)
    if failed:
        print(f"failed: {', '.join(failed)}")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
