"""What of a binding stays in each cluster, against what its ledger says of that."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from federation.capacity.holdings import FirstStakes
from federation.capacity.ledger import ClusterLedger, LedgerInWork
from federation.model.placement import Binding
from federation.model.reservations import Share
from federation.model.shapes import Echo
from federation.model.workload import ReplicaRequirements, TargetCluster
from federation.services.fleet.snapshot import FleetSnapshot
from federation.services.scheduling.kept_there import kept_there

TINY = ReplicaRequirements(request={"cpu": 500})
SMALL = ReplicaRequirements(request={"cpu": 1000})
LARGE = ReplicaRequirements(request={"cpu": 2000})
KEY = "shop/web"


def held(requirements: ReplicaRequirements, replicas: int, bound: int = 0) -> ClusterLedger:
    ledger = ClusterLedger(cluster="a").decided(KEY, "d1", [Share(requirements, replicas)])
    if not bound:
        return ledger
    shape = tuple(requirements.request.items())
    return ledger.reported(
        ledger.interest_version, [Echo(binding=KEY, component="", shape=shape, bound=bound)]
    )


def web(replicas: int) -> Binding:
    there = (TargetCluster(name="a", replicas=replicas), TargetCluster(name="gone", replicas=1))
    return Binding(namespace="shop", name="web", requirements=SMALL, clusters=there)


def snapshot_of(ledger: ClusterLedger) -> FleetSnapshot:
    return cast(FleetSnapshot, SimpleNamespace(positions={"a": 0}, ledgers=[ledger]))


@pytest.mark.parametrize(
    ("ledger", "replicas", "kept"),
    [
        (held(SMALL, 5), 5, 5),
        (held(SMALL, 5), 3, 3),
        (held(SMALL, 5), 8, 8),
        (held(SMALL, 5, bound=2), 5, 3),
        (held(SMALL, 5, bound=2), 8, 6),
        (held(SMALL, 5, bound=5), 5, 0),
        (held(LARGE, 5), 5, 5),
        # Larger ones that run make room for as many, smaller ones for none.
        (held(LARGE, 5, bound=2), 5, 3),
        (held(TINY, 5, bound=2), 5, 5),
    ],
)
def test_what_is_not_seen_yet_stays(ledger: ClusterLedger, replicas: int, kept: int) -> None:
    snapshot = snapshot_of(ledger)
    assert kept_there(web(replicas), snapshot, {}) == {0: kept}
    working = LedgerInWork(ledger)
    before = working.stake_of(KEY)
    stake = working.stake(FirstStakes(KEY, ""), before, (Share(SMALL, replicas),))
    assert sum(each.to_pack for each in stake.outstanding) == kept


def test_what_changed_since_the_snapshot_counts() -> None:
    snapshot, working = snapshot_of(held(SMALL, 5)), LedgerInWork(held(SMALL, 5))
    changed: Any = {0: working}
    working.put(
        KEY,
        working.stake_of(KEY),
        working.stake(FirstStakes(KEY, "d2"), working.stake_of(KEY), (Share(LARGE, 7),)),
    )
    assert kept_there(web(7), snapshot, changed) == {0: 7}
    working.release(KEY)
    assert kept_there(web(7), snapshot, changed) == {}


def test_where_nothing_is_held_nothing_is_kept() -> None:
    assert kept_there(web(5), snapshot_of(ClusterLedger(cluster="a")), {}) == {}
