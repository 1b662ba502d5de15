"""What no rule can do better: tables of odds, of an oracle and of an adversary, seed by seed.

Must not run studies itself: ``odds`` and ``soundness`` do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from lab.truth.judging import Found, sum_of
from lab.truth.odds import Refusal, found_by_oracle, refusals_of
from lab.truth.plans import Line, Plan
from lab.truth.soundness import challenged, found_unbroken
from lab.truth.virtual import found_in_memory
from lab.verdicts import Verdicts

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
    _show(figures, "careful", sum_of(founds))
    for allowed in ALLOWED:
        total = sum_of([found_by_oracle(plan, runs, allowed) for plan in plans])
        _show(figures, f"oracle, {allowed:.0%} of runs", total)


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
            _show(
                figures,
                f"{name}, seed {plan.seed}",
                found,
                judged.broken if name == "strict" else None,
            )
            totals.setdefault(name, []).append(found)
    for name, founds in totals.items():
        _show(figures, f"{name}, all", sum_of(founds), every_broken if name == "strict" else None)


def _band(low: float, high: float) -> str:
    if high <= 0:
        return "none"
    return f"more than {max(low, 0.0):.0%}, up to {high:.0%}"


def _show(figures: Verdicts, name: str, found: Found, broken: int | None = None) -> None:
    also = "" if broken is None else f", broken {broken}"
    figures.row(
        f"{name}: pods left pending",
        len(found.pending),
        detail=f"{found.promised_and_refused}{also}",
    )
