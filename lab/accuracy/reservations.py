"""What promises are worth: many decisions over a fleet, pods without a node, and what is refused.

Must not place pods: simulated clusters do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from typing import Final

import numpy as np

from federation.model.placement import Binding, Certificate
from lab.packed_clusters import (
    CPU_ROW,
    MEMORY_ROW,
    MIXES,
    ClusterPlan,
    Int64Array,
    PackingStrategy,
    allocatable_of,
    customary_shapes,
    packed_clusters,
)
from lab.promising import interests_by_name
from lab.simulator import ControlPlane, Decided, divided
from lab.simulator_cluster import Placer, SimulatedCluster, amounts_of
from lab.verdicts import Verdicts, at_least, at_most

CLUSTERS: Final = 20
BINDINGS: Final = 200
# What is asked for in relation to what is free: a fifth of it has to be refused.
LOAD: Final = 1.2
EVERY_NODE: Final = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One sequence: what is promised, who places, and after how many decisions reports come.

    ``budget`` is in cells a cluster, EVERY_NODE for each by itself. ``shuffled`` pods come in any
    order, else in that of the decisions.
    """

    seed: int
    certificate: Certificate | None
    placer: Placer
    budget: int = 64
    report_every: int = BINDINGS
    shuffled: bool = False

    @property
    def title(self) -> str:
        """All but the seed."""
        certificate = self.certificate.value if self.certificate else "planned"
        cells = f"{self.budget} cells" if self.budget else "every node"
        burst = "burst" if self.report_every == BINDINGS else f"a report every {self.report_every}"
        order = "shuffled" if self.shuffled else "in order"
        return f"{certificate}, {self.placer.value}, {cells}, {burst}, {order}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Replicas asked for, promised, and promised without a node in the end.

    ``unplanned`` promises were to be planned and became careful.
    """

    plan: Plan
    asked: int
    accepted: int
    pending: int
    unplanned: int


def outcome(plan: Plan) -> Outcome:
    """Let a sequence happen."""
    clusters = {name: _cluster(name, made, plan) for name, made in _fleet(plan.seed).items()}
    follows = plan.placer is Placer.CLAIMS
    control = ControlPlane(clusters, clusters if follows else ())
    random = np.random.default_rng(plan.seed)
    wanted = bindings(plan.seed)
    unplanned = accepted = 0
    for start in range(0, BINDINGS, plan.report_every):
        for name, cluster in clusters.items():
            control.accept(name, cluster.snapshot())
        known = {id(pod) for cluster in clusters.values() for pod in cluster.waiting}
        for binding in wanted[start : start + plan.report_every]:
            decided = control.submit(replace(binding, certificate=plan.certificate))
            if decided is not None:
                accepted += binding.replicas
                unplanned += _order(control, clusters, decided)
        for cluster in clusters.values():
            _place(cluster, known, plan, random)
    return Outcome(
        plan=plan,
        asked=sum(binding.replicas for binding in wanted),
        accepted=accepted,
        pending=sum(len(cluster.waiting) for cluster in clusters.values()),
        unplanned=unplanned,
    )


@lru_cache(maxsize=2)
def bindings(seed: int) -> Sequence[Binding]:
    """Customary shapes, all as likely, in sizes that add up to the load."""
    random = np.random.default_rng(seed)
    shapes = [shape for shape in customary_shapes() if shape]
    chosen = [shapes[int(place)] for place in random.integers(len(shapes), size=BINDINGS)]
    sizes = random.lognormal(0.0, 1.0, BINDINGS)
    free_r = sum(free_rn.sum(axis=1) for _, free_rn in _fleet(seed).values())
    scale = _scale(chosen, sizes, free_r)
    return [
        divided(f"b{place}", shape, max(1, int(size * scale)))
        for place, (shape, size) in enumerate(zip(chosen, sizes, strict=True))
    ]


def _scale(shapes: Sequence[Mapping[str, int]], sizes: np.ndarray, free_r: Int64Array) -> float:
    """By what to multiply the sizes so that the tighter of cpu and memory is asked LOAD times."""
    rows = [CPU_ROW, MEMORY_ROW]
    amount_rb = np.stack([amounts_of(shape)[rows] for shape in shapes], axis=1)

    def load(scale: float) -> float:
        asked_r = (amount_rb * np.maximum((sizes * scale).astype(np.int64), 1)).sum(axis=1)
        return float((asked_r / free_r[rows]).max())

    low, high = 0.0, 10_000.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if load(middle) < LOAD else (low, middle)
    return low


@lru_cache(maxsize=2)
def _fleet(seed: int) -> Mapping[str, tuple[Int64Array, Int64Array]]:
    """By name what each cluster's nodes have for pods, and what of it is free."""
    random = np.random.default_rng(seed)
    fleet = {}
    for place in range(CLUSTERS):
        plan = ClusterPlan(
            mix=MIXES[int(random.integers(len(MIXES)))],
            nodes=int(random.integers(20, 401)),
            packing=list(PackingStrategy)[int(random.integers(2))],
            seed=1000 * seed + place,
            fills=(float(random.uniform(0.5, 0.95)),),
        )
        ((_, free_rn),) = packed_clusters(plan)
        fleet[f"member{place + 1}"] = allocatable_of(plan), free_rn
    return fleet


def _cluster(name: str, made: tuple[Int64Array, Int64Array], plan: Plan) -> SimulatedCluster:
    allocatable_rn, free_rn = made
    return SimulatedCluster(
        name=name,
        allocatable_rn=allocatable_rn,
        free_rn=free_rn.copy(),
        placer=plan.placer,
        budget=plan.budget,
    )


def _place(
    cluster: SimulatedCluster, known: set[int], plan: Plan, random: np.random.Generator
) -> None:
    """Give the new pods their turn; those that found no node before find none now either."""
    pods = [pod for pod in cluster.waiting if id(pod) not in known]
    if plan.shuffled:
        pods = [pods[place] for place in random.permutation(len(pods)).tolist()]
    cluster.place(pods, random)


def _order(
    control: ControlPlane, clusters: Mapping[str, SimulatedCluster], decided: Decided
) -> int:
    """Have a decision carried out; how many of its planned promises found no plan."""
    unplanned = 0
    for target in decided.binding.clusters:
        cluster, ledger = clusters[target.name], control.ledger(target.name)
        cluster.told(ledger.interest_version, interests_by_name(ledger))
        cluster.run(decided.order(target))
        if cluster.follows_claims:
            unplanned += control.without_plan(target.name, sorted(cluster.unplanned))
    return unplanned


OFTEN = 10
STOCK = (Placer.DEFAULT_STRATEGY, Placer.LEAST_ALLOCATED)
CAREFUL, STRICT = Certificate.CAREFUL, Certificate.STRICT

# The largest share of replicas that may be left pending in a burst.
BURST_LIMITS = {Placer.DEFAULT_STRATEGY: 0.002, Placer.LEAST_ALLOCATED: 0.015}
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
