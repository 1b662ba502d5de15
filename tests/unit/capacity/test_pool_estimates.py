"""The level ``pools`` beside the others: who answers, with what bound, and why not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from random import Random

import numpy as np
import pytest

from federation.capacity.fleet_cells import CLUSTERS_A_BLOCK, FleetCells
from federation.capacity.pool_estimates import answer_of, pool_bounds
from federation.model.cluster import Taint, TaintEffect
from federation.model.estimate import (
    MAX_REPLICAS,
    Bound,
    LevelAnswer,
    Merge,
    Source,
    merge,
)
from federation.model.pools.building import build_pools
from federation.model.pools.matching import Match, pool_match
from federation.model.pools.values import Cells, NodeColumn, NodeColumns, NodePool, Pools
from federation.model.positions import Moves
from federation.model.workload import (
    NodeClaim,
    NodeSelectorTerm,
    Operator,
    ReplicaRequirements,
    Requirement,
    Toleration,
    TolerationOperator,
)
from lab.simple_bounds import simple_lower_bound

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
    labels = {"zone": NodeColumn(values=zones, code_n=rows)} if zones else {}
    return build_pools(
        NodeColumns(
            free={name: np.array(column, np.int64) for name, column in free.items()},
            taints=NodeColumn(
                values=[(CORDONED,) if each else () for each in tainted or [False] * size],
                code_n=rows,
            ),
            labels=labels,
        ),
        budget,
        ["zone"],
    )


def pools_level(fleet: FleetCells, requirements: ReplicaRequirements) -> LevelAnswer:
    return answer_of(pool_bounds(fleet, requirements))


def asking(cpu_millis: int, claim: NodeClaim | None = None) -> ReplicaRequirements:
    return ReplicaRequirements(request={"cpu": cpu_millis}, node_claim=claim)


def in_zone(zone: str) -> NodeClaim:
    return NodeClaim(node_selector={"zone": zone})


def test_few_nodes_are_answered_exactly() -> None:
    fleet = FleetCells.of([pools_of([900, 1900, 2900]), pools_of([])])
    level = pools_level(fleet, asking(1000))
    assert level.replicas_c.tolist() == [3, 0]
    assert level.answered_c.tolist() == [True, True]
    assert level.bound_c.tolist() == [Bound.EXACT, Bound.EXACT]
    assert level.source is Source.POOLS


def test_merged_cells_answer_a_lower_bound() -> None:
    cpu_millis = np.random.default_rng(3).integers(0, 9000, 400).tolist()
    fleet = FleetCells.of([pools_of(cpu_millis, budget=16)])
    truth = sum(min(cpu // 1300, 110) for cpu in cpu_millis)
    bounds = pool_bounds(fleet, asking(1300))
    assert simple_lower_bound(fleet.pools[0], asking(1300)) < bounds.lower_c[0]
    assert bounds.lower_c[0] < truth < bounds.upper_c[0]
    assert pools_level(fleet, asking(1300)).bound_c.tolist() == [Bound.LOWER]


def test_sums_of_slots_are_exact_where_nothing_is_asked_for() -> None:
    pools = pools_of(list(range(400)), budget=16)
    level = pools_level(FleetCells.of([pools]), ReplicaRequirements())
    assert level.replicas_c.tolist() == [400 * 110]
    assert level.bound_c.tolist() == [Bound.EXACT]


def test_what_no_node_has_fits_no_times() -> None:
    level = pools_level(
        FleetCells.of([pools_of([4000])]), ReplicaRequirements(request={"nvidia.com/gpu": 1})
    )
    assert (level.replicas_c.tolist(), level.bound_c.tolist()) == ([0], [Bound.EXACT])


def test_pods_in_a_request_are_one_slot_as_ever() -> None:
    fleet = FleetCells.of([pools_of([4000])])
    request = ReplicaRequirements(request={"pods": 7, "cpu": 0})
    assert pools_level(fleet, request).replicas_c.tolist() == [110]


def test_more_than_travels_is_cut() -> None:
    cells = Cells(
        resources=("cpu", "memory", "pods"),
        pool_k=np.zeros(1, np.int32),
        count_k=np.array([5000]),
        min_rk=np.full((3, 1), 1 << 40),
        sum_rk=np.full((3, 1), 5000 << 40),
        max_rk=np.full((3, 1), 1 << 40),
        sum_exact_k=np.ones(1, np.bool_),
    )
    fleet = FleetCells.of([Pools(label_keys=(), pools=(NodePool(),), cells=cells)])
    assert pools_level(fleet, asking(1)).replicas_c.tolist() == [MAX_REPLICAS]


def test_a_selector_narrows_to_the_pools_that_have_the_label() -> None:
    fleet = FleetCells.of([pools_of([1000, 2000, 4000], zones=["a", "b", "a"])])
    assert pools_level(fleet, asking(1000, in_zone("a"))).replicas_c.tolist() == [5]
    assert pools_level(fleet, asking(1000, in_zone("c"))).replicas_c.tolist() == [0]


def test_a_selector_on_a_label_that_pools_lack_is_unknown_and_says_so() -> None:
    fleet = FleetCells.of([None, pools_of([1000]), pools_of([1000], zones=["a"]), pools_of([])])
    level = pools_level(fleet, asking(1000, in_zone("a")))
    assert level.answered_c.tolist() == [False, False, True, True]
    assert level.reasons == {1: "the cluster's pools do not tell nodes apart by zone"}


def test_tainted_nodes_count_for_those_who_tolerate_them() -> None:
    fleet = FleetCells.of([pools_of([1000, 2000], tainted=[True, False])])
    all_of_them = NodeClaim(tolerations=(Toleration(operator=TolerationOperator.EXISTS),))
    assert pools_level(fleet, asking(1000)).replicas_c.tolist() == [2]
    assert pools_level(fleet, asking(1000, all_of_them)).replicas_c.tolist() == [3]


def test_pools_come_before_lesser_levels() -> None:
    fleet = FleetCells.of([pools_of([4000]), None])
    lesser = LevelAnswer(
        source=Source.SUMMARY,
        replicas_c=np.array([9, 9]),
        answered_c=np.array([True, True]),
        bound_c=np.zeros(2, np.int8),
    )
    estimates = merge([pools_level(fleet, asking(1000)), lesser], Merge.QUALITY)
    assert estimates.replicas_c.tolist() == [4, 9]
    assert estimates.source_c.tolist() == [Source.POOLS, Source.SUMMARY]
    assert estimates.bound_c.tolist() == [Bound.EXACT, Bound.NONE]


def test_a_change_makes_its_own_block_again_and_no_other() -> None:
    before = FleetCells.of([pools_of([1000])] * (2 * CLUSTERS_A_BLOCK + 1))
    after = before.with_clusters({CLUSTERS_A_BLOCK: pools_of([5000]), 2: None})
    assert after.blocks[2] is before.blocks[2]
    replicas = pools_level(after, asking(1000)).replicas_c.tolist()
    assert replicas[CLUSTERS_A_BLOCK - 1 : CLUSTERS_A_BLOCK + 2] == [1, 5, 1]
    assert len(replicas) == len(after) == len(before)
    assert not pools_level(after, asking(1000)).answered_c[2]
    assert pools_level(before, asking(1000)).replicas_c.tolist() == [1] * len(before)


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
        moves = Moves(left=left, taken=taken)
        pools = list(moves.items(pools, [None] * len(taken)))
        before, cells = cells, cells.after(moves)
        assert [block.start for block in cells.blocks] == [
            start for start, _ in pairwise(accumulate(map(len, cells.blocks), initial=0))
        ]
        newcomers = {c: pools_of([chance.randrange(9000)]) for c in taken if chance.random() < 0.5}
        cells = cells.with_clusters(newcomers)
        for position, each in newcomers.items():
            pools[position] = each
        anew = pool_bounds(FleetCells.of(pools), asking(1000))
        bounds = pool_bounds(cells, asking(1000))
        assert bounds.lower_c.tolist() == anew.lower_c.tolist()
        assert bounds.answered_c.tolist() == anew.answered_c.tolist()
        assert len(before) + len(taken) - len(left) == len(cells)


def test_a_newcomer_leaves_the_tables_of_other_blocks_alone() -> None:
    before = FleetCells.of([pools_of([1000])] * (3 * CLUSTERS_A_BLOCK))
    after = before.after(Moves(taken=[CLUSTERS_A_BLOCK + 1]))
    assert after.blocks[0].cells is before.blocks[0].cells
    assert after.blocks[1].cells is not before.blocks[1].cells
    assert after.blocks[2].cells is before.blocks[2].cells
    assert after.blocks[2].start == before.blocks[2].start + 1


def test_a_fleet_of_none() -> None:
    level = pools_level(FleetCells.of([]), asking(1))
    assert level.replicas_c.tolist() == []


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
        ({"zone": "b", "unheard": "x"}, Match.NO),
        ({"zone": "a", "unheard": "x"}, Match.UNKNOWN),
    ],
)
def test_what_surely_fails_outweighs_what_is_not_known(
    selector: Mapping[str, str], verdict: Match
) -> None:
    pool = NodePool(labels={"zone": "a"})
    assert pool_match(pool, ("zone",), NodeClaim(node_selector=selector)) is verdict
