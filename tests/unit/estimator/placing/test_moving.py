"""Claims that move where the scores that chose their nodes leave no room for one more."""

from __future__ import annotations

from estimator.estimation.capacity import NodeSet
from estimator.nodes import Node
from estimator.watched_cluster import WatchedCluster
from federation.model.node_plans import NodePlan, PlaceOrder, ShareOrder
from federation.model.resources import CPU, MEMORY, PODS
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
