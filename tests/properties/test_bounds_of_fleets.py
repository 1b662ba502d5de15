"""The bounds of a fleet's clusters against those of its cells, one by one and added up."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from federation.capacity.fleet_cells import FleetCells
from federation.capacity.pool_estimates import pool_bounds
from federation.model.estimate import MAX_REPLICAS
from federation.model.pools.bounds import per_replica, tighter_lower_k, upper_k
from federation.model.pools.matching import Match, pool_match
from federation.model.pools.values import Cells, NodePool, Pools
from federation.model.workload import NodeClaim, ReplicaRequirements

POOLS = (NodePool(labels={"zone": "a"}), NodePool(labels={"zone": "b"}))
NAMES = ("cpu", "memory", "pods", "gpu")
LARGE = 2**40

amounts = st.one_of(st.integers(0, 20), st.integers(0, LARGE))
nodes = st.tuples(amounts, amounts, st.integers(0, 12), st.integers(0, 3))
# A cell: its pool, its nodes, and whether its sums are all there is.
drawn_cells = st.tuples(
    st.integers(0, 1), st.lists(nodes, min_size=1, max_size=4), st.sampled_from([True, True, False])
)
requests = st.dictionaries(
    st.sampled_from([*NAMES, "nobody's"]), st.integers(0, 9) | st.integers(1, LARGE), max_size=3
)
claims = st.sampled_from([None, None, NodeClaim(node_selector={"zone": "a"})])


@st.composite
def clusters(draw: st.DrawFn) -> Pools | None:
    """Of some of the resources; or one that reported no pools."""
    cells = draw(st.lists(drawn_cells, max_size=5))
    if not cells:
        return None
    # Pods are in every report.
    names = draw(st.sampled_from([NAMES, NAMES[:3], (NAMES[1], NAMES[0], NAMES[2])]))
    rows = [NAMES.index(name) for name in names]
    free = [np.array(every, dtype=np.int64)[:, rows] for _, every, _ in cells]
    return Pools(
        label_keys=("zone",),
        pools=POOLS,
        cells=Cells(
            resources=names,
            pool_k=np.array([pool for pool, _, _ in cells], np.int32),
            count_k=np.array([len(every) for every in free], np.int64),
            min_rk=np.array([every.min(axis=0) for every in free]).T.copy(),
            sum_rk=np.array([every.sum(axis=0) for every in free]).T.copy(),
            max_rk=np.array([every.max(axis=0) for every in free]).T.copy(),
            sum_exact_k=np.array([is_exact for _, _, is_exact in cells]),
        ),
    )


@given(st.lists(clusters(), max_size=5), requests, claims)
def test_a_cluster_has_the_bounds_of_its_cells(
    pools: Sequence[Pools | None], request: dict[str, int], claim: NodeClaim | None
) -> None:
    bounds = pool_bounds(
        FleetCells.of(pools), ReplicaRequirements(request=request, node_claim=claim)
    )
    demanded = per_replica(request)
    suits_p = np.array([pool_match(pool, ("zone",), claim) is Match.YES for pool in POOLS])
    for position, each in enumerate(pools):
        lower, upper = 0, 0
        if each is not None:
            suits_k = suits_p[each.cells.pool_k]
            lower = int((tighter_lower_k(each.cells, demanded) * suits_k).sum())
            upper = int((upper_k(each.cells, demanded) * suits_k).sum())
        assert bounds.answered_c[position] == (each is not None)
        assert bounds.lower_c[position] == min(lower, MAX_REPLICAS)
        assert bounds.upper_c[position] == min(upper, MAX_REPLICAS)
