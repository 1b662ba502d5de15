"""Claims for what is promised by plan: made, followed, counted as bound, and ended."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from estimator.cluster.claims import EXPIRY_SECONDS, Claim
from estimator.estimation.capacity import NodeSet
from estimator.nodes import Node, Pod, PodState
from estimator.placing.plans import NOT_FOLLOWED
from estimator.watched_cluster import UNGRADED, WatchedCluster
from federation.model.echoes import Interest, InterestUpdate, Owner, PodOrigin, SoughtShape
from federation.model.node_plans import NodePlan, PlaceOrder, ShareOrder
from federation.model.reservations import PromiseCertificate, Share
from federation.model.resources import CPU, MEMORY, PODS
from federation.model.shapes import ReservationKey, request_shape
from federation.model.workload import NodeClaim, ReplicaRequirements
from tests.pods import incoming

NOW = 1000.0
CORES = 4
WEB = Owner("apps/v1", "Deployment", "shop", "web")
REQUEST = {CPU: 1000}
KEY = ReservationKey("shop/web", "", request_shape(REQUEST))


def sought_for(binding: str, planned: int | None, cpu: int = 1000) -> Interest:
    """Its pods are looked for, and so many replicas are promised by plan."""
    share = None
    if planned is not None:
        share = Share(
            requirements=requirements(cpu),
            replicas=planned,
            certificate=PromiseCertificate.PLANNED,
        )
    shape = request_shape({CPU: cpu})
    sought = SoughtShape(component="", shape=shape, decisions=("d",), planned=share)
    return Interest(binding=binding, owner=WEB, shapes=(sought,))


def requirements(cpu: int = 1000) -> ReplicaRequirements:
    return ReplicaRequirements(request={CPU: cpu})


class World:
    """A cluster of nodes with 4 cores where a placer follows claims."""

    def __init__(self, *names: str) -> None:
        self.member = WatchedCluster(NodeSet.SCHEDULABLE)
        self.member.follows_claims = True
        for name in names:
            self.put_node(name)

    def put_node(self, name: str, *, unschedulable: bool = False, zone: str = "") -> None:
        self.member.cache.put_node(
            Node(
                name=name,
                labels={"zone": zone},
                allocatable={CPU: CORES * 1000, MEMORY: 8 << 30, PODS: 110},
                unschedulable=unschedulable,
            )
        )

    def order(
        self, replicas: int, *, planned: bool = True, cpu: int = 1000, binding: str = "shop/web"
    ) -> NodePlan:
        share = ShareOrder(replicas=replicas, requirements=requirements(cpu))
        order = PlaceOrder(binding_key=binding, shares=(share,), planned=planned)
        return self.member.place(order, NOW)

    def tell(self, planned: int | None, version: int = 1, *, whole: bool = False) -> None:
        """The agent looks for the binding, of which so many replicas are promised by plan."""
        interest = sought_for("shop/web", planned)
        self.update(InterestUpdate(version=version, whole=whole, interests=(interest,)))

    def update(self, update: InterestUpdate) -> None:
        for _ in self.member.look_for(update, NOW):
            pass

    def pod(self, uid: str, node: str = "", cpu: int = 1000, owner: Owner | None = WEB) -> None:
        self.member.cache.put_pod(
            Pod(
                uid=uid,
                namespace="shop",
                name=uid,
                node=node,
                state=PodState.BOUND if node else PodState.WAITING,
                request={CPU: cpu},
                nonzero={CPU: cpu, MEMORY: 200 << 20},
                origin=PodOrigin.of({}, (owner,) if owner else ()),
            )
        )

    @property
    def claimed(self) -> dict[str, int]:
        # Looked at once a second, and before every answer.
        self.member.totals()
        found: Counter[str] = Counter()
        for claim in self.member.claims.planned(KEY):
            found[claim.node] += claim.replicas
        return dict(found)

    @property
    def lost(self) -> str:
        """Why the promise is not kept by plan; empty: it is."""
        self.member.totals()
        return next((each.reason for each in self.member.lost_plans()), "")

    @property
    def echo(self) -> tuple[int, int]:
        """Bound and waiting pods, as reported."""
        _, echoes = self.member.echoes()
        return next(((echo.bound, echo.unbound) for echo in echoes if echo.key == KEY), (0, 0))

    @property
    def free_cores(self) -> int:
        summary = self.member.capacity(UNGRADED).summary
        return (summary.allocatable[CPU] - summary.allocated.get(CPU, 0)) // 1000

    @property
    def waiting_cores(self) -> int:
        summary = self.member.capacity(UNGRADED).summary
        return summary.allocating.get(CPU, 0) // 1000


def test_claims_are_taken_from_the_capacity_and_echoed_as_bound() -> None:
    world = World("a", "b")
    world.tell(3)
    assert world.echo == (3, 0)
    assert world.free_cores == 5
    world.pod("p")
    assert (world.echo, world.waiting_cores) == ((3, 0), 0)
    world.pod("q", owner=None)
    assert (world.echo, world.waiting_cores) == ((3, 0), 1)
    assert sum(claim.replicas for claim in world.member.claims.all()) == 3


def test_a_pod_that_is_bound_ends_one_claim_wherever_it_is() -> None:
    world = World("a", "b")
    world.tell(3)
    (node,) = world.claimed
    other = "b" if node == "a" else "a"
    world.pod("p", node)
    assert (world.claimed, world.echo, world.free_cores) == ({node: 2}, (3, 0), 5)
    world.pod("q", other)
    assert (world.claimed, world.echo, world.free_cores) == ({node: 1}, (3, 0), 5)
    # Its request is not the promise's, as a sidecar was injected: it stands for it all the same.
    world.pod("r", node, cpu=1500)
    assert (world.claimed, world.echo) == ({}, (3, 0))


def test_an_order_is_claimed_as_a_whole_or_not_at_all() -> None:
    world = World("a")
    plan = world.order(3)
    assert plan.claimed
    assert {node.node: node.replicas for node in plan.nodes} == {"a": 3}
    plan = world.order(5)
    assert not plan.claimed
    assert plan.unplaced == 1
    assert "short of cpu" in plan.message
    assert world.claimed == {"a": 3}
    assert world.order(4).claimed
    assert world.claimed == {"a": 4}


def test_claims_of_others_move_where_that_makes_room() -> None:
    """Two cores were claimed on b, three on a, and one core each is left; all seven fit."""
    world = crowded_world()
    plan = world.order(1, cpu=2000, binding="shop/cache")
    assert (plan.claimed, plan.message) == (True, "")
    assert nodes_claimed(world) == {"shop/db": "b", "shop/web": "a", "shop/cache": "a"}
    assert world.member.claims.expires_at(PLANNED_WEB) == NOW + EXPIRY_SECONDS


def test_claims_of_others_move_for_what_the_control_plane_tells_of() -> None:
    """As after a restart, when nodes are chosen in another order than before."""
    world = crowded_world()
    told = sought_for("shop/cache", 1, cpu=2000)
    world.update(InterestUpdate(version=1, whole=False, interests=(told,)))
    assert nodes_claimed(world) == {"shop/db": "b", "shop/web": "a", "shop/cache": "a"}
    assert world.member.lost_plans() == []
    assert world.member.claims.expires_at(PLANNED_WEB) == NOW + EXPIRY_SECONDS
    cache = ReservationKey("shop/cache", "", request_shape({CPU: 2000}))
    assert not world.member.claims.is_provisional(cache)


def test_claims_of_others_do_not_move_for_what_was_lost_before() -> None:
    """It is tried every second, and careful soon."""
    world = crowded_world()
    world.pod("another", "a", owner=None)
    told = sought_for("shop/cache", 1, cpu=2000)
    world.update(InterestUpdate(version=1, whole=False, interests=(told,)))
    assert [each.binding for each in world.member.lost_plans()] == ["shop/cache"]
    world.member.cache.remove_pod("another")
    world.member.totals()
    assert nodes_claimed(world) == {"shop/db": "a", "shop/web": "b"}
    world.member.cache.remove_pod("foreign")
    world.member.totals()
    assert nodes_claimed(world) == {"shop/db": "a", "shop/web": "b", "shop/cache": "b"}
    assert world.member.lost_plans() == []


def test_claims_move_for_those_that_fewer_nodes_suit() -> None:
    """The larger one is claimed on a, the only node that suits the smaller, and moves to b."""
    world = World()
    world.put_node("a", zone="here")
    world.put_node("b")
    assert world.order(1, cpu=3000, binding="shop/db").claimed
    assert nodes_claimed(world) == {"shop/db": "a"}
    only_here = ReplicaRequirements(
        request={CPU: 2000}, node_claim=NodeClaim(node_selector={"zone": "here"})
    )
    share = ShareOrder(replicas=1, requirements=only_here)
    order = PlaceOrder(binding_key="shop/web", shares=(share,), planned=True)
    assert world.member.place(order, NOW).claimed
    assert nodes_claimed(world) == {"shop/db": "b", "shop/web": "a"}


def test_claims_stay_where_no_move_makes_room_and_while_their_pods_are_on_their_way() -> None:
    before = {"shop/db": "a", "shop/web": "b"}
    world = crowded_world()
    assert not world.order(2, cpu=2000, binding="shop/cache").claimed
    assert nodes_claimed(world) == before
    member = world.member
    table = member.cache.snapshot().table
    on_b = np.array([node.name == "b" for node in table.nodes])
    member.assumed.assume("p", {CPU: 2000}, on_b, table, NOW, PLANNED_WEB)
    plan = world.order(1, cpu=2000, binding="shop/cache")
    assert not plan.claimed
    assert plan.message == "1 of 1 replicas found no node among 2: 2 short of cpu"
    assert nodes_claimed(world) == before
    member.assumed.drop("p")
    assert world.order(1, cpu=2000, binding="shop/cache").claimed


def test_what_is_bound_needs_no_claim() -> None:
    world = World("a", "b")
    world.tell(None)
    world.pod("p", "b")
    plan = world.order(4)
    assert plan.claimed
    assert sum(node.replicas for node in plan.nodes) == 4
    assert world.claimed == {"b": 3}
    assert world.echo == (4, 0)


def test_without_a_placer_nothing_is_claimed_for_good() -> None:
    world = World("a")
    world.member.follows_claims = False
    plan = world.order(2)
    assert (plan.claimed, plan.unplaced, plan.message) == (False, 0, NOT_FOLLOWED)
    world.tell(2)
    assert (world.claimed, world.echo, world.free_cores) == ({}, (0, 0), CORES)


def test_a_restarted_agent_claims_again_what_was_promised() -> None:
    world = World("a", "b")
    world.pod("p", "a")
    world.pod("q")
    world.tell(4, whole=True)
    assert world.echo == (4, 0)
    assert world.free_cores == 4


def test_a_promise_that_shrinks_or_ends_lets_go_of_its_nodes() -> None:
    world = World("a")
    world.tell(4)
    world.tell(1, 2)
    assert world.echo == (1, 0)
    world.tell(3, 3)
    world.tell(None, 4)
    assert (world.claimed, world.free_cores) == ({}, CORES)
    world.tell(3, 5)
    world.update(InterestUpdate(version=6, whole=False, removed=("shop/web",)))
    assert (world.claimed, world.free_cores) == ({}, CORES)
    world.tell(3, 7)
    world.update(InterestUpdate(version=8, whole=True))
    assert (world.claimed, world.free_cores) == ({}, CORES)


def test_what_was_just_claimed_is_kept_until_the_control_plane_says_what_it_is_worth() -> None:
    world = World("a")
    world.order(2)
    world.tell(None)
    assert world.claimed == {"a": 2}
    world.tell(2, 2)
    world.member.claims.expire(NOW + EXPIRY_SECONDS)
    assert world.claimed == {"a": 2}
    world.tell(None, 3)
    assert world.claimed == {}


def test_what_nobody_promised_in_the_end_expires() -> None:
    world = World("a")
    world.order(2)
    world.member.claims.expire(NOW + EXPIRY_SECONDS)
    assert (world.claimed, world.free_cores) == ({}, CORES)


def test_an_order_without_a_plan_ends_what_was_planned() -> None:
    world = World("a")
    world.tell(2)
    world.order(2, planned=False)
    assert (world.claimed, world.echo) == ({}, (0, 0))


def test_a_claim_whose_room_went_away_is_not_echoed() -> None:
    world = World("a")
    world.tell(3)
    world.pod("foreign", "a", cpu=2000, owner=None)
    assert (world.echo, world.free_cores) == ((2, 0), 0)
    world.put_node("a", unschedulable=True)
    assert world.echo == (0, 0)
    world.put_node("a")
    world.member.cache.remove_pod("foreign")
    assert world.echo == (3, 0)


def test_a_claim_whose_room_went_away_is_moved_to_another_node() -> None:
    world = World("a")
    world.tell(3)
    world.put_node("b")
    world.pod("foreign", "a", cpu=2000, owner=None)
    assert (world.claimed, world.echo) == ({"a": 2, "b": 1}, (3, 0))
    world.put_node("a", unschedulable=True)
    assert (world.claimed, world.echo) == ({"b": 3}, (3, 0))
    assert world.lost == ""


def test_what_was_just_claimed_is_moved_too() -> None:
    world = World("a")
    world.order(3)
    world.put_node("b")
    world.pod("foreign", "a", cpu=2000, owner=None)
    assert world.claimed == {"a": 2, "b": 1}
    world.member.claims.expire(NOW + EXPIRY_SECONDS)
    assert world.claimed == {}


def test_a_claim_that_cannot_be_moved_is_lost_until_there_is_room_again() -> None:
    world = World("a")
    world.tell(3)
    world.pod("foreign", "a", cpu=2000, owner=None)
    assert (world.claimed, world.echo) == ({"a": 2}, (2, 0))
    assert world.lost == "1 of 1 replicas found no node among 1: 1 short of cpu"
    world.member.cache.remove_pod("foreign")
    assert (world.claimed, world.lost) == ({"a": 3}, "")
    world.pod("foreign", "a", cpu=4000, owner=None)
    assert world.claimed == {}
    world.tell(None, 2)
    assert world.lost == ""


def test_what_is_careful_now_leaves_its_claims_to_its_pods_for_a_while() -> None:
    world = World("a")
    world.tell(3)
    world.pod("foreign", "a", cpu=2000, owner=None)
    assert world.lost
    world.tell(None, 2)
    assert (world.claimed, world.lost) == ({}, "")
    claims = world.member.claims
    assert [(each.node, each.replicas, each.promise) for each in claims.all()] == [("a", 2, None)]
    claims.expire(NOW + EXPIRY_SECONDS - 1)
    assert list(claims.all())
    claims.expire(NOW + EXPIRY_SECONDS)
    assert not list(claims.all())


def test_the_claims_of_what_is_careful_end_with_it() -> None:
    world = World("a")
    world.tell(3)
    world.tell(None, 2)
    assert list(world.member.claims.all())
    world.update(InterestUpdate(version=3, whole=False, removed=("shop/web",)))
    assert not list(world.member.claims.all())


def test_a_pod_that_goes_leaves_room_for_the_one_that_follows_it() -> None:
    world = World("a", "b")
    world.tell(2)
    world.pod("p", "a")
    world.pod("q", "b")
    assert world.claimed == {}
    world.member.cache.remove_pod("p")
    assert (sum(world.claimed.values()), world.echo) == (1, (2, 0))


def test_claims_without_room_keep_nobody_away() -> None:
    """Of two cores one is left: of the two promises of one core each the first keeps it."""
    world = World("a")
    world.tell(2)
    loose = Claim(node="a", replicas=2, request={CPU: 1000}, nonzero={})
    world.member.claims.hold("other/db", [loose], NOW)
    world.pod("foreign", "a", cpu=3000, owner=None)
    own = incoming("p", {CPU: 1000}, namespace="shop", origin=PodOrigin.of({}, (WEB,)))
    claimed = world.member.claimed_for(own, NOW)
    assert [claim.replicas for claim in claimed.own] == [1]
    assert claimed.others == []


def test_room_that_is_claimed_waits_for_the_promises_pods_alone() -> None:
    world = World("a")
    world.tell(2)
    own = incoming("p", namespace="shop", origin=PodOrigin.of({}, (WEB,)))
    claimed = world.member.claimed_for(own, NOW)
    assert (len(claimed.own), len(claimed.others), claimed.promise) == (1, 0, KEY)
    claimed = world.member.claimed_for(replace(own, origin=PodOrigin()), NOW)
    assert (len(claimed.own), len(claimed.others), claimed.promise) == (0, 1, None)


def test_exact_answers_leave_out_what_is_claimed() -> None:
    world = World("a")
    world.tell(3)
    assert world.member.exact().replicas(requirements()) == 1


PLANNED_WEB = ReservationKey("shop/web", "", request_shape({CPU: 2000}))


def crowded_world() -> World:
    """Of four cores each, two of b are claimed first, where one is taken, and three of a then."""
    world = World("a", "b")
    world.pod("foreign", "b", owner=None)
    assert world.order(1, cpu=2000).claimed
    assert world.order(1, cpu=3000, binding="shop/db").claimed
    assert nodes_claimed(world) == {"shop/web": "b", "shop/db": "a"}
    return world


def nodes_claimed(world: World) -> dict[str, str]:
    """Where each binding's only replica goes."""
    claims = list(world.member.claims.all())
    return {claim.promise.binding: claim.node for claim in claims if claim.promise}


steps = st.one_of(
    st.tuples(st.just("tell"), st.integers(0, 9)),
    st.tuples(st.just("order"), st.integers(0, 9)),
    st.tuples(st.just("bind"), st.integers(0, 5)),
    st.tuples(st.just("wait"), st.integers(0, 5)),
    st.tuples(st.just("gone"), st.integers(0, 5)),
    st.tuples(st.just("foreign"), st.integers(0, 5)),
)


@given(st.lists(steps, max_size=25))
def test_every_replica_is_counted_once(history: list[tuple[str, int]]) -> None:
    world = World("a", "b")
    world.tell(None)
    placed: set[str] = set()
    foreign = 0
    for step, (verb, number) in enumerate(history, start=1):
        match verb:
            case "tell":
                world.tell(number, step)
            case "order":
                world.order(number)
            case "bind" if free_node(world):
                world.pod(f"p{number}", free_node(world))
                placed.add(f"p{number}")
            case "wait" if f"p{number}" not in placed:
                world.pod(f"p{number}")
            case "gone":
                world.member.cache.remove_pod(f"p{number}")
                placed.discard(f"p{number}")
            case "foreign" if world.free_cores:
                foreign += 1
                world.pod(f"f{foreign}", unclaimed_node(world), owner=None)
        claimed = sum(world.claimed.values())
        assert world.echo[0] == len(placed) + claimed
        assert world.free_cores == 2 * CORES - foreign - len(placed) - claimed


def free_node(world: World) -> str:
    """A node that an own pod may have: a claimed one first."""
    return next(iter(world.claimed), "") or (unclaimed_node(world) if world.free_cores else "")


def unclaimed_node(world: World) -> str:
    snapshot = world.member.exact().snapshot
    name: str = snapshot.table.nodes[int(snapshot.free_n(CPU).argmax())].name
    return name
