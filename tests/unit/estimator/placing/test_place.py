from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from estimator.cluster.cache import ClusterCache
from estimator.cluster.claims import EXPIRY_SECONDS, Claims
from estimator.nodes import Node, Pod, PodState
from estimator.placing.place import place_shares
from federation.model.node_plans import NodePlan, PlaceOrder, ShareOrder
from federation.model.resources import CPU, MEMORY, PODS
from federation.model.workload import NodeClaim, ReplicaRequirements

GIB = 1 << 30
NOW = 1000.0


class World:
    """A cluster of nodes with 4 cores, 8 GiB and 10 slots each, and its claims."""

    def __init__(self, *names: str) -> None:
        self.claims = Claims()
        self.cache = ClusterCache(on_bound=self.claims.settle)
        for name in names:
            self.cache.put_node(
                Node(
                    name=name,
                    labels={"name": name},
                    allocatable={CPU: 4000, MEMORY: 8 * GIB, PODS: 10},
                )
            )

    def place(
        self, binding: str, *shares: ShareOrder, now: float = NOW
    ) -> tuple[NodePlan, dict[str, int]]:
        order = PlaceOrder(binding_key=binding, shares=shares)
        plan = place_shares(self.cache.snapshot(), self.claims, order, now)
        return plan, {share.node: share.replicas for share in plan.nodes}

    def bind(self, uid: str, node: str, *, cpu: int = 1000, namespace: str = "shop") -> None:
        self.cache.put_pod(
            Pod(
                uid=uid,
                namespace=namespace,
                name=uid,
                node=node,
                state=PodState.BOUND,
                request={CPU: cpu},
                nonzero={CPU: cpu, MEMORY: 200 << 20},
            )
        )

    def claimed(self) -> dict[str, int]:
        total: dict[str, int] = {}
        for claim in self.claims.all():
            total[claim.node] = total.get(claim.node, 0) + claim.replicas
        return total


def share(
    replicas: int, *, cpu: int = 1000, component: str = "", node: str | None = None
) -> ShareOrder:
    claim = None if node is None else NodeClaim(node_selector={"name": node})
    return ShareOrder(
        component=component,
        replicas=replicas,
        requirements=ReplicaRequirements(request={CPU: cpu}, node_claim=claim),
    )


def test_the_fullest_node_is_filled_first() -> None:
    world = World("a", "b")
    world.bind("p", "b")
    plan, nodes = world.place("shop/web", share(4))
    assert nodes == {"a": 1, "b": 3}
    assert plan.unplaced == 0
    assert plan.strategy == "MostAllocated"


def test_the_score_is_that_of_the_first_replica() -> None:
    plan, _ = World("a").place("shop/web", share(2, cpu=2000))
    # cpu 2000 of 4000 is 50; memory 200 MiB of 8 GiB is 2: on average 26.
    assert [each.score for each in plan.nodes] == [26]


def test_a_second_placing_does_not_use_the_same_room() -> None:
    world = World("a")
    world.place("shop/web", share(3))
    plan, nodes = world.place("shop/api", share(3))
    assert nodes == {"a": 1}
    assert plan.unplaced == 2
    assert plan.message == "2 of 3 replicas found no node among 1: 1 short of cpu"


def test_shares_of_one_order_do_not_share_room() -> None:
    plan, _ = World("a").place(
        "shop/flink", share(3, component="jobs"), share(3, component="tasks")
    )
    assert [(each.component, each.replicas) for each in plan.nodes] == [("jobs", 3), ("tasks", 1)]
    assert plan.message.startswith("2 of 3 replicas of tasks found no node")


def test_placing_a_binding_anew_releases_what_it_held() -> None:
    world = World("a")
    world.place("shop/web", share(4))
    _, nodes = world.place("shop/web", share(2))
    assert nodes == {"a": 2}
    assert world.claimed() == {"a": 2}
    world.place("shop/web", share(0))
    assert world.claimed() == {}


def test_a_bound_pod_takes_over_its_claim() -> None:
    world = World("a", "b")
    world.place("shop/web", share(3, node="a"))
    world.bind("p", "a")
    assert world.claimed() == {"a": 2}
    world.bind("p", "a")
    assert world.claimed() == {"a": 2}
    world.bind("q", "b")
    assert world.claimed() == {"a": 1}


def test_foreign_pods_take_no_claim_over() -> None:
    world = World("a", "b")
    world.place("shop/web", share(1))
    world.bind("p", "a", namespace="other")
    world.bind("q", "b", cpu=700)
    assert world.claimed() == {"a": 1}


def test_claims_expire() -> None:
    world = World("a")
    world.place("shop/web", share(4))
    _, nodes = world.place("shop/api", share(4), now=NOW + EXPIRY_SECONDS)
    assert nodes == {"a": 4}


def test_nodes_that_are_ruled_out_are_counted() -> None:
    plan, nodes = World("a", "b", "c").place("shop/web", share(11, cpu=400, node="b"))
    assert nodes == {"b": 10}
    assert plan.message == (
        "1 of 11 replicas found no node among 3: "
        "2 ruled out by selector, affinity or taints, 1 short of cpu, 1 short of pods"
    )


def test_without_nodes_it_says_so() -> None:
    plan, _ = World().place("shop/web", share(2))
    assert (plan.unplaced, plan.message) == (
        2,
        "2 of 2 replicas found no node: the cluster has no nodes",
    )


orders = st.lists(
    st.tuples(st.sampled_from("abcd"), st.integers(0, 8), st.integers(1, 3000)), max_size=8
)


@given(orders)
def test_claims_never_pass_what_nodes_have(placings: list[tuple[str, int, int]]) -> None:
    world = World("a", "b", "c")
    for binding, replicas, cpu in placings:
        plan, nodes = world.place(f"shop/{binding}", share(replicas, cpu=cpu))
        assert sum(nodes.values()) + plan.unplaced == replicas
    for name in ("a", "b", "c"):
        held = [claim for claim in world.claims.all() if claim.node == name]
        assert sum(claim.request[CPU] * claim.replicas for claim in held) <= 4000
        assert sum(claim.replicas for claim in held) <= 10
