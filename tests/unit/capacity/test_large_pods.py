"""Careful promises leave room for large pods that come late, and are held back nowhere else."""

from __future__ import annotations

import numpy as np
import pytest

from federation.capacity.cluster_room import ReportId
from federation.capacity.fleet_rooms import FleetRooms, UnpackedRoom
from federation.capacity.large_pods import LARGE_PART, max_beside_large
from federation.capacity.reserve import packable_c
from federation.model.placement import Certificate
from federation.model.pools.values import Cells, NodePool, Pools
from federation.model.reservations import Outstanding
from federation.model.workload import ReplicaRequirements

GIB = 1 << 30
CORES, NODES = 16_000, 6


def of(cpu: int) -> ReplicaRequirements:
    return ReplicaRequirements(request={"cpu": cpu, "memory": GIB})


SMALL, LARGE = of(1000), of(12_000)


def pools(*, tells: bool = True) -> Pools:
    """Nodes of 16 cores: three are empty, and three have room for three small pods."""
    free_rk = np.array([[CORES, 3000], [64 * GIB] * 2, [50] * 2], dtype=np.int64)
    total_sk = np.array([[CORES] * 2, [64 * GIB] * 2], dtype=np.int64)
    return Pools(
        label_keys=(),
        pools=(NodePool(),),
        cells=Cells(
            resources=("cpu", "memory", "pods"),
            pool_k=np.zeros(2, np.int32),
            count_k=np.full(2, NODES // 2),
            min_rk=free_rk,
            sum_rk=free_rk * (NODES // 2),
            max_rk=free_rk,
            sum_exact_k=np.ones(2, np.bool_),
            allocatable_rk=total_sk if tells else None,
        ),
        kubernetes_minor=36,
    )


def fleet_of(*promised: tuple[ReplicaRequirements, int], tells: bool = True) -> FleetRooms:
    outstanding = tuple(
        Outstanding(f"shop/w{number}", requirements, replicas)
        for number, (requirements, replicas) in enumerate(promised)
    )
    return FleetRooms.of([UnpackedRoom(ReportId(1, 1), pools(tells=tells), False, outstanding)])


def beside(fleet: FleetRooms, requirements: ReplicaRequirements, limit: int) -> int:
    room = fleet.rooms[0]
    assert room is not None
    return max_beside_large(room, requirements, limit).replicas


def test_small_pods_leave_the_empty_nodes_to_a_large_one_that_comes_last() -> None:
    # Small pods go to the empty nodes first: with five on each of them, none takes a large one.
    assert beside(fleet_of((LARGE, 1)), SMALL, 12) == 12
    assert beside(fleet_of((LARGE, 1)), SMALL, 20) < 15
    assert beside(fleet_of((LARGE, 3)), SMALL, 20) <= 12


def test_a_large_pod_has_room_once_all_others_are_there_and_another_one_would() -> None:
    assert beside(fleet_of((SMALL, 12)), LARGE, 2) == 2
    assert beside(fleet_of((SMALL, 12)), LARGE, 3) == 2
    assert beside(fleet_of((SMALL, 15)), LARGE, 3) == 0


def test_small_pods_leave_room_for_another_large_one_where_there_is_some() -> None:
    assert beside(fleet_of((LARGE, 2)), SMALL, 12) == 12
    # A thirteenth is the fifth on one of the empty nodes: two are left, and both are needed.
    assert beside(fleet_of((LARGE, 2)), SMALL, 13) == 12
    # There is none already: nothing is lost.
    assert beside(fleet_of((LARGE, 3)), SMALL, 12) == 12


def test_what_came_one_by_one_counts_as_all_at_once() -> None:
    promised = [(LARGE, 1), (SMALL, 2), (LARGE, 1), (SMALL, 3)]
    together = fleet_of(*promised)
    grown = fleet_of(*promised[:2])
    beside(grown, SMALL, 5)
    room = together.rooms[0]
    assert room is not None
    held = grown.rooms[0]
    assert held is not None
    grown = grown.with_rooms({0: held.with_all(room.outstanding[2:])})
    for requirements in (SMALL, LARGE):
        for limit in (1, 5, 20):
            assert beside(grown, requirements, limit) == beside(together, requirements, limit)


def test_careful_promises_are_held_to_it() -> None:
    told, untold = fleet_of((LARGE, 3)), fleet_of((LARGE, 3), tells=False)
    held_to = int(packable_c(told, SMALL, Certificate.CAREFUL, {})[0])
    assert 0 < held_to < int(packable_c(untold, SMALL, Certificate.CAREFUL, {})[0])
    assert beside(told, SMALL, held_to) == held_to


@pytest.mark.parametrize(
    ("fleet", "requirements"),
    [
        (fleet_of(), SMALL),
        (fleet_of((LARGE, 1)), LARGE),
        (fleet_of((LARGE, 1), tells=False), SMALL),
        (fleet_of((of(CORES // LARGE_PART), 2)), SMALL),
    ],
    ids=["nothing on its way", "all of one shape", "no allocatable", "nothing large"],
)
def test_nothing_is_held_back_where_none_would_be_late(
    fleet: FleetRooms, requirements: ReplicaRequirements
) -> None:
    assert beside(fleet, requirements, 50) == 50
