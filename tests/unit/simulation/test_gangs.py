"""A simulation makes room for a whole gang or for nobody, whatever says what is free."""

from __future__ import annotations

from dataclasses import replace

import pytest

from federation.model.cluster import Cluster, ClusterState
from federation.model.placement import (
    Binding,
    ClusterAffinity,
    Gang,
    Placement,
    PreemptionPolicy,
    ReplicaScheduling,
    SchedulingType,
)
from federation.model.workload import ReplicaRequirements
from federation.simulation.capacity import SimulationOptions
from federation.simulation.decisions import Simulation
from lab.fake_agents import capacity

DYNAMIC = ReplicaScheduling(type=SchedulingType.DIVIDED, dynamic=True)
CORE = ReplicaRequirements(request={"cpu": 1000})


def wanted(name: str, cluster: str, replicas: int) -> Binding:
    affinity = ClusterAffinity(cluster_names=(cluster,))
    placement = Placement(affinity=affinity, replica_scheduling=DYNAMIC)
    return Binding(
        namespace="shop", name=name, replicas=replicas, placement=placement, requirements=CORE
    )


def gang(last: int) -> list[Binding]:
    return [
        replace(
            member,
            priority=10,
            preemption_policy=PreemptionPolicy.PREEMPT_LOWER_PRIORITY,
            gang=Gang(name="train", size=2),
        )
        for member in (wanted("one", "b", 2), wanted("two", "c", last))
    ]


@pytest.mark.parametrize("level", ["pools", "summary", "stated"])
def test_room_is_made_for_a_whole_gang_or_for_nobody(level: str) -> None:
    report = capacity(3) if level == "pools" else replace(capacity(3), pools=None)
    states = [ClusterState(cluster=Cluster(name=name), report=report) for name in "bc"]
    stated = {"b": 3, "c": 3} if level == "stated" else {}
    options = SimulationOptions(available_replicas=stated)
    low = [wanted("low", "b", 3), wanted("other", "c", 3)]
    for last, expected in ((3, [{}, {}, {"b": 2}, {"c": 3}]), (4, [{"b": 3}, {"c": 3}, {}, {}])):
        decisions = Simulation(states, options, now=0.0).decide_all([*low, *gang(last)])
        placed = [{one.name: one.replicas for one in decision.clusters} for decision in decisions]
        assert placed == expected
