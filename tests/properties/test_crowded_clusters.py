"""Promises in crowded clusters: no more than fits after each run of a rehearsal."""

from __future__ import annotations

from functools import reduce

import numpy as np
import pytest

from federation.capacity.careful import CAREFULLY, LEFT_FREE, PromiseTerms, careful_c
from federation.capacity.cluster_room import ReportId
from federation.capacity.fleet_rooms import FleetRooms, UnpackedRoom
from federation.capacity.rehearsal import part_of
from federation.capacity.reserve import Refused, packable_c
from federation.model.placement import Certificate
from federation.model.reservations import Outstanding, PackingOrder
from federation.model.workload import ReplicaRequirements
from lab.promising import asked_of
from tests.pools import cells_of, one_pool

GIB = 1 << 30
NODES = 12
SIZES = ((250, GIB // 4), (250, GIB // 2), (500, GIB), (1000, GIB), (1000, 4 * GIB))
SMALL = ReplicaRequirements(request={"cpu": 100, "memory": GIB // 4})
NAMES = ("a",)


def fleet_of(*promises: Outstanding, seed: int) -> FleetRooms:
    """A cluster of unlike nodes of 8 cores and 32 GiB."""
    random = np.random.default_rng(seed)
    groups = [
        [(int(random.integers(500, 3000)), int(random.integers(1, 8)) * GIB, 50)]
        for _ in range(NODES)
    ]
    nodes = one_pool(cells_of(groups, allocatable=[(8000, 32 * GIB)] * NODES))
    return FleetRooms.of(
        [UnpackedRoom(ReportId(1, 1), nodes, False, PackingOrder.of_report(promises))]
    )


def runs_of(fleet: FleetRooms, requirements: ReplicaRequirements = SMALL) -> list[int]:
    """The replicas that fit beside all promises, in each run of a rehearsal; none where a promise
    finds no node in one of them.
    """
    (room,), (site,) = fleet.rooms, fleet.clusters
    assert room is not None
    assert site is not None
    stage = site.rehearse(fleet.kinds, room.outstanding).stage
    assert stage is not None
    if stage.late_l.any():
        return []
    part = part_of(Outstanding("", requirements, 1), site.kind_p, fleet.kinds)
    runs: list[int] = stage.room_l(part).tolist()
    return runs


def crowded_fleet(seed: int) -> FleetRooms:
    """A cluster with as many pods of other shapes on their way as find nodes in each run."""
    random = np.random.default_rng(seed)

    def with_one_more(promises: tuple[Outstanding, ...], number: int) -> tuple[Outstanding, ...]:
        cpu, memory = SIZES[int(random.integers(len(SIZES)))]
        requirements = ReplicaRequirements(request={"cpu": cpu, "memory": memory})
        promise = Outstanding(f"shop/w{number}", requirements, int(random.integers(1, 4)))
        longer = (*promises, promise)
        return longer if runs_of(fleet_of(*longer, seed=seed)) else promises

    return fleet_of(*reduce(with_one_more, range(40), ()), seed=seed)


def is_accepted(fleet: FleetRooms, replicas: int, terms: PromiseTerms = CAREFULLY) -> bool:
    ask = Outstanding("shop/small", SMALL, replicas)
    return not isinstance(asked_of(fleet, NAMES, ask.binding, {0: (ask,)}, terms), Refused)


def test_no_more_is_promised_than_fits_after_each_run() -> None:
    held_back = 0
    for seed in range(8, 20):
        fleet = crowded_fleet(seed)
        first_sight = int(careful_c(fleet, SMALL)[0])
        rehearsed = max(0, min(runs_of(fleet)) - LEFT_FREE)
        (available,) = packable_c(fleet, SMALL, Certificate.CAREFUL).tolist()
        assert available == min(first_sight, rehearsed)
        # A new binding is promised just that.
        assert available == 0 or is_accepted(fleet, available)
        assert not is_accepted(fleet, available + 1)
        if available < first_sight:
            held_back += 1
            assert is_accepted(fleet, first_sight, PromiseTerms(placed=frozenset({0})))
    assert held_back


@pytest.mark.parametrize("seed", range(3))
def test_promises_are_not_held_to_a_rehearsal_where_there_is_much_room(seed: int) -> None:
    other = ReplicaRequirements(request={"cpu": 250, "memory": GIB // 2})
    fleet = fleet_of(Outstanding("shop/w", other, 3), seed=seed)
    (site,) = fleet.clusters
    assert site is not None
    found_c = packable_c(fleet, SMALL, Certificate.CAREFUL)
    assert found_c.tolist() == careful_c(fleet, SMALL).tolist()
    assert not site.caches.rehearsed.promises
