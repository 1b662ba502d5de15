"""Do promises hold in front of kube-scheduler? Streams of workloads over two member clusters.

Exits with 1 when a pod of a strict or planned promise was left without a node.
"""

from __future__ import annotations

import sys
import time
from argparse import ArgumentParser
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise

from lab.programs import clean_up_when_ended, own_folder, parser
from lab.truth.adversary import challenged, found_unbroken
from lab.truth.clusters import VARIABLE, programs_there
from lab.truth.odds import Refusal, found_by_oracle, refusals_of
from lab.truth.plans import REAL_PATIENCE, SIMULATED_PATIENCE, Found, Line, Plan, sum_of
from lab.truth.streams import Stream
from lab.truth.study import found_by
from lab.truth.virtual import found_in_memory
from lab.verdicts import Verdicts, at_most

# Up to which odds refusals are counted together; shares of runs that an oracle may lose.
ODDS = (0.0, 0.01, 0.05, 0.2, 0.5, 1.0)
ALLOWED = (0.0, 0.05, 0.1, 0.2)


def show_odds(figures: Verdicts, plans: Sequence[Plan], runs: int) -> None:
    """Careful's refusals by the odds of a pending pod, and what an oracle does at such odds."""
    plans = [replace(plan, line=Line.CAREFUL) for plan in plans]
    founds, refusals = list[Found](), list[Refusal]()
    for plan in plans:
        found, refused = refusals_of(plan, runs)
        founds.append(found)
        refusals += refused
    figures.section(f"refused by careful, by the share of {runs} runs with a pending pod")
    for low, high in pairwise((-1.0, *ODDS)):
        among = [each for each in refusals if low < each.odds <= high]
        fitted = sum(each.had_fitted for each in among)
        figures.row(_band(low, high), len(among), detail=f"{fitted} that fitted")
    figures.section(f"an oracle that knows all but luck, by the share of {runs} runs it may lose")
    _show_limit(figures, "careful", sum_of(founds))
    for allowed in ALLOWED:
        total = sum_of([found_by_oracle(plan, runs, allowed) for plan in plans])
        _show_limit(figures, f"oracle, {allowed:.0%} of runs", total)


def show_adversary(figures: Verdicts, plans: Sequence[Plan]) -> None:
    """What an adversary does to what strict refuses, and what may be promised beside it at most."""
    figures.section("what an adversary breaks of strict, and what it cannot break")
    totals: dict[str, list[Found]] = {}
    every_broken = 0
    for plan in plans:
        strict = replace(plan, line=Line.STRICT)
        judged = challenged(strict)
        every_broken += judged.broken
        careful = found_in_memory(replace(plan, line=Line.CAREFUL))
        rows = {"careful": careful, "strict": judged.found, "unbroken": found_unbroken(strict)}
        for name, found in rows.items():
            _show_limit(
                figures,
                f"{name}, seed {plan.seed}",
                found,
                judged.broken if name == "strict" else None,
            )
            totals.setdefault(name, []).append(found)
    for name, founds in totals.items():
        _show_limit(
            figures, f"{name}, all", sum_of(founds), every_broken if name == "strict" else None
        )


def _band(low: float, high: float) -> str:
    if high <= 0:
        return "none"
    return f"more than {max(low, 0.0):.0%}, up to {high:.0%}"


def _show_limit(figures: Verdicts, name: str, found: Found, broken: int | None = None) -> None:
    also = "" if broken is None else f", broken {broken}"
    figures.row(
        f"{name}: pods left pending",
        len(found.pending),
        detail=f"{found.promised_and_refused}{also}",
    )


VIRTUAL = frozenset((Line.CAREFUL, Line.STRICT))
PROVEN = (Line.STRICT, Line.BINDER, Line.EXTENDER)


def main() -> int:
    options = _options()
    given = options.parse_args()
    in_memory = given.virtual or given.adversary or given.odds > 0
    programs = None if given.simulated or in_memory else programs_there()
    if in_memory and (given.foreign or given.deleted or given.kills):
        options.error("--foreign, --deleted and --kills need processes")
    if given.previewed and given.planes > 1:
        options.error("--previewed and --planes 2 are looked at by themselves")
    if given.virtual and not VIRTUAL.issuperset(given.lines):
        options.error("--virtual knows careful and strict lines alone")
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
    figures = Verdicts("truth")
    figures.section(f"kube-scheduler: {programs or 'simulated'}")
    if given.odds:
        show_odds(figures, plans, given.odds)
    if given.adversary:
        show_adversary(figures, plans)
    if given.odds or given.adversary:
        return 0
    run = found_in_memory if given.virtual else _found
    for line in map(Line, given.lines):
        founds = [_shown(figures, replace(plan, line=line), run, given.pods) for plan in plans]
        if len(founds) > 1:
            _show(figures, line, "all", sum_of(founds), "")
    return int(figures.missed > 0)


def _options() -> ArgumentParser:
    options = parser("truth", __doc__)
    options.add_argument("--seeds", type=int, default=1, help="how many (default 1)")
    options.add_argument("--first-seed", type=int, default=1)
    options.add_argument("--stream", choices=list(Stream), default=Stream.PLAIN)
    options.add_argument("--lines", nargs="+", choices=list(Line), default=list(Line))
    options.add_argument("--bindings", type=int, default=200)
    options.add_argument("--nodes", type=int, nargs="+", default=[54, 58], help="of each member")
    options.add_argument("--foreign", type=int, default=0, help="pods of others that come and go")
    options.add_argument(
        "--deleted", type=int, default=0, help="pods that are deleted while a scheduler looks"
    )
    options.add_argument("--kills", type=int, default=0, help="kill -9 of agents and extenders")
    options.add_argument("--burst", action="store_true", help="ask for everything at once")
    options.add_argument("--shuffled", action="store_true", help="make pods in any order")
    options.add_argument(
        "--previewed",
        action="store_true",
        help="preview what is asked for at once, all of it, and commit the previews then",
    )
    options.add_argument(
        "--planes",
        type=int,
        choices=(1, 2),
        default=1,
        help="how many control planes what is asked for at once is shared among",
    )
    options.add_argument("--pods", type=int, default=0, help="so many pending ones are named")
    options.add_argument(
        "--patience",
        type=float,
        help="seconds without any pod finding a node, after which those without one count as "
        f"pending (default {SIMULATED_PATIENCE:g}, {REAL_PATIENCE:g} with a real kube-scheduler)",
    )
    options.add_argument(
        "--virtual",
        action="store_true",
        help="in memory and on virtual time, without processes: careful and strict lines alone",
    )
    options.add_argument(
        "--simulated",
        action="store_true",
        help=f"though {VARIABLE} names a folder with a real kube-scheduler",
    )
    options.add_argument(
        "--odds",
        type=int,
        default=0,
        metavar="RUNS",
        help="in memory: in so many runs, how often a pod had stayed pending of what careful "
        "refuses, and what an oracle promises",
    )
    options.add_argument(
        "--adversary",
        action="store_true",
        help="in memory: what an adversary leaves of what strict refuses, and what could be "
        "promised beside it at most",
    )
    return options


def _found(plan: Plan) -> Found:
    with own_folder("truth") as folder:
        return found_by(plan, folder)


def _shown(figures: Verdicts, plan: Plan, run: Callable[[Plan], Found], shown: int) -> Found:
    began = time.monotonic()
    found = run(plan)
    lasted = f", {time.monotonic() - began:.0f} s"
    _show(figures, plan.line, f"seed {plan.seed}", found, lasted)
    for pod in found.pending[:shown]:
        figures.note(f"pending: {pod}")
    return found


def _show(figures: Verdicts, line: Line, which: str, found: Found, lasted: str) -> None:
    goal = at_most(0) if line in PROVEN else None
    detail = f"asked {found.asked}, {found.promised_and_refused}, weakened {found.weakened}{lasted}"
    name = f"{line}, {which}: pods left pending"
    figures.row(name, len(found.pending), goal=goal, detail=detail)


if __name__ == "__main__":
    clean_up_when_ended()
    sys.exit(main())
