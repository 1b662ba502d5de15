"""What holds for the pools of every cluster: lower <= exact <= upper, in any order of the nodes.

The oracle is the obvious loop over nodes with the estimator's own rules for claims.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from federation.capacity.fleet_cells import FleetCells
from federation.capacity.pool_estimates import answer_of, pool_bounds
from federation.model.cluster import Taint, TaintEffect
from federation.model.estimate import MAX_REPLICAS, Bound
from federation.model.pools.bounds import per_replica, tighter_lower_k, upper_k
from federation.model.pools.building import build_pools, partition_nodes
from federation.model.pools.matching import NAME_FIELD
from federation.model.pools.refreshing import refresh_pools
from federation.model.pools.values import NodeColumn, NodeColumns, Pools
from federation.model.resources import MAX_AMOUNT, PODS
from federation.model.selectors import matches_labels, matches_requirement
from federation.model.workload import (
    NodeClaim,
    NodeSelectorTerm,
    Operator,
    ReplicaRequirements,
    Requirement,
    Toleration,
    TolerationOperator,
)
from lab.simple_bounds import lower_k, simple_lower_bound
from tests.plain_tolerations import untolerated_taint
from tests.pools import cells_of

GIB = 1 << 30
NAMES = ("cpu", "memory", "pods", "ephemeral-storage", "nvidia.com/gpu")
KEYS = ("zone", "disk", "kubernetes.io/hostname")
TAINTS = (
    Taint(key="dedicated", value="ml", effect=TaintEffect.NO_SCHEDULE),
    Taint(key="node.kubernetes.io/unschedulable", effect=TaintEffect.NO_SCHEDULE),
    Taint(key="slow", effect=TaintEffect.PREFER_NO_SCHEDULE),
)


@dataclass(frozen=True, kw_only=True)
class PlainNode:
    name: str
    free: Mapping[str, int]
    taints: tuple[Taint, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)


def columns(nodes: Sequence[PlainNode]) -> NodeColumns:
    rows = np.arange(len(nodes), dtype=np.int32)
    return NodeColumns(
        free={name: np.array([n.free.get(name, 0) for n in nodes], np.int64) for name in NAMES},
        taints=NodeColumn(values=[node.taints for node in nodes], code_n=rows),
        labels={
            key: NodeColumn(values=[node.labels.get(key) for node in nodes], code_n=rows)
            for key in KEYS
        },
    )


def holds(node: PlainNode, request: Mapping[str, int]) -> int:
    fits = [node.free.get(PODS, 0)]
    fits += [node.free.get(name, 0) // q for name, q in request.items() if q > 0 and name != PODS]
    return max(0, min(fits))


def suits(node: PlainNode, claim: NodeClaim | None) -> bool:
    claim = claim or NodeClaim()
    if untolerated_taint(node.taints, claim.tolerations) is not None:
        return False
    if not matches_labels(claim.node_selector, node.labels):
        return False
    terms = claim.required_terms
    return terms is None or any(meets(node, term) for term in terms)


def meets(node: PlainNode, term: NodeSelectorTerm) -> bool:
    """Whether a node meets one term; one without expressions and fields nobody meets."""
    met = [matches_requirement(each, node.labels) for each in term.match_expressions]
    met += [matches_requirement(each, {NAME_FIELD: node.name}) for each in term.match_fields]
    return bool(met) and all(met)


def exact(nodes: Sequence[PlainNode], requirements: ReplicaRequirements) -> int:
    suiting = (node for node in nodes if suits(node, requirements.node_claim))
    return min(sum(holds(node, requirements.request) for node in suiting), MAX_REPLICAS)


amounts = (
    st.integers(-2, 12)
    | st.integers(0, 64).map(lambda cores: 500 * cores)
    | st.integers(0, 400).map(lambda quarters: quarters * GIB // 4)
    | st.integers(0, 2**37)
)
any_amounts = amounts | st.integers(0, MAX_AMOUNT)
labels = st.fixed_dictionaries(
    {}, optional={"zone": st.sampled_from(["a", "b"]), "disk": st.sampled_from(["1", "2", "x"])}
)
taints = st.lists(st.sampled_from(TAINTS), max_size=2).map(tuple)


@st.composite
def node_lists(
    draw: st.DrawFn, amount: st.SearchStrategy[int] = amounts, most: int = 60
) -> list[PlainNode]:
    """Nodes of a few kinds that differ a little, as in clusters, so that cells have several."""
    names = draw(st.sets(st.sampled_from(NAMES)))
    frees = st.fixed_dictionaries(dict.fromkeys(sorted(names), amount) | {PODS: amount})
    kinds = draw(st.lists(st.tuples(frees, labels, taints), min_size=1, max_size=4))
    size = draw(st.integers(0, most))
    rows = draw(st.lists(st.sampled_from(kinds), min_size=size, max_size=size))
    shifts = draw(st.lists(st.integers(0, 5), min_size=size, max_size=size))
    return [
        PlainNode(
            name=f"n{i}",
            free={
                name: min(value + value // 7 * shift, MAX_AMOUNT) for name, value in free.items()
            },
            taints=taints,
            labels={**labels, "kubernetes.io/hostname": f"n{i}"},
        )
        for i, ((free, labels, taints), shift) in enumerate(zip(rows, shifts, strict=True))
    ]


requests = st.dictionaries(st.sampled_from(NAMES), any_amounts.map(abs), max_size=4)
expressions = st.builds(
    Requirement,
    key=st.sampled_from(["zone", "disk", "unheard-of", "kubernetes.io/hostname"]),
    operator=st.sampled_from([op for op in Operator if op not in (Operator.GT, Operator.LT)]),
    values=st.lists(st.sampled_from(["a", "b", "1", "n1"]), min_size=1, max_size=2).map(tuple),
) | st.builds(
    Requirement,
    key=st.just("disk"),
    operator=st.sampled_from([Operator.GT, Operator.LT]),
    values=st.just(("1",)),
)
fields = st.builds(
    Requirement,
    key=st.just(NAME_FIELD),
    operator=st.sampled_from([Operator.IN, Operator.NOT_IN]),
    values=st.just(("n1",)),
)
terms = st.builds(
    NodeSelectorTerm,
    match_expressions=st.lists(expressions, max_size=2).map(tuple),
    match_fields=st.lists(fields, max_size=1).map(tuple),
)
claims = st.none() | st.builds(
    NodeClaim,
    node_selector=st.dictionaries(
        st.sampled_from(["zone", "disk", "kubernetes.io/hostname"]),
        st.sampled_from(["a", "1", "n1"]),
        max_size=1,
    ),
    required_terms=st.none() | st.lists(terms, max_size=2).map(tuple),
    tolerations=st.lists(
        st.builds(
            Toleration,
            key=st.sampled_from(["", "dedicated"]),
            operator=st.just(TolerationOperator.EXISTS),
        ),
        max_size=1,
    ).map(tuple),
)
requirements = st.builds(ReplicaRequirements, request=requests, node_claim=claims)
budgets = st.sampled_from([16, 17, 40, 256])
key_lists = st.lists(st.sampled_from(KEYS), max_size=3)


@settings(max_examples=60, deadline=None)
@given(
    nodes=node_lists() | node_lists(any_amounts),
    budget=budgets,
    keys=key_lists,
    shapes=st.lists(requirements, min_size=1, max_size=6),
)
def test_the_exact_answer_lies_between_the_bounds(
    nodes: list[PlainNode], budget: int, keys: list[str], shapes: list[ReplicaRequirements]
) -> None:
    fleet = FleetCells.of([None, build_pools(columns(nodes), budget, keys)])
    for shape in shapes:
        bounds = pool_bounds(fleet, shape)
        assert not bounds.answered_c[0]
        truth = exact(nodes, shape)
        simple = simple_lower_bound(fleet.pools[1], shape)
        assert simple <= truth
        if bounds.answered_c[1]:
            assert simple <= bounds.lower_c[1] <= truth <= bounds.upper_c[1]
            if answer_of(bounds).bound_c[1] == Bound.EXACT:
                assert bounds.lower_c[1] == truth
        else:
            assert bounds.reasons[1]


def plainly(pools: Pools) -> list[tuple[object, ...]]:
    cells = pools.cells
    return [
        (
            pools.pools[int(cells.pool_k[k])],
            int(cells.count_k[k]),
            *(tuple(rows[:, k].tolist()) for rows in (cells.min_rk, cells.sum_rk, cells.max_rk)),
        )
        for k in range(len(cells))
    ]


@settings(max_examples=60, deadline=None)
@given(nodes=node_lists(), keys=key_lists, budget=budgets, seed=st.integers(0, 99))
def test_the_order_of_the_nodes_makes_no_difference(
    nodes: list[PlainNode], keys: list[str], budget: int, seed: int
) -> None:
    shuffled = [nodes[i] for i in np.random.default_rng(seed).permutation(len(nodes))]
    built = build_pools(columns(nodes), budget, keys)
    assert plainly(build_pools(columns(shuffled), budget, keys)) == plainly(built)


@settings(max_examples=50, deadline=None)
@given(nodes=node_lists(), keys=key_lists, budget=budgets)
def test_cells_hold_every_node_once_and_keep_to_the_budget(
    nodes: list[PlainNode], keys: list[str], budget: int
) -> None:
    pools = build_pools(columns(nodes), budget, keys)
    cells = pools.cells
    assert int(cells.count_k.sum()) == len(nodes)
    assert len(cells) <= max(budget, len(pools.pools))
    if pools.label_keys:
        assert len(pools.pools) <= max(budget // 2, 2 ** len(TAINTS))
    for row, name in enumerate(cells.resources):
        free = [max(node.free.get(name, 0), 0) for node in nodes]
        assert int(cells.sum_rk[row].sum()) == sum(free)
    assert (cells.min_rk * cells.count_k <= cells.sum_rk).all()
    assert (cells.sum_rk <= cells.max_rk * cells.count_k).all()


@settings(max_examples=50, deadline=None)
@given(nodes=node_lists(any_amounts, most=16), shape=requirements)
def test_as_many_cells_as_nodes_are_exact(
    nodes: list[PlainNode], shape: ReplicaRequirements
) -> None:
    fleet = FleetCells.of([build_pools(columns(nodes), 64, ["zone", "disk", KEYS[2]])])
    bounds = pool_bounds(fleet, shape)
    if bounds.answered_c[0]:
        truth = exact(nodes, shape)
        assert (bounds.lower_c[0], bounds.upper_c[0]) == (truth, truth)


@settings(max_examples=50, deadline=None)
@given(before=node_lists(), after=node_lists(), keys=key_lists, budget=budgets, shape=requirements)
def test_refreshed_cells_are_as_true_as_built_ones(
    before: list[PlainNode],
    after: list[PlainNode],
    keys: list[str],
    budget: int,
    shape: ReplicaRequirements,
) -> None:
    partition = partition_nodes(columns(before), budget, keys).partition
    some_changed = after[: len(after) // 4] + before
    pools = refresh_pools(columns(some_changed), partition).pools
    assert int(pools.cells.count_k.sum()) == len(some_changed)
    bounds = pool_bounds(FleetCells.of([pools]), shape)
    if bounds.answered_c[0]:
        assert bounds.lower_c[0] <= exact(some_changed, shape) <= bounds.upper_c[0]


@settings(max_examples=150, deadline=None)
@given(
    groups=st.lists(
        st.lists(st.tuples(*[st.integers(0, 40)] * 3), min_size=1, max_size=6),
        min_size=1,
        max_size=5,
    ),
    request=st.dictionaries(st.sampled_from(["cpu", "memory"]), st.integers(0, 12)),
    too_low=st.integers(0, 3),
)
def test_each_cell_keeps_its_bounds(
    groups: list[list[tuple[int, ...]]], request: dict[str, int], too_low: int
) -> None:
    cells = cells_of(groups)
    demanded = per_replica(request)
    positions = [("cpu", "memory", "pods").index(name) for name in demanded]
    truth = [
        sum(
            min(node[i] // q for i, q in zip(positions, demanded.values(), strict=True))
            for node in group
        )
        for group in groups
    ]
    simple, tighter = lower_k(cells, demanded), tighter_lower_k(cells, demanded)
    assert (simple <= tighter).all()
    assert (tighter <= truth).all()
    assert (truth <= upper_k(cells, demanded)).all()
    # A sum that is only known to be at least so much proves less, and nothing upwards.
    least_rk = np.maximum(cells.sum_rk - too_low, cells.min_rk * cells.count_k)
    inexact = replace(cells, sum_rk=least_rk, sum_exact_k=np.zeros(len(groups), np.bool_))
    assert (tighter_lower_k(inexact, demanded) <= tighter).all()
    assert (truth <= upper_k(inexact, demanded)).all()
