"""The goals that estimates from pools are held to, and what was measured of each.

Must not measure: it judges answers that are there already.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from federation.model.estimate import ModelRule
from lab.accuracy.errors import Errors, Method, errors, ranking
from lab.accuracy.measure import BUDGETS, Answers
from lab.fleets import Int64Array

CUSTOMARY = slice(0, 33)
RANDOM = slice(33, None)
LARGE = 2000
KIB = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """One goal: what is asked for, what was measured, and whether that is enough."""

    goal: str
    asked: str
    measured: str
    met: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """Answers of clusters that fill up, and of two fleets that are ranked."""

    clusters: Sequence[Answers]
    mixed_fleet: Sequence[Answers]
    equal_fleet: Sequence[Answers]

    def of_size(self, nodes: int) -> list[Answers]:
        return [each for each in self.clusters if each.plan.nodes == nodes]

    @property
    def large(self) -> list[Answers]:
        return [each for each in self.clusters if each.plan.nodes >= LARGE]


def tighter(budget: int) -> Method:
    """LB+ with so many cells."""
    place = BUDGETS.index(budget)
    return lambda answers: answers.lower_bs[place]


def simple(budget: int) -> Method:
    """LB with so many cells."""
    place = BUDGETS.index(budget)
    return lambda answers: answers.simple_bs[place]


def upper(budget: int) -> Method:
    """UB with so many cells."""
    place = BUDGETS.index(budget)
    return lambda answers: answers.upper_bs[place]


def rival(name: str) -> Method:
    """Totals or a rule over grades."""

    def method(answers: Answers) -> Int64Array:
        return answers.rivals[name]

    return method


def judge(results: Results, least_pairs: int) -> Iterator[Verdict]:
    """Every goal; ``least_pairs`` is how many pairs of cluster and shape bounds are tried on."""
    yield _bounds_hold(results, least_pairs)
    yield _few_nodes_are_exact(results)
    yield from _customary_shapes(results)
    yield from _random_shapes(results)
    yield from _says_none(results)
    yield from _ranks(results)
    yield from _bytes(results)
    yield from _times(results)
    yield from _against_grades(results)


def _bounds_hold(results: Results, least_pairs: int) -> Verdict:
    every = [*results.clusters, *results.mixed_fleet, *results.equal_fleet]
    pairs = sum(len(each.truth_s) for each in every)
    broken = sum(
        int((each.simple_bs > each.lower_bs).sum())
        + int((each.lower_bs > each.truth_s).sum())
        + int((each.upper_bs < each.truth_s).sum())
        for each in every
    )
    return Verdict(
        goal="G-1",
        asked=f"LB <= LB+ <= truth <= UB for {least_pairs:,} pairs and every budget",
        measured=f"{broken} broken in {pairs:,} pairs",
        met=broken == 0 and pairs >= least_pairs,
    )


def _few_nodes_are_exact(results: Results) -> Verdict:
    wrong = tried = 0
    for each in [*results.clusters, *results.mixed_fleet, *results.equal_fleet]:
        for place, budget in enumerate(BUDGETS):
            if each.distinct_nodes <= budget:
                tried += len(each.truth_s)
                wrong += int((each.lower_bs[place] != each.truth_s).sum())
                wrong += int((each.upper_bs[place] != each.truth_s).sum())
    return Verdict(
        goal="G-2",
        asked="no error where there are no more distinct nodes than cells",
        measured=f"{wrong} wrong in {tried:,} answers",
        met=wrong == 0 and tried > 0,
    )


def _limits(goal: str, found: Errors, **limits: float) -> Verdict:
    return Verdict(
        goal=goal,
        asked=", ".join(f"{name} <= {limit:.1%}" for name, limit in limits.items()),
        measured=", ".join(f"{name} {getattr(found, name):.2%}" for name in limits),
        met=all(getattr(found, name) <= limit for name, limit in limits.items()),
    )


def _filled(results: Results, is_wanted: Callable[[float], bool]) -> list[Answers]:
    return [each for each in results.large if is_wanted(each.fill)]


def _customary_shapes(results: Results) -> Iterator[Verdict]:
    nearly_full = _filled(results, lambda fill: fill >= 0.9)
    every = errors(results.large, tighter(64), CUSTOMARY)
    yield _limits("G-3 64 cells", every, median=0.01, mean=0.04, p95=0.16)
    full = errors(nearly_full, tighter(64), CUSTOMARY)
    yield _limits("G-3 64 cells, >= 90 % full", full, median=0.06, mean=0.09)
    every = errors(results.large, tighter(256), CUSTOMARY)
    yield _limits("G-4 256 cells", every, median=0.005, mean=0.02, p95=0.08)
    full = errors(nearly_full, tighter(256), CUSTOMARY)
    yield _limits("G-4 256 cells, >= 90 % full", full, mean=0.03)


def _random_shapes(results: Results) -> Iterator[Verdict]:
    # As the goals were set: the emptiest clusters, which are easy, are left out.
    some_full = _filled(results, lambda fill: fill >= 0.3)
    yield _limits("G-5 64 cells", errors(some_full, tighter(64), RANDOM), median=0.03, mean=0.08)
    found = errors(some_full, tighter(256), RANDOM)
    yield _limits("G-5 256 cells", found, median=0.025, mean=0.06)
    two_fills = _filled(results, lambda fill: fill in (0.7, 0.95))
    found = errors(two_fills, tighter(64), RANDOM)
    yield _limits("G-5 64 cells, 70 and 95 % full", found, median=0.05, mean=0.10)


def _says_none(results: Results) -> Iterator[Verdict]:
    found = errors(results.clusters, tighter(64), CUSTOMARY)
    yield _limits("G-6 customary shapes", found, says_none=0.003)
    found = errors(results.clusters, tighter(64), RANDOM)
    yield _limits("G-6 random shapes", found, says_none=0.01)


def _ranks(results: Results) -> Iterator[Verdict]:
    fleets = {"mixed sizes": results.mixed_fleet, "one size": results.equal_fleet}
    for name, fleet in fleets.items():
        found = ranking(fleet, tighter(64), CUSTOMARY)
        yield Verdict(
            goal=f"G-7 {len(fleet)} clusters, {name}",
            asked="worst Spearman >= 0.995, best pick >= 99.5%, misplaced <= 1% (worst 5%)",
            measured=f"{found.correlation:.4f}, {found.best_pick:.2%}, "
            f"{found.misplaced:.2%} ({found.worst_misplaced:.2%})",
            met=found.correlation >= 0.995
            and found.best_pick >= 0.995
            and found.misplaced <= 0.01
            and found.worst_misplaced <= 0.05,
        )


def _bytes(results: Results) -> Iterator[Verdict]:
    for budget, limits in ((64, (1.2, 2.4, 3.0)), (256, (4.5, 8.0, 11.0))):
        place = BUDGETS.index(budget)
        counts = np.array([each.byte_count_b[place] for each in results.large]).max(axis=0) / KIB
        yield Verdict(
            goal=f"G-8 {budget} cells",
            asked=" / ".join(f"{limit:.1f}" for limit in limits)
            + " KiB (minimums, sums of three, all sums)",
            measured=" / ".join(f"{count:.2f}" for count in counts) + " KiB at most",
            met=bool((counts <= limits).all()),
        )


def _times(results: Results) -> Iterator[Verdict]:
    largest = max(each.plan.nodes for each in results.clusters)
    builds = [each.build_seconds * 1000 for each in results.of_size(largest)]
    refreshes = [each.refresh_seconds * 1000 for each in results.of_size(largest)]
    yield Verdict(
        goal=f"G-9 build, {largest} nodes",
        asked="median <= 100 ms, worst <= 300 ms",
        measured=f"{np.median(builds):.0f} ms, {max(builds):.0f} ms",
        met=bool(np.median(builds) <= 100) and max(builds) <= 300,
    )
    yield Verdict(
        goal=f"G-9 refresh, {largest} nodes",
        asked="median <= 5 ms",
        measured=f"{np.median(refreshes):.1f} ms",
        met=bool(np.median(refreshes) <= 5),
    )


def _against_grades(results: Results) -> Iterator[Verdict]:
    ours = errors(results.large, tighter(64), CUSTOMARY)
    for rule in (ModelRule.SIMULATED, ModelRule.DOCUMENTED):
        theirs = errors(results.large, rival(rule.value), CUSTOMARY)
        yield Verdict(
            goal=f"G-14 against {rule.value}",
            asked="mean error 20 times smaller, never above the truth",
            measured=f"{theirs.mean / ours.mean:.0f} times, {ours.over:.1%} against "
            f"{theirs.over:.1%} above",
            met=theirs.mean >= 20 * ours.mean and ours.over == 0,
        )
