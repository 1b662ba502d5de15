"""Many decisions over a fleet, and the pods that find no node once placers have had their way.

Must not judge: ``lab.accuracy.reservations`` does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

import numpy as np

from federation.model.placement import Binding, Certificate
from lab.echoes import interests_by_name
from lab.fleets import (
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
from lab.simulator import ControlPlane, Decided, divided
from lab.simulator_cluster import Placer, SimulatedCluster, amounts_of

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
    control = ControlPlane(
        names=tuple(clusters), follows_claims=frozenset(clusters if follows else ())
    )
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
        cluster, ledger = clusters[target.name], control.ledger.of(target.name)
        cluster.told(ledger.interest_version, interests_by_name(ledger))
        cluster.run(decided.order(target))
        if cluster.follows_claims:
            unplanned += control.without_plan(target.name, sorted(cluster.unplanned))
    return unplanned
