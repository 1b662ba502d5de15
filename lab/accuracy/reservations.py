"""What promises are worth: pods left without a node, and how much is refused for that.

Judges; must not simulate: ``lab.accuracy.sequences`` does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from itertools import product

from federation.model.placement import Certificate
from lab.accuracy.goals import Verdict
from lab.accuracy.sequences import BINDINGS, EVERY_NODE, Outcome, Plan, outcome
from lab.simulator_cluster import Placer

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


def judge(results: Sequence[Outcome], least_replicas: int) -> Iterator[Verdict]:
    """The goals; ``least_replicas`` is on how many planned replicas theirs is tried."""
    planned = _where(results, lambda plan: plan.placer is Placer.CLAIMS)
    unplanned = sum(each.unplanned for each in planned)
    yield _none_pending("G-10 planned", planned, least_replicas, unplanned)
    strict = _where(results, lambda plan: plan.certificate is STRICT)
    yield _none_pending("G-11 strict", strict, least_replicas // 2, 0)
    careful = _where(results, lambda plan: plan.certificate is CAREFUL and plan.budget > 0)
    burst = _where(careful, lambda plan: plan.report_every > OFTEN)
    for placer, limit in BURST_LIMITS.items():
        placed = [each for each in burst if each.plan.placer is placer]
        yield _few_pending(f"G-12 careful, burst, {placer.value}", placed, limit)
    often = _where(careful, lambda plan: plan.report_every == OFTEN)
    yield _few_pending("G-12 careful, a report every 10 decisions", often, OFTEN_LIMIT)
    yield from _acceptance(results)


def _acceptance(results: Sequence[Outcome]) -> Iterator[Verdict]:
    in_order = _where(
        results,
        lambda plan: (
            plan.certificate is CAREFUL
            and plan.placer is Placer.LEAST_ALLOCATED
            and not plan.shuffled
        ),
    )
    for often, least in ((BINDINGS, 0.96), (OFTEN, 0.99)):
        alike = [each for each in in_order if each.plan.report_every == often]
        by_cells = _total(_where(alike, lambda plan: plan.budget > 0), "accepted")
        by_nodes = _total(_where(alike, lambda plan: plan.budget == EVERY_NODE), "accepted")
        yield Verdict(
            goal="G-13 burst" if often == BINDINGS else "G-13 a report every 10 decisions",
            asked=f"64 cells accept {least:.0%} of what all nodes do",
            measured=f"{by_cells / by_nodes:.1%}",
            met=by_cells >= least * by_nodes,
        )


def _none_pending(
    goal: str, results: Sequence[Outcome], least_replicas: int, unplanned: int
) -> Verdict:
    accepted, pending = _total(results, "accepted"), _total(results, "pending")
    return Verdict(
        goal=goal,
        asked=f"none of {least_replicas:,} replicas pending, in any order; none without its plan",
        measured=f"{pending} of {accepted:,}, {unplanned} without",
        met=pending == 0 and unplanned == 0 and accepted >= least_replicas,
    )


def _few_pending(goal: str, results: Sequence[Outcome], limit: float) -> Verdict:
    share = _total(results, "pending") / max(_total(results, "accepted"), 1)
    return Verdict(
        goal=goal,
        asked=f"pending <= {limit:.2%}",
        measured=f"{share:.3%}",
        met=share <= limit,
    )


def _where(results: Iterable[Outcome], holds: Callable[[Plan], bool]) -> list[Outcome]:
    return [each for each in results if holds(each.plan)]


def _total(results: Iterable[Outcome], name: str) -> int:
    return sum(getattr(each, name) for each in results)
