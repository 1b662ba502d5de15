"""Whatever callers, agents, placers and reports do, in any order: what reservations must hold.

Clusters, pods and reports are simulated; ledger, rooms, cycle and packing are the real ones.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from federation.capacity.cluster_room import ReportId
from federation.model.placement import (
    Binding,
    Certificate,
    DivisionPreference,
    ReplicaScheduling,
    SchedulingType,
)
from federation.model.reservations import PromiseCertificate
from federation.model.shapes import Shape, request_shape
from federation.model.workload import NodeClaim, ReplicaRequirements, TargetCluster
from lab.packed_clusters import RESOURCES
from lab.promising import interests_by_name
from lab.simulator import BY_CAPACITY, ControlPlane, Decided, divided
from lab.simulator_cluster import ZONE_LABEL, Placer, SimulatedCluster, Snapshot
from lab.slow_packer import broken_promise

CLUSTERS = {
    "member1": Placer.CLAIMS,
    "member2": Placer.RANDOM,
    "member3": Placer.LEAST_ALLOCATED,
}
DIVIDED = SchedulingType.DIVIDED
HEEDLESS = (ReplicaScheduling(), ReplicaScheduling(type=DIVIDED))
SCHEDULING = (
    BY_CAPACITY,
    ReplicaScheduling(type=DIVIDED, preference=DivisionPreference.AGGREGATED),
    *HEEDLESS,
)

requests = st.fixed_dictionaries(
    {"cpu": st.integers(0, 9)},
    optional={"memory": st.integers(0, 9), "nvidia.com/gpu": st.sampled_from([0, 0, 1])},
)
claims = st.sampled_from([None, None, NodeClaim(node_selector={ZONE_LABEL: "zone-1"})])
certificates = st.sampled_from([None, None, *Certificate])
names = st.sampled_from(list(CLUSTERS))
places = st.integers(0, 99)


class Reservations(RuleBasedStateMachine):
    """Messages to a cluster arrive in their order, reports in any order or never."""

    @initialize(seed=st.integers(0, 9999), nodes=st.sampled_from([3, 8, 30]))
    def start(self, seed: int, nodes: int) -> None:
        self.random = np.random.default_rng(seed)
        self.clusters = {
            name: self.cluster(name, placer, nodes) for name, placer in CLUSTERS.items()
        }
        self.control = ControlPlane(CLUSTERS, {"member1"})
        self.messages: dict[str, deque[Callable[[SimulatedCluster], None]]] = {
            name: deque() for name in CLUSTERS
        }
        self.reports: list[tuple[str, Snapshot]] = []
        self.seen: dict[tuple[str, ReportId], Counter[tuple[str, Shape]]] = {}
        self.serial = 0
        self.shrunk: set[str] = set()
        for name in CLUSTERS:
            self.take_report(name)
            self.deliver_report(0)

    def cluster(self, name: str, placer: Placer, nodes: int) -> SimulatedCluster:
        most = np.array([40, 40, 12, 40, 3])[:, np.newaxis]
        allocatable_rn = self.random.integers(1, most, (len(RESOURCES), nodes))
        allocatable_rn[-1] *= self.random.random(nodes) < 0.2
        return SimulatedCluster(
            name=name,
            allocatable_rn=allocatable_rn,
            free_rn=allocatable_rn.copy(),
            placer=placer,
            budget=16,
            zones=2,
        )

    @rule(
        request=requests,
        replicas=st.integers(1, 12),
        certificate=certificates,
        scheduling=st.sampled_from(SCHEDULING),
        claim=claims,
    )
    def submit(
        self,
        request: dict[str, int],
        replicas: int,
        certificate: Certificate | None,
        scheduling: ReplicaScheduling,
        claim: NodeClaim | None,
    ) -> None:
        self.serial += 1
        name = f"b{self.serial}"
        binding = divided(name, request, replicas, certificate, scheduling, claim)
        stuck = {
            each: room.stuck() for each in self.control.names if (room := self.control.room(each))
        }
        decided = self.control.submit(binding)
        self.decide(decided, before=())
        for cluster, room in decided.rooms.items() if decided else ():
            assert room.stuck() == stuck[cluster]

    @precondition(lambda self: self.control.bindings)
    @rule(place=places, replicas=st.integers(0, 15))
    def scale(self, place: int, replicas: int) -> None:
        binding = self.binding(place)
        before = binding.clusters
        decided = self.control.submit(replace(binding, replicas=replicas))
        if decided is None:
            # I8: a refusal leaves everything where it is.
            assert self.control.bindings[binding.uid] is binding
        self.decide(decided, before)

    @precondition(lambda self: self.control.bindings)
    @rule(place=places, request=requests)
    def change_shape(self, place: int, request: dict[str, int]) -> None:
        binding = self.binding(place)
        claim = binding.requirements.node_claim
        requirements = ReplicaRequirements(request=request, node_claim=claim)
        decided = self.control.submit(replace(binding, requirements=requirements))
        self.decide(decided, binding.clusters)

    @precondition(lambda self: self.control.bindings)
    @rule(place=places)
    def decide_the_same_again(self, place: int) -> None:
        """I5: its own reservation is free for a binding, whatever else is promised."""
        binding = self.binding(place)
        decided = self.control.submit(binding)
        assert decided is not None
        assert decided.binding.clusters == binding.clusters
        self.decide(decided, binding.clusters)

    @precondition(lambda self: self.control.bindings)
    @rule(place=places)
    def delete(self, place: int) -> None:
        binding = self.binding(place)
        self.control.delete(binding.uid)
        for target in binding.clusters:
            self.send(target.name, lambda cluster: cluster.remove(binding.uid))
            self.deliver_all(target.name)

    @rule(name=names)
    def deliver(self, name: str) -> None:
        if self.messages[name]:
            self.messages[name].popleft()(self.clusters[name])

    @rule(name=names, count=st.integers(1, 30))
    def place(self, name: str, count: int) -> None:
        """I7: neither a planned nor a strict pod ever waits for a node."""
        cluster = self.clusters[name]
        waiting = cluster.waiting
        chosen = [waiting[i] for i in self.random.permutation(len(waiting))[:count].tolist()]
        cluster.place(chosen, self.random)
        if cluster.follows_claims and not cluster.interest_version:
            return
        for pod in chosen if name not in self.shrunk else ():
            certificate = self.certificate(pod.binding, name)
            if certificate in {PromiseCertificate.PLANNED, PromiseCertificate.STRICT}:
                assert pod.node is not None, f"{certificate}: {pod}"

    @rule(name=names, count=st.integers(1, 30))
    def deliver_and_place(self, name: str, count: int) -> None:
        self.deliver_all(name)
        self.place(name, count)

    @rule()
    def everything_arrives(self) -> None:
        for name in CLUSTERS:
            self.deliver_all(name)
            self.place(name, 99)
            self.take_report(name)
            self.control.accept(*self.reports.pop())

    @rule(name=names)
    def take_report(self, name: str) -> None:
        cluster = self.clusters[name]
        snapshot = cluster.snapshot()
        self.reports.append((name, snapshot))
        self.seen[name, snapshot.report] = Counter(
            (pod.binding, request_shape(pod.requirements.request))
            for pod in cluster.pods
            if pod.node is not None or pod.claim is not None
        )

    @precondition(lambda self: self.reports)
    @rule(place=places)
    def deliver_report(self, place: int) -> None:
        self.control.accept(*self.reports.pop(place % len(self.reports)))

    @precondition(lambda self: self.reports)
    @rule(place=places)
    def lose_report(self, place: int) -> None:
        self.reports.pop(place % len(self.reports))

    @rule(name=names)
    def crash_agent(self, name: str) -> None:
        self.clusters[name].crash()
        self.take_report(name)
        self.send(name, lambda _: None)

    @rule(name=names, share=st.sampled_from([0.2, 0.9]))
    def lose_nodes(self, name: str, share: float) -> None:
        """Room that was promised is gone: no certificate is worth anything against that."""
        cluster = self.clusters[name]
        lost_n = self.random.random(cluster.free_rn.shape[1]) < share
        cluster.free_rn[:, lost_n] = 0
        for pod in cluster.waiting:
            if pod.claim is not None and lost_n[pod.claim]:
                pod.claim = None
        self.shrunk.add(name)

    @rule()
    def crash_control_plane(self) -> None:
        self.control.restart()

    @invariant()
    def nothing_is_dropped(self) -> None:
        """I6: a room holds all that the ledger says, whether it packs or not."""
        for name in self.control.names:
            room = self.control.room(name)
            held = Counter[tuple[str, Shape]]()
            for each in room.outstanding if room else ():
                held[each.binding, each.shape] += each.to_pack
            for each in self.control.ledger(name).outstanding():
                assert held[each.binding, each.shape] >= each.to_pack

    @invariant()
    def what_packs_can_be_shown(self) -> None:
        """I6: over-committed is said exactly where something finds no room."""
        for name in self.control.names:
            room = self.control.room(name)
            assert room is not None
            assert broken_promise(room.pools, room.holdings) == ""
            assert bool(room.overcommitted) == any(each.unplaced for each in room.holdings)

    @invariant()
    def every_pod_counts_once(self) -> None:
        """I4: in the report or in the reservation; in both only until agents know."""
        for uid, binding in self.control.bindings.items():
            for target in binding.clusters:
                ledger = self.control.ledger(target.name)
                (newest,) = ledger.newest(uid)
                report = self.control.reports[target.name]
                reported = self.seen[target.name, report.report][uid, newest.shape]
                in_cells = sum(each.in_cells for each in ledger.outstanding_of(uid))
                assert newest.replicas == target.replicas
                assert reported + in_cells >= newest.replicas
                if newest.interest_version <= report.interest_version:
                    assert reported + in_cells == max(newest.replicas, reported)

    def decide(self, decided: Decided | None, before: tuple[TargetCluster, ...]) -> None:
        """I1: what a decision promises packs, all else included, into the report it names."""
        if decided is None:
            return
        had = {target.name: target.replicas for target in before}
        for promise in decided.promises:
            room = decided.rooms[promise.cluster]
            assert promise.report == self.control.reports[promise.cluster].report
            assert any(holding is promise.holding for holding in room.holdings)
            assert broken_promise(room.pools, room.holdings) == ""
            if promise.cluster not in had:
                assert promise.holding.unplaced == 0
        for target in decided.binding.clusters:
            self.order(decided, target)
            if target.replicas < had.pop(target.name, 0) or before:
                # What goes away late takes room that is promised to others already.
                self.deliver_all(target.name)
        for name in had:
            self.send(name, lambda cluster: cluster.remove(decided.binding.uid))
            self.deliver_all(name)

    def order(self, decided: Decided, target: TargetCluster) -> None:
        order = decided.order(target)
        self.send(target.name, lambda cluster: cluster.run(order))

    def send(self, name: str, what: Callable[[SimulatedCluster], None]) -> None:
        ledger = self.control.ledger(name)

        def arrive(cluster: SimulatedCluster) -> None:
            cluster.told(ledger.interest_version, interests_by_name(ledger))
            what(cluster)
            if cluster.follows_claims:
                self.control.without_plan(name, sorted(cluster.unplanned))

        self.messages[name].append(arrive)

    def deliver_all(self, name: str) -> None:
        while self.messages[name]:
            self.deliver(name)

    def binding(self, place: int) -> Binding:
        bindings = list(self.control.bindings.values())
        return bindings[place % len(bindings)]

    def certificate(self, uid: str, name: str) -> PromiseCertificate | None:
        newest = self.control.ledger(name).newest(uid)
        return newest[0].certificate if newest else None


Reservations.TestCase.settings = settings(max_examples=20, stateful_step_count=60, deadline=None)
TestReservations = Reservations.TestCase
