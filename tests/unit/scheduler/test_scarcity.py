"""What is scarce is named: by hand-made nodes, through whole cycles on their cells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from federation.capacity.cluster_room import ReportId, Room
from federation.capacity.component_sets import packable_sets_c
from federation.capacity.reserve import FleetRooms, packable_c
from federation.model.cluster import Cluster
from federation.model.estimate import Bound, Estimates, Source
from federation.model.placement import Binding, ClusterAffinity, ClusterLimit, Gang
from federation.model.reason_codes import ReasonCode
from federation.model.reasons import Amount, Reason, Text, clauses_of, joined, stored_reason
from federation.model.workload import Component, NodeClaim, ReplicaRequirements, TargetCluster
from federation.scheduler.cycle import schedule
from federation.scheduler.decision import Outcome
from federation.scheduler.fleet import Fleet
from federation.scheduler.plugins.profile import DEFAULT_PROFILE, Permit
from federation.scheduler.scarcity import short_of, with_scarcity
from federation.scheduler.waiting.gangs import unplaced_reason
from tests.pools import cells_of, one_pool
from tests.unit.scheduler import states
from tests.unit.scheduler.states import DYNAMIC, estimates

# One node: its cpu, memory and pod slots.
Node = tuple[int, int, int]

PLENTY: Node = (100, 100, 100)
LITTLE_CPU: Node = (1, 100, 100)
LITTLE_MEMORY: Node = (100, 1, 100)
FEW_PODS: Node = (100, 100, 1)


def room(nodes: Sequence[Node]) -> Room:
    pools = one_pool(cells_of([[node] for node in nodes]), label_keys=["disk"])
    return Room.of(ReportId(1, 1), pools)


def web(replicas: int, *, claim: NodeClaim | None = None, **placement: Any) -> Binding:
    requirements = ReplicaRequirements(request={"memory": 1, "cpu": 1}, node_claim=claim)
    return replace(states.web(replicas, **placement), requirements=requirements)


class Decided:
    """A decision on clusters with such nodes, and its reason with what is scarce."""

    def __init__(
        self,
        binding: Binding,
        *clusters: Sequence[Node] | None,
        permits: Sequence[Permit] = (),
        **shown: Any,
    ) -> None:
        self._rooms = FleetRooms.of(room(nodes) if nodes else None for nodes in clusters)
        decision = schedule(
            binding,
            Fleet.of(Cluster(name="abcdef"[place]) for place in range(len(clusters))),
            self.estimates(binding),
            now=5.0,
            profile=replace(DEFAULT_PROFILE, permits=tuple(permits)),
        )
        explained = with_scarcity(decision, binding, self.estimates, **shown)
        plain, before = explained.to_plain(), decision.to_plain()
        assert plain | {"reason": ""} == before | {"reason": ""}
        self.outcome = decision.outcome
        self.before, self.reason = str(decision.reason), str(explained.reason)

    def estimates(self, binding: Binding) -> Estimates:
        told_c, reasons = self._rooms.label_carriers(binding.requirements)
        if binding.components:
            most_c = packable_sets_c(self._rooms, binding.components, None, {})
        else:
            most_c = packable_c(self._rooms, binding.requirements, None)
        return Estimates(
            replicas_c=most_c * told_c,
            source_c=told_c * np.int8(Source.POOLS),
            bound_c=told_c * np.int8(Bound.LOWER),
            reasons=reasons,
        )

    @property
    def scarce(self) -> str:
        """What was said besides."""
        assert self.reason.startswith(self.before)
        return self.reason.removeprefix(self.before)


def test_the_scarce_resource_is_counted_by_cluster() -> None:
    decided = Decided(web(200), [LITTLE_MEMORY] * 2, [LITTLE_CPU], [LITTLE_MEMORY], [FEW_PODS])
    assert decided.outcome is Outcome.UNSCHEDULABLE
    assert decided.scarce == "; short of memory in 2 clusters, cpu in 1, pods in 1"
    assert Decided(web(200), [LITTLE_CPU]).scarce == "; short of cpu in 1 cluster"


def test_nothing_is_said_of_what_was_placed() -> None:
    assert Decided(web(2), [LITTLE_MEMORY, PLENTY]).reason == ""
    partial = Decided(web(2, partial=True), [LITTLE_MEMORY])
    assert (partial.outcome, partial.scarce) == (Outcome.PARTIAL, "")


def test_what_is_free_on_different_nodes_is_short_together() -> None:
    apart = [(9, 0, 9), (0, 9, 9)]
    assert Decided(web(3), apart).scarce == "; short of cpu and memory together in 1 cluster"
    assert Decided(web(30), apart).scarce == "; short of cpu in 1 cluster"


def test_nodes_that_suit_are_scarce_where_no_other_thing_is() -> None:
    zone = NodeClaim(node_selector={"disk": "ssd"})
    decided = Decided(web(1, claim=zone), [PLENTY], [(5, 5, 0)])
    assert decided.scarce == "; short of nodes that suit in 1 cluster, pods in 1"


def test_clusters_that_are_refused_or_unknown_are_left_out() -> None:
    only_a = ClusterAffinity(cluster_names=("a", "c"))
    decided = Decided(web(9, affinity=only_a), [LITTLE_CPU], [LITTLE_MEMORY], None)
    assert decided.scarce == "; short of cpu in 1 cluster"
    assert Decided(web(9), [LITTLE_CPU], [LITTLE_MEMORY], untold=[0]).scarce == (
        "; short of memory in 1 cluster"
    )


def test_a_cluster_that_lacks_one_replica_counts_although_it_was_refused_for_that() -> None:
    sized = DEFAULT_PROFILE.filters
    assert "Capacity" not in {plugin.name for plugin in sized}
    parts = tuple(
        Component(name=name, replicas=2, requirements=ReplicaRequirements(request={name: 30}))
        for name in ("cpu", "memory")
    )
    sets = replace(web(0), components=parts)
    decided = Decided(sets, [LITTLE_MEMORY], [(50, 100, 9)], [(100, 100, 1)])
    assert decided.outcome is Outcome.UNSCHEDULABLE
    assert decided.scarce == "; short of cpu in 1 cluster, memory in 1, pods in 1"


def test_what_a_cluster_has_of_the_binding_it_does_not_lack() -> None:
    grown = replace(web(5), clusters=(TargetCluster(name="a", replicas=3),))
    full = [(1, 0, 9)]
    assert Decided(grown, full).scarce == "; short of memory in 1 cluster"
    grown = replace(web(101), clusters=(TargetCluster(name="a", replicas=100),))
    decided = Decided(grown, [LITTLE_CPU, (0, 9, 9)], refused=[0])
    assert decided.scarce == ""


def test_limits_and_plugins_are_not_taken_for_scarcity() -> None:
    limit = ClusterLimit(target=ClusterAffinity(), max=1)
    limited = web(9, replica_scheduling=replace(DYNAMIC, limits=(limit,)))
    decided = Decided(limited, [(5, 5, 5)], [(5, 5, 5)])
    assert (decided.outcome, decided.scarce) == (Outcome.UNSCHEDULABLE, "")
    never = Permit(name="Never", run=lambda _state, _replicas_c: "no")
    objected = Decided(web(6), [(5, 5, 5)], [(5, 5, 5)], permits=[never])
    assert (objected.outcome, objected.scarce) == (Outcome.UNSCHEDULABLE, "")


def test_a_queue_shows_one_clause_of_a_reason() -> None:
    fleet = Fleet.of(
        [Cluster(name=name, labels={"tier": name}, cordoned=name == "c") for name in "abc"]
    )
    unknown = estimates([None] * 3)
    elsewhere = web(2, affinity=ClusterAffinity(cluster_names=("d",)))
    nowhere = schedule(elsewhere, fleet, unknown, now=5)
    assert nowhere.outcome is Outcome.NO_FIT
    assert len(clauses_of(nowhere.reason)) > 1
    refused = "suitable clusters: does not match the cluster affinity (2 of 3)"
    assert str(short_of(nowhere)) == refused
    blind = schedule(web(2), fleet, unknown, now=5)
    assert str(blind.reason).startswith(
        "0 replicas are available, 2 wanted; 1 of 3 clusters was refused"
    )
    assert str(short_of(blind)) == "1 of 3 clusters was refused: is cordoned (1)"
    # A sentence of a plug-in is one clause, whatever it says.
    sentence = Reason.of(ReasonCode.PLUGIN_TEXT, Text("no; short of money"))
    assert short_of(replace(blind, reason=joined(sentence, stored_reason("1 more")))) == sentence


def test_how_many_replicas_are_available_is_no_shortage() -> None:
    decision = replace(
        schedule(web(2), Fleet.of([Cluster(name="a")]), estimates([None]), now=5),
        reason=joined(
            Reason.of(ReasonCode.REPLICAS_AVAILABLE, Amount(1), Amount(2), Amount(0)),
            stored_reason("something else is scarce"),
        ),
    )
    assert str(short_of(decision)) == "something else is scarce"


def test_of_a_gang_the_first_clause_of_a_reason_stands_there_and_no_quotation_is_cut() -> None:
    train = Gang(name="train", size=3)
    available = Reason.of(ReasonCode.REPLICAS_AVAILABLE, Amount(0), Amount(1), Amount(0))
    short = stored_reason("short of cpu")
    assert str(unplaced_reason(train, "w1", joined(available, short), 0)) == (
        "w1 of gang train was not placed; short of room for w1: 0 replicas are available, 1 wanted"
    )
    sentence = Reason.of(ReasonCode.PLUGIN_TEXT, Text("no; not on Fridays"))
    text = str(unplaced_reason(train, "w1", joined(sentence, short), 1))
    assert text.endswith(f"nor was 1 more; short of room for w1: {sentence}")
