"""Decisions as messages: what the scheduler recorded is what callers read."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np

from federation.codec.decision_words import why
from federation.codec.decisions import (
    decision_to_message,
    reservation_messages,
    trace_to_message,
)
from federation.model.cluster import Cluster
from federation.model.estimate import Estimates, Source
from federation.model.placement import (
    Binding,
    ClusterAffinity,
    ClusterLimit,
    DivisionPreference,
    Placement,
    ReplicaScheduling,
    SchedulingType,
)
from federation.model.reason_codes import ReasonCode
from federation.model.reasons import ClusterName, Reason, stored_reason
from federation.model.reservations import PromiseCertificate
from federation.model.workload import TargetCluster
from federation.scheduler.cycle import schedule
from federation.scheduler.decision import Decision
from federation.scheduler.fleet import Fleet
from federation.scheduler.trace import Trace
from federation.v1 import estimates_pb2, scheduling_pb2

NODE = SimpleNamespace(node="n1", component="", replicas=2, score=50, scale=100.0)
PLAN = SimpleNamespace(
    cluster="m1", nodes=(NODE,), unplaced=1, message="no room", strategy="MostAllocated"
)


@dataclass(frozen=True)
class Promise:
    cluster: str = "m1"
    certificate: PromiseCertificate = PromiseCertificate.CAREFUL
    report_epoch: int = 2
    report_sequence: int = 7
    note: str = "no placer of ours is there to follow plans"


def held(**fields: Any) -> Any:
    numbers = {"replicas": 9, "outstanding": 4, "bound": 2, "unbound": 1, "finished": 3}
    texts = {"cluster": "m1", "component": "", "decision_id": "d1"}
    return SimpleNamespace(**numbers | texts | {"certificate": PromiseCertificate.STRICT} | fields)


def record(decision: Decision, **fields: Any) -> Any:
    usual = {
        "id": "d1",
        "namespace": "shop",
        "name": "web",
        "binding_generation": 3,
        "created_at": 1_700_000_000.5,
        "evidence": SimpleNamespace(sequences=(7, 8, 0), age_seconds=(0.5, 12.0, 0.0)),
        "promises": (Promise(),),
        "node_plans": [PLAN],
    }
    return SimpleNamespace(decision=decision, **usual | fields)


def decide(replicas: int) -> Decision:
    fleet = Fleet.of(Cluster(name=name) for name in ("m1", "m2", "m3"))
    binding = Binding(
        name="web",
        replicas=replicas,
        clusters=(TargetCluster(name="m2", replicas=1),),
        placement=Placement(
            affinity=ClusterAffinity(exclude=("m3",)),
            replica_scheduling=ReplicaScheduling(
                type=SchedulingType.DIVIDED,
                preference=DivisionPreference.WEIGHTED,
                dynamic=True,
            ),
        ),
    )
    availability = Estimates(
        replicas_c=np.array([6, 2, 9]),
        source_c=np.array([Source.MODELS, Source.SUMMARY, Source.NONE], dtype=np.int8),
        bound_c=np.zeros(3, dtype=np.int8),
        reasons={2: stored_reason("never reported")},
    )
    return schedule(binding, fleet, availability, now=1_700_000_000.0)


def test_a_decision_and_its_nodes() -> None:
    message = decision_to_message(record(decide(5)))
    assert message.outcome == scheduling_pb2.OUTCOME_SCHEDULED
    assert {each.name: each.replicas for each in message.clusters} == {"m1": 3, "m2": 2}
    assert (message.id, message.binding_generation) == ("d1", 3)
    assert message.create_time.ToJsonString() == "2023-11-14T22:13:20.500Z"
    assert message.node_placements[0].nodes[0].replicas == 2
    assert message.node_placements[0].unplaced == 1
    assert not message.HasField("trace")


def test_the_trace_says_everything_about_each_cluster() -> None:
    message = decision_to_message(record(decide(5)), trace=True)
    first, second, third = message.trace.clusters
    assert (first.name, first.selected, first.available_replicas) == ("m1", True, 6)
    assert first.source == estimates_pb2.ESTIMATE_SOURCE_MODELS
    assert (second.previous_replicas, second.scores["ClusterLocality"]) == (1, 100)
    assert second.replicas == 2
    assert (second.report_sequence, second.report_age_seconds) == (8, 12.0)
    assert third.filter == "ClusterAffinity"
    assert third.reason
    assert third.availability_unknown
    assert third.estimate_note == "never reported"
    assert not third.selected
    facts = {fact.name: fact.value for fact in message.trace.facts}
    assert facts["profile"] == "default-scheduler"
    assert {"strategy", "tieOrder", "mode", "target", "selection"} <= facts.keys()
    assert facts["scoreWeight[ClusterLocality]"] == "1"
    assert facts["scoreWeight[Packing]"] == "0"
    assert set(second.scores) == {"ClusterLocality", "AvailableReplicas", "Packing"}
    # All that m1 and m2 hold, with what m2 has already, although fewer are wanted.
    assert (facts["wanted"], facts["target"], facts["available"]) == ("5", "4", "9")
    assert [each.tier for each in message.trace.clusters] == [0, 0, -1]
    assert len(message.trace.attempts) == 1


TRIGGERS = (
    Reason(ReasonCode.REPLICAS_CHANGED),
    Reason.of(ReasonCode.OWN_CLUSTER_GONE, ClusterName("m4")),
)


def test_triggers_are_facts() -> None:
    decision = decide(5)
    triggered = replace(decision.trace, triggers=TRIGGERS)
    facts = trace_to_message(triggered).facts
    assert [each.value for each in facts if each.name == "trigger"] == list(map(str, TRIGGERS))


def test_an_unschedulable_decision_names_no_cluster() -> None:
    message = decision_to_message(record(decide(50), node_plans=[]))
    assert message.outcome == scheduling_pb2.OUTCOME_UNSCHEDULABLE
    assert not message.clusters
    assert message.remainder == 50
    assert message.reason


def test_promises_say_what_they_are_worth_and_which_report_they_were_packed_into() -> None:
    decision = decide(5)
    other = Promise(cluster="m2", certificate=PromiseCertificate.STRICT, note="")
    for promises in ((other,), (Promise(), other)):
        written = decision_to_message(record(decision, promises=promises)).promises
        assert [each.cluster for each in written] == [each.cluster for each in promises]
    (promise,) = decision_to_message(record(decision)).promises
    assert promise == scheduling_pb2.ClusterPromise(
        cluster="m1",
        certificate="careful",
        report_epoch=2,
        report_sequence=7,
        note="no placer of ours is there to follow plans",
    )


def test_reservations_are_told_by_cluster_then_component() -> None:
    every = [held(cluster="m2"), held(component="worker"), held(component="driver", replicas=1)]
    told = reservation_messages(every)
    assert [(each.cluster, each.component) for each in told] == [
        ("m1", "driver"),
        ("m1", "worker"),
        ("m2", ""),
    ]
    assert told[1] == scheduling_pb2.Reservation(
        cluster="m1",
        component="worker",
        replicas=9,
        outstanding=4,
        bound=2,
        unbound=1,
        finished=3,
        certificate="strict",
        decision_id="d1",
    )


def unseen(replicas: int, **scheduling: Any) -> Trace:
    """A decision by weights over two clusters of which nothing is known."""
    fleet = Fleet.of(Cluster(name=name) for name in ("m1", "m2"))
    how = ReplicaScheduling(type=SchedulingType.DIVIDED, **scheduling)
    binding = Binding(name="web", replicas=replicas, placement=Placement(replica_scheduling=how))
    none_c = np.zeros(2, dtype=np.int8)
    nothing = Estimates(replicas_c=np.array([0, 0]), source_c=none_c, bound_c=none_c, reasons={})
    return schedule(binding, fleet, nothing, now=0.0).trace


def test_seats_won_by_the_tie_order_and_limits_that_changed_a_share_are_told() -> None:
    clusters = trace_to_message(unseen(3)).clusters
    seats = {each.replicas: (each.remainder_seat, each.tied) for each in clusters}
    assert seats == {2: (True, True), 1: (False, False)}
    least = ClusterLimit(target=ClusterAffinity(cluster_names=("m2",)), min=7)
    trace = unseen(8, limits=(least,))
    clusters = trace_to_message(trace).clusters
    assert [each.replicas for each in clusters] == [1, 7]
    assert [each.limited_by for each in clusters] == ["others", "min"]
    assert not any(each.remainder_seat for each in clusters)
    assert why(clusters[1]) == "selected; raised to the least replicas asked for"
