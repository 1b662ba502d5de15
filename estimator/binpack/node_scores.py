"""One pod against named nodes: each node's scores, what it is short of, and the parts of it all.

Must not read documents, nor choose a node: the files, the wire and people do with it as they like.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from estimator.binpack.arrays import NodeArrays, ReplicaRequest, insufficient, unresolvable
from estimator.binpack.balanced_allocation import BalancedAllocation
from estimator.binpack.profile import ScoringProfile, WeightedPlugin
from estimator.binpack.requests import replica_request
from estimator.binpack.strategy import ResourceScore, ScoreArray, Strategy, breakdown
from estimator.binpack.volcano import (
    VolcanoBinpack,
    quantity_text,
    volcano_amounts,
    volcano_request,
)
from federation.model.arrays import BoolArray, IntArray
from federation.model.errors import InvalidRequest
from federation.model.pod_request import PodResources
from federation.model.resources import MAX_AMOUNT, amount_of, format_amount


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLoad:
    """The amounts that a node offers and its pods request, in base units by resource name."""

    allocatable: Mapping[str, int]
    requested: Mapping[str, int]
    nonzero_requested: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of_pods(cls, allocatable: Mapping[str, int], pods: Iterable[ReplicaRequest]) -> NodeLoad:
        """A node that carries ``pods``."""
        requested: Counter[str] = Counter()
        nonzero_requested: Counter[str] = Counter()
        for pod in pods:
            requested.update(pod.amounts)
            nonzero_requested.update(pod.nonzero_placed)
        return cls(
            allocatable=allocatable, requested=requested, nonzero_requested=nonzero_requested
        )


def tabulate(nodes: Sequence[NodeLoad]) -> NodeArrays:
    """The columns of ``nodes``, in the order given."""
    return NodeArrays(
        size=len(nodes),
        allocatable=_columns([node.allocatable for node in nodes]),
        requested=_columns([node.requested for node in nodes]),
        nonzero_requested=_columns([node.nonzero_requested for node in nodes]),
    )


def _columns(rows: Sequence[Mapping[str, int]]) -> dict[str, IntArray]:
    names = {name for row in rows for name in row}
    return {
        name: np.array([row.get(name, 0) for row in rows], dtype=np.int64) for name in sorted(names)
    }


MAX_SCORED: Final = MAX_AMOUNT // 100


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeWithPods:
    """A node as it is written: quantities, and the pods it carries."""

    name: str
    allocatable: dict[str, str]
    pods: tuple[PodResources, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeScore:
    """The scores of one node.

    ``score`` is NodeResourcesFit's, 0 to 100, or Volcano's; None where the profile does not score
    by fit. ``balanced`` is BalancedAllocation's, None where that plugin has no say. ``total`` is
    the weighted sum the scheduler compares nodes by. ``insufficient`` names what the node has too
    little of free, ``unresolvable`` what it would have too little of even if empty.
    """

    name: str
    score: float | None
    balanced: int | None
    total: float
    insufficient: tuple[str, ...]
    unresolvable: tuple[str, ...]
    resources: tuple[ResourceScore, ...]


def score_nodes(
    strategy: Strategy, pod: PodResources, nodes: Sequence[NodeWithPods]
) -> tuple[NodeScore, ...]:
    """Every node's scores for ``pod``, in the order given; each scheduler's own units inside.

    Raises QuantityError for a text that is no quantity.
    """
    names = [node.name for node in nodes]
    if isinstance(strategy, VolcanoBinpack):
        loads = [
            NodeLoad.of_pods(volcano_amounts(node.allocatable), map(volcano_request, node.pods))
            for node in nodes
        ]
        return score_loads(strategy, volcano_request(pod), names, loads)
    loads = [
        NodeLoad.of_pods(
            {name: amount_of(name, text) for name, text in node.allocatable.items()},
            map(replica_request, node.pods),
        )
        for node in nodes
    ]
    return score_loads(strategy, replica_request(pod), names, loads)


def score_loads(
    strategy: Strategy, request: ReplicaRequest, names: Sequence[str], loads: Sequence[NodeLoad]
) -> tuple[NodeScore, ...]:
    """The same for nodes summed up already. Raises InvalidRequest for amounts too large."""
    _check_amounts(request, names, loads)
    nodes = tabulate(loads)
    total_n = strategy.score(nodes, request)
    score_n, balanced_n = _parts(strategy, nodes, request, total_n)
    columns = strategy.columns(nodes, request)
    short = _filtered(strategy, insufficient(nodes, request))
    never = _filtered(strategy, unresolvable(nodes, request))
    return tuple(
        NodeScore(
            name=name,
            score=None if score_n is None else score_n[row].item(),
            balanced=None if balanced_n is None else balanced_n[row].item(),
            total=total_n[row].item(),
            insufficient=_holding(short, row),
            unresolvable=_holding(never, row),
            resources=breakdown(columns, row),
        )
        for row, name in enumerate(names)
    )


def amount_text(strategy: Strategy, resource: str, amount: int) -> str:
    """An amount of the strategy's breakdown as a quantity for people."""
    volcano = isinstance(strategy, VolcanoBinpack)
    return quantity_text(resource, amount) if volcano else format_amount(resource, amount)


def _check_amounts(
    request: ReplicaRequest, names: Sequence[str], loads: Sequence[NodeLoad]
) -> None:
    """Percents are whole numbers of 64 bits, and kube-scheduler's wrap around beyond them."""
    largest = max((*request.amounts.values(), *request.nonzero.values()), default=0)
    for name, load in zip(names, loads, strict=True):
        columns = (load.allocatable, load.requested, load.nonzero_requested)
        for resource in {resource for column in columns for resource in column}:
            if largest + max(column.get(resource, 0) for column in columns) > MAX_SCORED:
                rule = f"has more than {MAX_SCORED} base units of {resource}, too many for scoring"
                raise InvalidRequest.of(f"node {name}", rule)


def _parts(
    strategy: Strategy, nodes: NodeArrays, request: ReplicaRequest, total_n: ScoreArray
) -> tuple[ScoreArray | None, ScoreArray | None]:
    """The plugins that look at fit, and those that look at balance; None where there is none."""
    if not isinstance(strategy, ScoringProfile):
        return total_n, None
    fit = [
        plugin for plugin in strategy.plugins if not isinstance(plugin.strategy, BalancedAllocation)
    ]
    balanced = [
        plugin for plugin in strategy.plugins if plugin not in fit and plugin.has_a_say(request)
    ]
    return _average(fit, nodes, request), _average(balanced, nodes, request)


def _average(
    plugins: Sequence[WeightedPlugin], nodes: NodeArrays, request: ReplicaRequest
) -> ScoreArray | None:
    """The weighted average, rounded down; a plugin that is alone gives its own score."""
    if not plugins:
        return None
    sum_n = np.zeros(nodes.size, dtype=np.int64)
    for plugin in plugins:
        sum_n += plugin.weight * plugin.strategy.score(nodes, request)
    average_n: ScoreArray = sum_n // sum(plugin.weight for plugin in plugins)
    return average_n


def _filtered(strategy: Strategy, short: dict[str, BoolArray]) -> dict[str, BoolArray]:
    """Without the resources that the profile's filter overlooks."""
    if not isinstance(strategy, ScoringProfile):
        return short
    return {name: short_n for name, short_n in short.items() if not strategy.ignores(name)}


def _holding(short: dict[str, BoolArray], row: int) -> tuple[str, ...]:
    return tuple(name for name, short_n in short.items() if short_n[row])
