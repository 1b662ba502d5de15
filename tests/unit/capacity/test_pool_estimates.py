"""The level ``pools`` beside the others: who answers, with what bound, and why not; and whole sets
of components.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random

import numpy as np
import pytest

from federation.capacity.fleet_cells import CLUSTERS_A_BLOCK, FleetCells
from federation.capacity.pool_estimates import answer_of, pool_bounds
from federation.model.cluster import Taint, TaintEffect
from federation.model.estimate import MAX_REPLICAS, Bound, LevelAnswer, Source
from federation.model.pools import sets
from federation.model.pools.building import build_pools
from federation.model.pools.matching import Match, pool_match
from federation.model.pools.sets import SetEstimate, sets_that_fit
from federation.model.pools.values import NodeColumn, NodeColumns, NodePool, Pools
from federation.model.positions import Moves
from federation.model.reasons import texts_of
from federation.model.workload import (
    Component,
    NodeClaim,
    NodeSelectorTerm,
    Operator,
    ReplicaRequirements,
    Requirement,
    Toleration,
    TolerationOperator,
)
from lab.simple_bounds import simple_lower_bound
from tests.pools import alike, cells_of, one_pool

GIB = 1 << 30
CORDONED = Taint(key="node.kubernetes.io/unschedulable", effect=TaintEffect.NO_SCHEDULE)


def pools_of(
    cpu_millis: Sequence[int],
    zones: Sequence[str] = (),
    tainted: Sequence[bool] = (),
    budget: int = 256,
) -> Pools:
    size = len(cpu_millis)
    rows = np.arange(size, dtype=np.int32)
    free = {"cpu": cpu_millis, "memory": [64 * GIB] * size, "pods": [110] * size}
    taints = [(CORDONED,) if each else () for each in tainted or [False] * size]
    nodes = NodeColumns(
        free={name: np.array(column, np.int64) for name, column in free.items()},
        taints=NodeColumn(values=taints, code_n=rows),
        labels={"zone": NodeColumn(values=zones, code_n=rows)} if zones else {},
    )
    return build_pools(nodes, budget, ["zone"])


def asking(cpu_millis: int, claim: NodeClaim | None = None) -> ReplicaRequirements:
    return ReplicaRequirements(request={"cpu": cpu_millis}, node_claim=claim)


def level(pools: Sequence[Pools | None], requirements: ReplicaRequirements) -> LevelAnswer:
    return answer_of(pool_bounds(FleetCells.of(pools), requirements))


ZONED = pools_of([1000, 2000, 4000], zones=["a", "b", "a"])
TAINTED = pools_of([1000, 2000], tainted=[True, False])
HUGE = one_pool(cells_of([alike(5000, (1 << 40, 1 << 40, 1 << 40))]))
ALL_TOLERATED = NodeClaim(tolerations=(Toleration(operator=TolerationOperator.EXISTS),))


@pytest.mark.parametrize(
    ("pools", "asked", "replicas", "bound"),
    [
        (pools_of([900, 1900, 2900]), asking(1000), 3, Bound.EXACT),
        (pools_of([]), asking(1000), 0, Bound.EXACT),
        # Sums of slots are exact where nothing is asked for.
        (pools_of(list(range(400)), budget=16), ReplicaRequirements(), 400 * 110, Bound.EXACT),
        (pools_of([4000]), ReplicaRequirements(request={"nvidia.com/gpu": 1}), 0, Bound.EXACT),
        # Pods in a request are one slot, as ever.
        (pools_of([4000]), ReplicaRequirements(request={"pods": 7, "cpu": 0}), 110, Bound.EXACT),
        # More than travels is cut.
        (HUGE, asking(1), MAX_REPLICAS, Bound.EXACT),
        (ZONED, asking(1000, NodeClaim(node_selector={"zone": "a"})), 5, Bound.EXACT),
        (ZONED, asking(1000, NodeClaim(node_selector={"zone": "c"})), 0, Bound.EXACT),
        (TAINTED, asking(1000), 2, Bound.EXACT),
        (TAINTED, asking(1000, ALL_TOLERATED), 3, Bound.EXACT),
    ],
)
def test_pools_answer(
    pools: Pools, asked: ReplicaRequirements, replicas: int, bound: Bound
) -> None:
    found = level([None, pools], asked)
    assert found.source is Source.POOLS
    assert found.replicas_c.tolist() == [0, replicas]
    assert found.answered_c.tolist() == [False, True]
    assert found.bound_c[1] == bound
    assert found.reasons == {}


def test_merged_cells_answer_a_lower_bound() -> None:
    cpu_millis = np.random.default_rng(3).integers(0, 9000, 400).tolist()
    pools = pools_of(cpu_millis, budget=16)
    truth = sum(min(cpu // 1300, 110) for cpu in cpu_millis)
    bounds = pool_bounds(FleetCells.of([pools]), asking(1300))
    assert simple_lower_bound(pools, asking(1300)) < bounds.lower_c[0]
    assert bounds.lower_c[0] < truth < bounds.upper_c[0]
    assert level([pools], asking(1300)).bound_c.tolist() == [Bound.LOWER]


def test_a_selector_on_a_label_that_pools_lack_is_unknown_and_says_so() -> None:
    found = level(
        [None, pools_of([1000]), ZONED, pools_of([])],
        asking(1000, NodeClaim(node_selector={"zone": "a"})),
    )
    assert found.answered_c.tolist() == [False, False, True, True]
    assert texts_of(found.reasons) == {1: "the cluster's pools do not tell nodes apart by zone"}


@pytest.mark.parametrize("seed", range(5))
def test_blocks_grow_shrink_and_move_with_their_clusters(seed: int) -> None:
    chance = Random(seed)
    every = [pools_of([chance.randrange(9000)]) for _ in range(3 * CLUSTERS_A_BLOCK)]
    cells, pools = FleetCells.of(every), list[Pools | None](every)
    for _ in range(20):
        left = sorted(chance.sample(range(len(pools)), chance.randrange(min(60, len(pools)) + 1)))
        size = len(pools) - len(left)
        first = chance.randrange(size + 1)
        # Many newcomers side by side, and some apart.
        taken = sorted({*range(first, first + chance.randrange(90)), 0})
        moves = Moves(removed=left, added=taken)
        pools = list(moves.items(pools, [None] * len(taken)))
        before, cells = cells, cells.after(moves)
        newcomers = {c: pools_of([chance.randrange(9000)]) for c in taken if chance.random() < 0.5}
        cells = cells.with_clusters(newcomers)
        for position, each in newcomers.items():
            pools[position] = each
        anew = pool_bounds(FleetCells.of(pools), asking(1000))
        bounds = pool_bounds(cells, asking(1000))
        assert bounds.lower_c.tolist() == anew.lower_c.tolist()
        assert bounds.answered_c.tolist() == anew.answered_c.tolist()
        assert len(before) + len(taken) - len(left) == len(cells)


def expression(key: str, operator: Operator, *values: str) -> NodeSelectorTerm:
    return NodeSelectorTerm(
        match_expressions=(Requirement(key=key, operator=operator, values=values),)
    )


def field(name: str, *values: str) -> NodeSelectorTerm:
    return NodeSelectorTerm(
        match_fields=(Requirement(key=name, operator=Operator.IN, values=values),)
    )


@pytest.mark.parametrize(
    ("terms", "verdict"),
    [
        ((), Match.NO),
        ((NodeSelectorTerm(),), Match.NO),
        ((expression("zone", Operator.IN, "a", "b"),), Match.YES),
        ((expression("zone", Operator.NOT_IN, "a"),), Match.NO),
        ((expression("disk", Operator.DOES_NOT_EXIST),), Match.YES),
        ((expression("unheard", Operator.DOES_NOT_EXIST),), Match.UNKNOWN),
        # Terms are alternatives: one that surely holds is enough.
        (
            (expression("unheard", Operator.EXISTS), expression("zone", Operator.EXISTS)),
            Match.YES,
        ),
        (
            (expression("unheard", Operator.EXISTS), expression("zone", Operator.IN, "b")),
            Match.UNKNOWN,
        ),
        ((field("metadata.name", "node-1"),), Match.UNKNOWN),
        ((field("spec.other", "x"),), Match.NO),
    ],
)
def test_required_affinity(terms: tuple[NodeSelectorTerm, ...], verdict: Match) -> None:
    pool = NodePool(labels={"zone": "a"})
    claim = NodeClaim(required_terms=terms)
    assert pool_match(pool, ("zone", "disk"), claim) is verdict


@pytest.mark.parametrize(
    ("selector", "verdict"),
    [
        ({}, Match.YES),
        ({"zone": "a"}, Match.YES),
        # What surely fails outweighs what is not known.
        ({"zone": "b", "unheard": "x"}, Match.NO),
        ({"zone": "a", "unheard": "x"}, Match.UNKNOWN),
    ],
)
def test_selectors(selector: Mapping[str, str], verdict: Match) -> None:
    pool = NodePool(labels={"zone": "a"})
    assert pool_match(pool, ("zone",), NodeClaim(node_selector=selector)) is verdict


def component(
    replicas: int, request: Mapping[str, int], selector: Mapping[str, str] | None = None
) -> Component:
    claim = NodeClaim(node_selector=selector) if selector else None
    requirements = ReplicaRequirements(request=request, node_claim=claim)
    return Component(name="part", replicas=replicas, requirements=requirements)


def nodes(count: int, cpu: int) -> Pools:
    return one_pool(cells_of([alike(count, (cpu, 100, 110))]))


TWO_ZONES = Pools(
    label_keys=("zone",),
    pools=(NodePool(labels={"zone": "a"}), NodePool(labels={"zone": "b"})),
    cells=cells_of([alike(2, (4, 4, 9)), alike(2, (4, 4, 9))], pool=[0, 1]),
)
MANAGER, WORKERS = component(1, {"cpu": 2}), component(4, {"cpu": 1, "memory": 1})


@pytest.mark.parametrize(
    ("pools", "parts", "most", "count"),
    [
        (nodes(100, 6), [MANAGER, WORKERS], 999, 100),
        (nodes(100, 6), [MANAGER, WORKERS], 7, 7),
        (nodes(100, 6), [component(0, {"cpu": 1})], 999, 0),
        (nodes(100, 6), [], 999, 0),
        (nodes(100, 6), [MANAGER, component(1, {"nvidia.com/gpu": 1})], 999, 0),
        (
            TWO_ZONES,
            [component(1, {"cpu": 3}, {"zone": "a"}), component(1, {"cpu": 2}, {"zone": "b"})],
            999,
            2,
        ),
    ],
)
def test_sets_need_room_for_every_component(
    pools: Pools, parts: list[Component], most: int, count: int
) -> None:
    assert sets_that_fit(pools, parts, limit=most) == SetEstimate(sets=count)


def test_sets_are_unknown_when_a_component_is() -> None:
    unknown = component(1, {}, {"disk": "ssd"})
    found = sets_that_fit(TWO_ZONES, [component(1, {"cpu": 1}), unknown])
    assert not found.answered
    assert str(found.reason) == "the cluster's pools do not tell nodes apart by disk"


def test_what_takes_too_long_is_finished_on_single_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred nodes of 10 for sets of 3 + 3: one on a node, and half of one between two."""
    parts = [component(1, {"cpu": 3}), component(1, {"cpu": 3, "memory": 1})]
    found = []
    for most_steps in (sets.MAX_STEPS, 2, 0):
        monkeypatch.setattr(sets, "MAX_STEPS", most_steps)
        found.append(sets_that_fit(nodes(100, 10), parts).sets)
    assert found[0] == 150
    assert 100 <= found[1] < 150
    assert found[2] == 100
    assert sets_that_fit(nodes(100, 10), parts, limit=7) == SetEstimate(sets=7)
