"""Drills with real PostgreSQL servers: what callers were told survives what happens to databases.

``failover``: the primary is killed under load, its synchronous standby promoted; ``--asynchronous``
shows what may be lost without one. ``restore``: the database goes back to a backup. ``stack``: the
demo's programs stay up for so long, and every feature is used again and again. Exits with 1 where a
promise breaks, decisions come back late, a command fails, or a program logs an error.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from lab.drills.failover import GOAL_SECONDS, fail_over
from lab.drills.restore import go_back
from lab.drills.stack import run_stack
from lab.ending import clean_up_when_ended


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m lab.drills", description=__doc__)
    parser.add_argument("name", choices=["failover", "restore", "stack"])
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--asynchronous", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fedsched-drill-", dir="/var/tmp") as folder:
        if given.name == "restore":
            return restored(Path(folder))
        if given.name == "stack":
            return stayed_up(Path(folder), given.seconds)
        return failed_over(Path(folder), given.seconds, synchronous=not given.asynchronous)


def failed_over(folder: Path, seconds: float, *, synchronous: bool) -> int:
    result = fail_over(folder, synchronous=synchronous, seconds=seconds)
    verdict = "kept" if result.back_seconds <= GOAL_SECONDS else "MISSED"
    broken = result.broken()
    how = "synchronous" if synchronous else "asynchronous"
    print(f"failover to a standby that is {how}")
    print(f"  decisions told           {result.acknowledged}, {result.before} before the kill")
    print(f"  calls that failed        {result.failed}")
    print(f"  told and lost            {result.lost}")
    print(f"  pods without a node      {result.pending}")
    print(
        f"  first decision after     {result.back_seconds:.1f} s from the first command   "
        f"goal <= {GOAL_SECONDS:g} s: {verdict}"
    )
    for promise in broken:
        print(f"  BROKEN: {promise}")
    return 1 if broken else 0


def restored(folder: Path) -> int:
    result = go_back(folder)
    print("restore to a backup")
    print(f"  decisions told           {result.before} before it, {result.since} since")
    print(f"  told while agents were silent   {result.frozen}")
    print(f"  told until full          {result.after}")
    print(f"  pods without a node      {result.pending}")
    return 1 if result.frozen or result.pending else 0


def stayed_up(folder: Path, seconds: float) -> int:
    result = run_stack(folder, seconds)
    broken = result.broken()
    print("a whole stack")
    print(f"  rounds                  {result.rounds}")
    print(f"  commands                {result.commands}, of which {len(result.failures)} failed")
    print(f"  the demo ended with     {result.code}")
    for reason in broken:
        print(f"  BROKEN: {reason}")
    return 1 if broken else 0


if __name__ == "__main__":
    clean_up_when_ended()
    sys.exit(main())
