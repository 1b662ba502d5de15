"""What promises are worth: pods left without a node, and how much is refused for that.

Judges; must not simulate: ``lab.accuracy.sequences`` does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from itertools import product

from federation.model.placement import Certificate
from lab.accuracy.sequences import BINDINGS, EVERY_NODE, Outcome, Plan, outcome
from lab.simulator_cluster import Placer
from lab.verdicts import Verdicts, at_least, at_most

OFTEN = 10
STOCK = (Placer.MOST_ALLOCATED, Placer.LEAST_ALLOCATED)
CAREFUL, STRICT = Certificate.CAREFUL, Certificate.STRICT

# The largest share of replicas that may be left pending in a burst.
BURST_LIMITS = {Placer.MOST_ALLOCATED: 0.002, Placer.LEAST_ALLOCATED: 0.015}
OFTEN_LIMIT = 0.0005


def plans(seeds: int) -> list[Plan]:
    """Every certificate under every placer that it is about, in bursts and with fresh reports."""
    found = []
    for seed, report_every in product(range(seeds), (BINDINGS, OFTEN)):
        base = Plan(seed=seed, certificate=CAREFUL, placer=Placer.CLAIMS, report_every=report_every)
        nodes = replace(base, placer=Placer.LEAST_ALLOCATED, budget=EVERY_NODE)
        found.append(nodes)
        for shuffled in (False, True):
            run = replace(base, shuffled=shuffled)
            found.append(replace(run, certificate=None))
            found += [replace(run, placer=placer) for placer in STOCK]
        strict = replace(base, certificate=STRICT, shuffled=True)
        found += [replace(strict, placer=placer) for placer in (*STOCK, Placer.RANDOM)]
    return found


def outcomes(executor: Executor, seeds: int) -> list[Outcome]:
    """All sequences, those of one seed after each other: they share a fleet."""
    return list(executor.map(outcome, plans(seeds)))


def print_outcomes(results: Sequence[Outcome]) -> None:
    """A table of what was accepted and left pending, over all seeds."""
    print("\nPromises: 200 decisions over 20 clusters, 1.2 times what is free")
    print(f"{'':66}  accepted   pending")
    by_plan: dict[str, list[Outcome]] = {}
    for each in results:
        by_plan.setdefault(each.plan.title, []).append(each)
    for title, group in by_plan.items():
        accepted, asked = _total(group, "accepted"), _total(group, "asked")
        pending = _total(group, "pending") / max(accepted, 1)
        print(f"{title:66}  {accepted / asked:8.1%}  {pending:8.3%}")


def judge(figures: Verdicts, results: Sequence[Outcome], min_replicas: int) -> None:
    """The goals; ``min_replicas`` is on how many planned replicas theirs is tried."""
    planned = _where(results, lambda plan: plan.placer is Placer.CLAIMS)
    strict = _where(results, lambda plan: plan.certificate is STRICT)
    for goal, proven, least in (
        ("G-10 planned", planned, min_replicas),
        ("G-11 strict", strict, min_replicas // 2),
    ):
        figures.row(f"{goal}, pending in any order", _total(proven, "pending"), goal=at_most(0))
        figures.row(f"{goal}, replicas", _total(proven, "accepted"), goal=at_least(least))
    figures.row("G-10 planned, without a plan", _total(planned, "unplanned"), goal=at_most(0))
    careful = _where(results, lambda plan: plan.certificate is CAREFUL and plan.budget > 0)
    burst = _where(careful, lambda plan: plan.report_every > OFTEN)
    for placer, limit in BURST_LIMITS.items():
        placed = [each for each in burst if each.plan.placer is placer]
        _few_pending(figures, f"G-12 careful, burst, {placer.value}", placed, limit)
    often = _where(careful, lambda plan: plan.report_every == OFTEN)
    _few_pending(figures, "G-12 careful, a report every 10 decisions", often, OFTEN_LIMIT)
    _acceptance(figures, results)


def _acceptance(figures: Verdicts, results: Sequence[Outcome]) -> None:
    """64 cells accept nearly all of what all nodes do."""
    in_order = _where(
        results,
        lambda plan: (
            plan.certificate is CAREFUL
            and plan.placer is Placer.LEAST_ALLOCATED
            and not plan.shuffled
        ),
    )
    for often, percent in ((BINDINGS, 96), (OFTEN, 99)):
        alike = [each for each in in_order if each.plan.report_every == often]
        by_cells = _total(_where(alike, lambda plan: plan.budget > 0), "accepted")
        by_nodes = _total(_where(alike, lambda plan: plan.budget == EVERY_NODE), "accepted")
        when = "burst" if often == BINDINGS else "a report every 10 decisions"
        accepted = 100 * by_cells / by_nodes
        figures.row(f"G-13 {when}, accepted", accepted, "%", goal=at_least(percent))


def _few_pending(figures: Verdicts, goal: str, results: Sequence[Outcome], limit: float) -> None:
    percent = 100 * _total(results, "pending") / max(_total(results, "accepted"), 1)
    figures.row(f"{goal}, pending", percent, "%", goal=at_most(100 * limit))


def _where(results: Iterable[Outcome], holds: Callable[[Plan], bool]) -> list[Outcome]:
    return [each for each in results if holds(each.plan)]


def _total(results: Iterable[Outcome], name: str) -> int:
    return sum(getattr(each, name) for each in results)
