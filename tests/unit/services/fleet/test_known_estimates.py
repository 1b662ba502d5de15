"""What is known of shapes keeps nothing of earlier reports alive."""

from __future__ import annotations

import weakref

from federation.capacity.fleet_cells import FleetCells
from federation.capacity.fleet_reports import FleetCapacity
from federation.model.cluster import Cluster, ClusterState
from federation.model.estimate import EstimateOptions
from federation.model.pools.values import Pools
from federation.model.workload import ReplicaRequirements
from federation.services.fleet.known_estimates import KnownEstimates
from tests.properties.test_estimates_beside_promises import pools_of


def pools(free: int) -> Pools:
    return pools_of([(0, [(free, 8, 10)])])


def test_a_shape_that_nobody_asks_for_again_keeps_no_cells_alive() -> None:
    known = KnownEstimates()
    capacity = FleetCapacity.of([ClusterState(cluster=Cluster(name="a"))])
    cells = FleetCells.of([pools(4)])
    before = weakref.ref(cells.blocks[0].cells.min_rk)
    for cpu in (1, 2):
        shape = ReplicaRequirements(request={"cpu": cpu})
        known.estimates(capacity, cells, shape, EstimateOptions())
        cells = cells.with_clusters({0: pools(6)})
    again = known.estimates(capacity, cells, shape, EstimateOptions())
    assert again.replicas_c.tolist() == [3]
    assert before() is None
