"""Claims that move where the scores that chose their nodes leave no room for one more."""

from __future__ import annotations

from collections.abc import Sequence

from estimator.binpack.strategy import Strategy
from estimator.cluster.claims import Claim
from estimator.estimation.capacity import NodeSet
from estimator.nodes import Node
from estimator.placing.moving import BALANCED, seated_anew
from estimator.placing.place import MOST_ALLOCATED, Seating
from estimator.watched_cluster import WatchedCluster
from federation.model.node_plans import NodePlan, PlaceOrder, ShareOrder
from federation.model.resources import CPU, MEMORY, PODS
from federation.model.shapes import ReservationKey, request_shape
from federation.model.workload import ReplicaRequirements

GIB = 1 << 30


class Member:
    """A node with much memory, and one with many cores."""

    def __init__(self) -> None:
        self.cluster = WatchedCluster(NodeSet.SCHEDULABLE)
        self.cluster.follows_claims = True
        for name, cores, gibibytes in (("memory", 4, 16), ("cores", 8, 4)):
            allocatable = {CPU: cores * 1000, MEMORY: gibibytes * GIB, PODS: 110}
            self.cluster.cache.put_node(Node(name=name, labels={}, allocatable=allocatable))

    def order(self, binding: str, *, cores: int, gibibytes: int) -> NodePlan:
        request = {CPU: cores * 1000, MEMORY: gibibytes * GIB}
        share = ShareOrder(replicas=1, requirements=ReplicaRequirements(request=request))
        order = PlaceOrder(binding_key=binding, shares=(share,), planned=True)
        return self.cluster.place(order, now=0.0)

    @property
    def nodes(self) -> dict[str, str]:
        claims = list(self.cluster.claims.all())
        return {each.promise.binding: each.node for each in claims if each.promise}


def test_claims_move_to_nodes_that_they_even_out() -> None:
    """By most allocated all cores of the node with much memory are taken, whatever the order."""
    member = Member()
    assert member.order("shop/web", cores=4, gibibytes=2).claimed
    assert member.nodes == {"shop/web": "memory"}
    plan = member.order("shop/cache", cores=1, gibibytes=5)
    assert (plan.claimed, plan.unplaced, plan.message) == (True, 0, "")
    assert plan.strategy == "BalancedAllocation"
    assert member.nodes == {"shop/web": "cores", "shop/cache": "memory"}


def test_claims_stay_where_the_scores_find_room() -> None:
    member = Member()
    assert member.order("shop/web", cores=4, gibibytes=2).claimed
    plan = member.order("shop/cache", cores=1, gibibytes=4)
    assert (plan.claimed, plan.strategy) == (True, "MostAllocated")
    assert member.nodes == {"shop/web": "memory", "shop/cache": "cores"}


def test_claims_are_seated_anew_in_the_order_that_they_were_made_in_too() -> None:
    member = Member()
    held = {key_of("web", 1): [claim_of(1)], key_of("db", 3): [claim_of(3)]}
    asked = {key_of("cache", 2): ShareOrder(replicas=1, requirements=cores(2))}
    tried: list[tuple[str, list[int]]] = []

    def seated(shares: Sequence[ShareOrder], strategy: Strategy) -> list[Seating]:
        order = [each.requirements.request[CPU] // 1000 for each in shares]
        tried.append((strategy.name, order))
        unplaced = 0 if (strategy, order) == (BALANCED, [1, 3, 2]) else 1
        nothing = Seating(claims=(), nodes=(), unplaced=unplaced, why="", strategy=strategy.name)
        return [nothing] * len(shares)

    snapshot = member.cluster.cache.snapshot()
    assert [*seated_anew(held, asked, snapshot, MOST_ALLOCATED, seated)] == [*held, *asked]
    assert tried == [("MostAllocated", [3, 2, 1]), ("BalancedAllocation", [1, 3, 2])]


def key_of(name: str, count: int) -> ReservationKey:
    return ReservationKey(f"shop/{name}", "", request_shape(cores(count).request))


def claim_of(count: int) -> Claim:
    return Claim(node="cores", replicas=1, request=cores(count).request, nonzero={})


def cores(count: int) -> ReplicaRequirements:
    return ReplicaRequirements(request={CPU: count * 1000})
