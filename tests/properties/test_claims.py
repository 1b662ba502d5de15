"""Claims of orders and of promises by plan, whatever happens to their pods and to others'."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from estimator.estimation.capacity import NodeSet
from estimator.nodes import Node, Pod, PodState
from estimator.watched_cluster import UNGRADED, WatchedCluster
from federation.model.echoes import Interest, InterestUpdate, Owner, PodOrigin, SoughtShape
from federation.model.node_plans import NodePlan, PlaceOrder, ShareOrder
from federation.model.reservations import PromiseCertificate, Share
from federation.model.resources import CPU, MEMORY, PODS
from federation.model.shapes import ReservationKey, request_shape
from federation.model.workload import ReplicaRequirements

NOW = 1000.0
CORES = 4
NODES = ("a", "b")
REQUEST = ReplicaRequirements(request={CPU: 1000})
KEY = ReservationKey("shop/web", "", request_shape(REQUEST.request))
WEB = Owner("apps/v1", "Deployment", "shop", "web")


class World:
    """Nodes of four cores where a placer follows claims, and one binding that is looked for."""

    def __init__(self) -> None:
        self.member = WatchedCluster(NodeSet.SCHEDULABLE)
        self.member.follows_claims = True
        allocatable = {CPU: CORES * 1000, MEMORY: 8 << 30, PODS: 10}
        for name in NODES:
            self.member.cache.put_node(Node(name=name, allocatable=allocatable))
        self.tell(None, 1)

    def order(self, binding: str, replicas: int, cpu: int, *, planned: bool) -> NodePlan:
        share = ShareOrder(replicas=replicas, requirements=ReplicaRequirements(request={CPU: cpu}))
        order = PlaceOrder(binding_key=binding, shares=(share,), planned=planned)
        return self.member.place(order, NOW)

    def tell(self, planned: int | None, version: int) -> None:
        share = None
        if planned is not None:
            certificate = PromiseCertificate.PLANNED
            share = Share(requirements=REQUEST, replicas=planned, certificate=certificate)
        sought = SoughtShape(component="", shape=KEY.shape, decisions=("d",), planned=share)
        interest = Interest(binding=KEY.binding, owner=WEB, shapes=(sought,))
        update = InterestUpdate(version=version, whole=False, interests=(interest,))
        for _ in self.member.look_for(update, NOW):
            pass

    def pod(self, uid: str, node: str = "", owner: Owner | None = WEB) -> None:
        self.member.cache.put_pod(
            Pod(
                uid=uid,
                namespace="shop",
                name=uid,
                node=node,
                state=PodState.BOUND if node else PodState.WAITING,
                request={CPU: 1000},
                nonzero={CPU: 1000, MEMORY: 200 << 20},
                origin=PodOrigin.of({}, (owner,) if owner else ()),
            )
        )

    def free_cores(self) -> int:
        summary = self.member.capacity(UNGRADED).summary
        return (summary.allocatable[CPU] - summary.allocated.get(CPU, 0)) // 1000

    def claimed_nodes(self) -> list[str]:
        """The node of each claimed replica."""
        # Claims are looked at once a second, and before every answer.
        self.member.totals()
        claims = self.member.claims.planned(KEY)
        return [claim.node for claim in claims for _ in range(claim.replicas)]

    def free_node(self) -> str:
        snapshot = self.member.exact().snapshot
        name: str = snapshot.table.nodes[int(snapshot.free_n(CPU).argmax())].name
        return name


verbs = st.sampled_from(["tell", "order", "bind", "wait", "gone", "foreign"])


@given(st.lists(st.tuples(verbs, st.integers(0, 9)), max_size=25))
def test_every_planned_replica_is_counted_once(history: list[tuple[str, int]]) -> None:
    world = World()
    placed: set[str] = set()
    foreign = 0
    for step, (verb, number) in enumerate(history, start=2):
        uid, free = f"p{number % 6}", world.free_cores()
        match verb:
            case "tell":
                world.tell(number, step)
            case "order":
                world.order(KEY.binding, number, 1000, planned=True)
            case "bind" if world.claimed_nodes() or free:
                # A claimed node comes first.
                world.pod(uid, next(iter(world.claimed_nodes()), "") or world.free_node())
                placed.add(uid)
            case "wait" if uid not in placed:
                world.pod(uid)
            case "gone":
                world.member.cache.remove_pod(uid)
                placed.discard(uid)
            case "foreign" if free:
                foreign += 1
                world.pod(f"f{foreign}", world.free_node(), owner=None)
        claimed = len(world.claimed_nodes())
        _, echoes = world.member.echoes()
        assert sum(echo.bound for echo in echoes if echo.key == KEY) == len(placed) + claimed
        assert world.free_cores() == len(NODES) * CORES - foreign - len(placed) - claimed


orders = st.tuples(st.sampled_from("abcd"), st.integers(0, 8), st.integers(1, 3000), st.booleans())


@given(st.lists(orders, max_size=8))
def test_claims_never_pass_what_nodes_have(history: list[tuple[str, int, int, bool]]) -> None:
    world = World()
    for binding, replicas, cpu, planned in history:
        plan = world.order(f"shop/{binding}", replicas, cpu, planned=planned)
        if not planned or plan.claimed:
            assert sum(share.replicas for share in plan.nodes) + plan.unplaced == replicas
    for name in NODES:
        claims = [claim for claim in world.member.claims.all() if claim.node == name]
        assert sum(claim.request[CPU] * claim.replicas for claim in claims) <= CORES * 1000
        assert sum(claim.replicas for claim in claims) <= 10
