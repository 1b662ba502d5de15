"""What pools say beside promises holds wherever the promised pods land.

The oracle puts them on real nodes, one at a time, where chance or malice says.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from hypothesis import example, given, settings
from hypothesis import strategies as st

from federation.capacity.fleet_cells import FleetCells
from federation.capacity.pool_estimates import answer_of, pool_bounds
from federation.capacity.promised_bounds import PromisedColumns, bounds_beside
from federation.model.estimate import Bound
from federation.model.pools.values import NodePool, Pools
from federation.model.reservations import Outstanding, PromiseCertificate
from federation.model.workload import NodeClaim, ReplicaRequirements
from tests import slow_strict
from tests.pools import cells_of

POOLS = (NodePool(labels={"zone": "a"}), NodePool(labels={"zone": "b"}))

# A node: its pool, and what it has free of each resource.
Node = tuple[int, tuple[int, ...]]

claims = st.sampled_from(
    [None, None, NodeClaim(node_selector={"zone": "a"}), NodeClaim(node_selector={"zone": "b"})]
)
shapes = st.builds(
    ReplicaRequirements,
    request=st.dictionaries(st.sampled_from(["cpu", "memory"]), st.integers(0, 9), max_size=2),
    node_claim=claims,
)
# Cells of like nodes, each a little apart.
drawn_cells = st.lists(
    st.tuples(
        st.integers(0, 1),
        st.lists(
            st.tuples(st.integers(0, 20), st.integers(0, 20), st.integers(0, 12)),
            min_size=1,
            max_size=4,
        ),
    ),
    min_size=1,
    max_size=4,
)
outstandings = st.lists(
    st.builds(
        Outstanding,
        binding=st.sampled_from(["x", "y"]),
        requirements=shapes,
        in_cells=st.integers(1, 6),
        certificate=st.sampled_from(list(PromiseCertificate)),
        component=st.just(""),
        in_summary=st.just(0),
        credited=st.just(0),
    ),
    max_size=4,
)
DrawnCells = Sequence[tuple[int, Sequence[tuple[int, ...]]]]


def pools_of(drawn: DrawnCells) -> Pools:
    cells = cells_of([nodes for _, nodes in drawn], pool=[pool for pool, _ in drawn])
    return Pools(label_keys=("zone",), pools=POOLS, cells=cells)


def fits(node: Node, asked: ReplicaRequirements) -> int:
    claim = asked.node_claim
    if claim is not None and POOLS[node[0]].labels != claim.node_selector:
        return 0
    cpu, memory, pods = node[1]
    fit = pods
    for name, free in (("cpu", cpu), ("memory", memory)):
        if asked.request.get(name):
            fit = min(fit, free // asked.request[name])
    return fit


def after(node: Node, asked: ReplicaRequirements) -> Node:
    cpu, memory, pods = node[1]
    request = asked.request
    return node[0], (cpu - request.get("cpu", 0), memory - request.get("memory", 0), pods - 1)


def truth(nodes: Sequence[Node], asked: ReplicaRequirements) -> int:
    return sum(fits(node, asked) for node in nodes)


def placed(
    nodes: Sequence[Node],
    promised: Sequence[Outstanding],
    asked: ReplicaRequirements,
    chance: random.Random,
) -> list[Node]:
    """The nodes once every promised pod that finds room has one: by chance, or where it takes
    the most, or the least, of what is asked about.
    """
    left = list(nodes)
    pods = [each.requirements for each in promised for _ in range(each.in_cells)]
    chance.shuffle(pods)
    malice = chance.choice([-1, 0, 1])
    for pod in pods:
        places = [place for place, node in enumerate(left) if fits(node, pod)]
        if not places:
            continue
        harm = {p: fits(left[p], asked) - fits(after(left[p], pod), asked) for p in places}
        best = max(malice * each for each in harm.values())
        place = chance.choice([p for p in places if malice * harm[p] == best])
        left[place] = after(left[place], pod)
    return left


CORE = ReplicaRequirements(request={"cpu": 1})


@settings(max_examples=150, deadline=None)
@example(
    # Best fit would leave two of three cells whole; spreading takes from each.
    drawn=[(0, [(3, 9, 9)]), (0, [(3, 9, 9)]), (0, [(3, 9, 9)])],
    promised=[Outstanding(binding="x", requirements=CORE, in_cells=3)],
    asked=ReplicaRequirements(request={"cpu": 3}),
    seed=1,
)
@given(drawn=drawn_cells, promised=outstandings, asked=shapes, seed=st.integers(0, 2**32))
def test_the_bounds_hold_wherever_promised_pods_land(
    drawn: DrawnCells, promised: list[Outstanding], asked: ReplicaRequirements, seed: int
) -> None:
    # Another cluster stands before it, so that positions matter.
    cells = FleetCells.of([pools_of([(0, [(5, 5, 5)])]), pools_of(drawn), None])
    columns = PromisedColumns.of({1: promised, 2: promised})
    bounds = bounds_beside(cells, pool_bounds(cells, asked), asked, columns)
    level = answer_of(bounds)
    assert level.bound_c[0] == Bound.EXACT
    if promised:
        assert level.bound_c[1] == Bound.LOWER
    nodes = [(pool, node) for pool, nodes in drawn for node in nodes]
    chance = random.Random(seed)
    for _ in range(10):
        there = truth(placed(nodes, promised, asked, chance), asked)
        assert bounds.lower_c[1] <= there <= bounds.upper_c[1]


@settings(deadline=None)
@example(
    # Prices of so many bits that they are sorted in another way.
    drawn=[(0, [(2**60 + 5, 9, 9)]), (0, [(2**59 + 7, 9, 9)])],
    before=[],
    promised=[
        Outstanding(
            binding="x", requirements=ReplicaRequirements(request={"cpu": 2**57}), in_cells=3
        )
    ],
    asked=ReplicaRequirements(request={"cpu": 2**58}),
)
@given(drawn=drawn_cells, before=outstandings, promised=outstandings, asked=shapes)
def test_the_lower_bound_loses_no_more_than_the_obvious_loops_say(
    drawn: DrawnCells,
    before: list[Outstanding],
    promised: list[Outstanding],
    asked: ReplicaRequirements,
) -> None:
    """Also where what was promised before in another cluster is known still, or is not any more."""
    others, pools = pools_of([(1, [(9, 9, 9)])]), pools_of(drawn)
    cells = FleetCells.of([others, pools])
    columns = PromisedColumns.of({0: before, 1: before}).after({0: before, 1: promised})
    whole = pool_bounds(cells, asked)
    beside = bounds_beside(cells, whole, asked, columns)
    own = Outstanding(binding="own", requirements=asked, in_cells=0)
    for position, (there, rivals) in enumerate(((others, before), (pools, promised))):
        met = [each for each in rivals if slow_strict.may_meet(there, own, each)]
        by_replica, by_amount = slow_strict.losses(there, own, met)
        least = max(0, slow_strict.room_for(there, own) - by_amount)
        assert beside.lower_c[position] == max(whole.lower_c[position] - by_replica, least)


def test_many_small_promises_cost_what_their_amounts_buy() -> None:
    """Not a replica of three cores for each promised tenth of one."""
    cells = FleetCells.of([pools_of([(0, [(300, 900, 200)] * 20)])])
    asked = ReplicaRequirements(request={"cpu": 30})
    small = ReplicaRequirements(request={"cpu": 1})
    columns = PromisedColumns.of({0: [Outstanding(binding="x", requirements=small, in_cells=100)]})
    bounds = bounds_beside(cells, pool_bounds(cells, asked), asked, columns)
    # Twenty nodes lose their tenth replica at once, the other eighty cores buy two more. Pods are
    # not scarce: a hundred of them leave no node without slots, and could at most do so to five.
    assert int(bounds.lower_c[0]) == 200 - (20 + 80 // 30) - 5
