"""Do promises hold in front of kube-scheduler? Streams of workloads over two member clusters.

Exits with 1 when a pod of a strict or planned promise was left without a node.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from lab.ending import clean_up_when_ended
from lab.truth.judging import Found, sum_of
from lab.truth.limits import show_adversary, show_odds
from lab.truth.plans import REAL_PATIENCE, SIMULATED_PATIENCE, Line, Plan
from lab.truth.real_members import VARIABLE, programs_there
from lab.truth.streams import Stream
from lab.truth.study import found_by
from lab.truth.virtual import found_in_memory

VIRTUAL = frozenset((Line.CAREFUL, Line.STRICT))
PROVEN = (Line.STRICT, Line.BINDER, Line.EXTENDER)
HEADER = (
    f"{'certificate':20}{'seed':>6}{'asked':>8}{'promised':>10}{'pending':>9}{'weakened':>10}"
    f"{'bindings':>10}{'refused':>9}{'that fitted':>13}{'seconds':>9}"
)


def main() -> int:
    parser = _parser()
    given = parser.parse_args()
    in_memory = given.virtual or given.adversary or given.odds > 0
    programs = None if given.simulated or in_memory else programs_there()
    if in_memory and (given.foreign or given.deleted or given.kills):
        parser.error("--foreign, --deleted and --kills need processes")
    if given.previewed and given.planes > 1:
        parser.error("--previewed and --planes 2 are looked at by themselves")
    if given.virtual and not VIRTUAL.issuperset(given.lines):
        parser.error("--virtual knows careful and strict lines alone")
    patience = given.patience or (REAL_PATIENCE if programs else SIMULATED_PATIENCE)
    plan = Plan(
        line=Line(given.lines[0]),
        seed=given.first_seed,
        stream=Stream(given.stream),
        bindings=given.bindings,
        nodes=tuple(given.nodes),
        foreign=given.foreign,
        deleted=given.deleted,
        kills=given.kills,
        burst=given.burst,
        shuffled=given.shuffled,
        previewed=given.previewed,
        planes=given.planes,
        quiet_seconds=patience,
        programs=programs,
    )
    plans = [replace(plan, seed=given.first_seed + number) for number in range(given.seeds)]
    print(f"kube-scheduler: {programs or 'simulated'}", flush=True)
    if given.odds:
        show_odds(plans, given.odds)
    if given.adversary:
        show_adversary(plans)
    if given.odds or given.adversary:
        return 0
    run = found_in_memory if given.virtual else _found
    return 1 if _broken([Line(line) for line in given.lines], plans, run, given.pods) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m lab.truth", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1, help="how many (default 1)")
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--stream", choices=list(Stream), default=Stream.PLAIN)
    parser.add_argument("--lines", nargs="+", choices=list(Line), default=list(Line))
    parser.add_argument("--bindings", type=int, default=200)
    parser.add_argument("--nodes", type=int, nargs="+", default=[54, 58], help="of each member")
    parser.add_argument("--foreign", type=int, default=0, help="pods of others that come and go")
    parser.add_argument(
        "--deleted", type=int, default=0, help="pods that are deleted while a scheduler looks"
    )
    parser.add_argument("--kills", type=int, default=0, help="kill -9 of agents and extenders")
    parser.add_argument("--burst", action="store_true", help="ask for everything at once")
    parser.add_argument("--shuffled", action="store_true", help="make pods in any order")
    parser.add_argument(
        "--previewed",
        action="store_true",
        help="preview what is asked for at once, all of it, and commit the previews then",
    )
    parser.add_argument(
        "--planes",
        type=int,
        choices=(1, 2),
        default=1,
        help="how many control planes what is asked for at once is shared among",
    )
    parser.add_argument("--pods", type=int, default=0, help="so many pending ones are named")
    parser.add_argument(
        "--patience",
        type=float,
        help="seconds without any pod finding a node, after which those without one count as "
        f"pending (default {SIMULATED_PATIENCE:g}, {REAL_PATIENCE:g} with a real kube-scheduler)",
    )
    parser.add_argument(
        "--virtual",
        action="store_true",
        help="in memory and on virtual time, without processes: careful and strict lines alone",
    )
    parser.add_argument(
        "--simulated",
        action="store_true",
        help=f"though {VARIABLE} names a folder with a real kube-scheduler",
    )
    parser.add_argument(
        "--odds",
        type=int,
        default=0,
        metavar="RUNS",
        help="in memory: in so many runs, how often a pod had stayed pending of what careful "
        "refuses, and what an oracle promises",
    )
    parser.add_argument(
        "--adversary",
        action="store_true",
        help="in memory: what an adversary leaves of what strict refuses, and what could be "
        "promised beside it at most",
    )
    return parser


def _broken(
    lines: Sequence[Line], plans: Sequence[Plan], run: Callable[[Plan], Found], shown: int
) -> int:
    """How many pods of strict and planned promises are left, once all lines were shown."""
    print(HEADER, flush=True)
    broken = 0
    for line in lines:
        founds = [_shown(replace(plan, line=line), run, shown) for plan in plans]
        if len(founds) > 1:
            _show(line, "all", sum_of(founds), None)
        broken += sum(len(found.pending) for found in founds) if line in PROVEN else 0
    return broken


def _found(plan: Plan) -> Found:
    with tempfile.TemporaryDirectory(prefix="fedsched-truth-", dir="/var/tmp") as folder:
        return found_by(plan, Path(folder))


def _shown(plan: Plan, run: Callable[[Plan], Found], shown: int) -> Found:
    began = time.monotonic()
    found = run(plan)
    _show(plan.line, str(plan.seed), found, time.monotonic() - began)
    for pod in found.pending[:shown]:
        print(f"    pending: {pod}")
    return found


def _show(line: str, seed: str, found: Found, seconds: float | None) -> None:
    lasted = "" if seconds is None else f"{seconds:.0f}"
    print(
        f"{line:20}{seed:>6}{found.asked:>8}{found.promised:>10}{len(found.pending):>9}"
        f"{found.weakened:>10}{found.bindings:>10}{found.refused:>9}{found.fitted:>13}"
        f"{lasted:>9}",
        flush=True,
    )


if __name__ == "__main__":
    clean_up_when_ended()
    sys.exit(main())
