"""A group that stays together has to leave a cluster, and one of it has no place elsewhere.

All of it stays, and each is told because of whom: by the service and in simulations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

import pytest

from federation.model.cluster import CapacityReport, Cluster, ClusterState, Taint, TaintEffect
from federation.model.placement import (
    Binding,
    Placement,
    ReplicaScheduling,
    SchedulingType,
)
from federation.model.workload import ReplicaRequirements, TargetCluster
from federation.scheduler.decision import Decision, Outcome
from federation.scheduler.simulated_capacity import SimulationOptions
from federation.scheduler.simulation import Simulation
from federation.services.agent_values import AgentPresence
from federation.services.binding_ports import Peers, StoredBinding
from federation.services.scheduling.attempt import Attempt
from federation.services.scheduling.together import decide_all
from federation.services.scheduling.working_copy import WorkingCopy
from lab.fake_agents import capacity
from lab.reports import nodes
from lab.services import fleet_of

Decided: TypeAlias = Callable[[Sequence[Binding]], list[Decision]]

NOW = 10.0
DYNAMIC = ReplicaScheduling(type=SchedulingType.DIVIDED, dynamic=True)
LOST = Taint(key="lost", effect=TaintEffect.NO_EXECUTE)
CLUSTERS = (
    Cluster(name="a", taints=(LOST,)),
    Cluster(name="b"),
    Cluster(name="c"),
)
CORES = {"a": 2, "b": 4, "c": 2}
WHY = "g0, which must stay together with it, has no place: cpu in 2 clusters"


def report(count: int) -> CapacityReport:
    """So many nodes of one free core."""
    return replace(capacity(1, node_count=count, cpu=1000), pools=nodes(count, cpu=1000))


def state(cluster: Cluster, count: int) -> ClusterState:
    return ClusterState(cluster=cluster, report=report(count))


def group(*replicas: int) -> list[Binding]:
    """Bindings that stay together, all of them in the lost cluster."""
    return [
        Binding(
            namespace="shop",
            name=f"g{number}",
            replicas=count,
            labels={"app": "x"},
            requirements=ReplicaRequirements(request={"cpu": 1000}),
            clusters=(TargetCluster(name="a", replicas=count),),
            last_scheduled_time=1.0,
            stored_id=number + 1,
            placement=Placement(replica_scheduling=DYNAMIC, workload_affinity_key="app"),
        )
        for number, count in enumerate(replicas)
    ]


def decided_live(bindings: Sequence[Binding]) -> list[Decision]:
    owner = fleet_of()
    for cluster in CLUSTERS:
        owner.put_cluster(cluster)
        owner.put_report(cluster.name, report(CORES[cluster.name]), 1.0)
        presence = AgentPresence(connected=True, silent_after=NOW + 1)
        owner.put_presence(cluster.name, presence)
    in_lost = tuple(frozenset("a") for _ in bindings[1:])
    attempts = []
    for binding in bindings:
        attempt = Attempt(binding=binding, is_moved=True, atomic="group")
        attempt.known = StoredBinding(id=binding.stored_id or 0, binding=binding)
        attempt.peers = Peers(affinity=in_lost, anti_affinity=())
        attempts.append(attempt)
    decide_all(WorkingCopy(owner.snapshot), attempts, NOW)
    return [attempt.verdict.decision for attempt in attempts]


def decided_in_simulation(bindings: Sequence[Binding]) -> list[Decision]:
    before = Simulation([state(Cluster(name="a"), 12)], SimulationOptions(), now=1.0)
    states = [state(cluster, CORES[cluster.name]) for cluster in CLUSTERS]
    simulation = Simulation(states, SimulationOptions(), now=NOW)
    leaving = [replace(binding, clusters=()) for binding in bindings]
    for binding, without in zip(bindings, leaving, strict=True):
        simulation.hold(binding, (), before.decide(without), ())
    return simulation.decide_moves(leaving)


@pytest.mark.parametrize("decided", [decided_live, decided_in_simulation])
async def test_all_of_a_group_stay_because_of_the_one_without_a_place(decided: Decided) -> None:
    decisions = decided(group(9, 2, 1))
    assert [decision.outcome for decision in decisions] == [Outcome.UNSCHEDULABLE] * 3
    assert [str(decision.reason) for decision in decisions[1:]] == [WHY, WHY]
