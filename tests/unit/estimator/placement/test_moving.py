"""Claims that move where the scores that chose their nodes leave no room for one more."""

from __future__ import annotations

from collections.abc import Sequence

from estimator.binpack.strategy import Strategy
from estimator.cluster.cache import ClusterCache
from estimator.cluster.holds import Claim
from estimator.placement.place import BALANCED, DEFAULT_STRATEGY, Seating, seated_anew
from federation.model.node_plans import ShareOrder
from federation.model.resources import CPU
from federation.model.shapes import ReservationKey, request_shape
from federation.model.workload import ReplicaRequirements


def test_claims_are_seated_anew_in_the_order_that_they_were_made_in_too() -> None:
    held = {key_of("web", 1): [claim_of(1)], key_of("db", 3): [claim_of(3)]}
    asked = {key_of("cache", 2): ShareOrder(replicas=1, requirements=cores(2))}
    tried: list[tuple[str, list[int]]] = []

    def seated(shares: Sequence[ShareOrder], strategy: Strategy) -> list[Seating]:
        order = [each.requirements.request[CPU] // 1000 for each in shares]
        tried.append((strategy.name, order))
        unplaced = 0 if (strategy, order) == (BALANCED, [1, 3, 2]) else 1
        nothing = Seating(claims=(), nodes=(), unplaced=unplaced, why="", strategy=strategy.name)
        return [nothing] * len(shares)

    snapshot = ClusterCache().snapshot()
    assert [*seated_anew(held, asked, snapshot, DEFAULT_STRATEGY, seated)] == [*held, *asked]
    assert tried == [("MostAllocated", [3, 2, 1]), ("BalancedAllocation", [1, 3, 2])]


def key_of(name: str, count: int) -> ReservationKey:
    return ReservationKey(f"shop/{name}", "", request_shape(cores(count).request))


def claim_of(count: int) -> Claim:
    return Claim(node="cores", replicas=1, request=cores(count).request, nonzero={})


def cores(count: int) -> ReplicaRequirements:
    return ReplicaRequirements(request={CPU: count * 1000})
