"""Agents are told what is promised and not there yet: exact answers come beside it."""

from __future__ import annotations

from dataclasses import replace

from federation.model.estimate import EstimateOptions, Source
from federation.model.workload import Component, ReplicaRequirements
from federation.services.estimates.availability import Availability
from federation.services.fleet.registry import FleetOwner
from federation.services.scheduling.bindings import Scheduling
from lab.services import WEB, Agents, apply, decided
from tests.unit.services.conftest import StillClock

SMALL = ReplicaRequirements(request={"cpu": 100})
EXACT = EstimateOptions(highest=Source.EXACT)


async def test_what_is_outstanding_in_a_cluster_comes_first_there(
    scheduling: Scheduling, fleet: FleetOwner, clock: StillClock
) -> None:
    first = decided(await apply(scheduling, replace(WEB, replicas=6)))
    assert first == {"a": 3, "b": 2, "c": 1}
    await apply(scheduling, replace(WEB, name="other", uid="", replicas=4))
    small = replace(WEB, name="small", uid="", replicas=1, requirements=SMALL)
    (third,) = decided(await apply(scheduling, small))
    agents = Agents()
    await Availability(fleet, agents, clock).estimate([SMALL], None, EXACT)
    assumed = {name: question.assumed for name, (question,) in agents.questions.items()}
    replicas = {
        name: {each.requirements == SMALL: each.replicas for (each,) in workloads}
        for name, workloads in assumed.items()
    }
    assert sum(held[False] for held in replicas.values()) == 10
    assert replicas[third][True] == 1
    assert sum(True in held for held in replicas.values()) == 1
    assert all(
        isinstance(each, Component) for workloads in assumed.values() for (each,) in workloads
    )
