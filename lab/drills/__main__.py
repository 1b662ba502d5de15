"""Drills with real PostgreSQL servers: what callers were told survives what happens to databases.

``failover``: the primary is killed under load, its synchronous standby promoted; ``--asynchronous``
shows what may be lost without one. ``restore``: the database goes back to a backup. ``stack``: the
demo's programs stay up for so long, and every feature is used again and again. Exits with 1 where a
promise breaks, decisions come back late, a command fails, or a program logs an error.
"""

from __future__ import annotations

import sys
from pathlib import Path

from lab.drills.failover import GOAL_SECONDS, fail_over, go_back
from lab.drills.stack import run_stack
from lab.programs import clean_up_when_ended, own_folder, parser
from lab.verdicts import Result, Verdicts, at_most


def main() -> int:
    options = parser("drills", __doc__)
    options.add_argument("name", choices=["failover", "restore", "stack"])
    options.add_argument("--seconds", type=float, default=10.0)
    options.add_argument("--asynchronous", action="store_true")
    given = options.parse_args()
    with own_folder("drill") as folder:
        if given.name == "restore":
            return restored(folder)
        if given.name == "stack":
            return stayed_up(folder, given.seconds)
        return failed_over(folder, given.seconds, synchronous=not given.asynchronous)


def failed_over(folder: Path, seconds: float, *, synchronous: bool) -> int:
    result, figures = (
        fail_over(folder, synchronous=synchronous, seconds=seconds),
        Verdicts("drills"),
    )
    how = "synchronous" if synchronous else "asynchronous"
    figures.section(f"failover to a standby that is {how}")
    before = f"{result.before} before the kill"
    figures.row("decisions told", result.acknowledged, detail=before)
    figures.row("calls that failed", result.failed)
    figures.row("told and lost", result.lost)
    figures.row("pods without a node", result.pending)
    goal = at_most(GOAL_SECONDS)
    figures.row("from the first command to a decision", result.back_seconds, "s", goal=goal)
    return Result(violations=result.broken()).show(figures)


def restored(folder: Path) -> int:
    result, figures = go_back(folder), Verdicts("drills")
    figures.section("restore to a backup")
    since = f"{result.since} since"
    figures.row("decisions told before it", result.before, detail=since)
    figures.row("told while agents were silent", result.frozen, goal=at_most(0))
    figures.row("told until full", result.after)
    figures.row("pods without a node", result.pending, goal=at_most(0))
    return int(figures.missed > 0)


def stayed_up(folder: Path, seconds: float) -> int:
    result, figures = run_stack(folder, seconds), Verdicts("drills")
    figures.section("a whole stack")
    figures.row("rounds", result.rounds)
    figures.row("commands", result.commands, detail=f"{len(result.failures)} failed")
    figures.row("the demo ended with", result.code)
    return Result(violations=result.broken()).show(figures)


if __name__ == "__main__":
    clean_up_when_ended()
    sys.exit(main())
