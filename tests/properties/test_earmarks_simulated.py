"""L4: a simulation keeps as much room for who waits as the service does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from hypothesis import example, given, settings
from hypothesis import strategies as st

from federation.model.cluster import Cluster, ClusterState
from federation.model.placement import Binding
from federation.model.waiting import Wait, WaitState
from federation.model.workload import Component, ReplicaRequirements
from federation.scheduler.decision import Decision
from federation.scheduler.plugins.profile import DEFAULT_PROFILE
from federation.services.agent_values import AgentPresence
from federation.services.binding_ports import StoredBinding
from federation.services.scheduling.attempt import EarmarkedBindings
from federation.services.scheduling.together import decide_all
from federation.services.scheduling.working_copy import WorkingCopy
from federation.simulation.capacity import SimulationOptions
from federation.simulation.decisions import Simulation
from tests.properties.test_earmarks import (
    NAMES,
    NOW,
    Asked,
    asked,
    attempt,
    binding,
    fleet_of,
    pooled,
    waiting,
)


class Part(NamedTuple):
    """A component: how many pods, and the CPU of each in millicores."""

    replicas: int
    cpu: int


parts = st.lists(
    st.builds(Part, st.integers(1, 3), st.sampled_from((500, 1000, 2000))), min_size=2, max_size=2
)


def set_of(name: str, pods: Sequence[Part], priority: int = 1) -> Binding:
    components = tuple(
        Component(
            name=f"part-{number}",
            replicas=part.replicas,
            requirements=ReplicaRequirements(request={"cpu": part.cpu}),
        )
        for number, part in enumerate(pods)
    )
    return replace(binding(name, Asked(0, priority)), components=components)


def pods_of(waits: Binding) -> int:
    return waits.replicas or sum(part.replicas for part in waits.components)


class Fleet:
    """The same clusters twice: of a service, and in a simulation."""

    def __init__(self, node_counts: Sequence[int], cpu: int, waits: Sequence[Binding]) -> None:
        reports = {name: pooled(count, cpu) for name, count in zip(NAMES, node_counts, strict=True)}
        owner = fleet_of(**reports)
        for name in NAMES:
            owner.put_presence(name, AgentPresence(connected=True, silent_after=NOW + 1))
        self._working = WorkingCopy(owner.snapshot)
        states = [ClusterState(cluster=Cluster(name=n), report=reports[n]) for n in NAMES]
        self._simulation = Simulation(states, SimulationOptions(), now=NOW)
        self._simulation.kept = [(wait, pods_of(wait)) for wait in waits]
        stored = [
            StoredBinding(
                id=number,
                binding=wait,
                wait=Wait(
                    state=WaitState.UNSCHEDULABLE,
                    since=1.0 + number,
                    remainder=pods_of(wait),
                    earmarked_since=5.0,
                ),
            )
            for number, wait in enumerate(waits)
        ]
        self._claims = EarmarkedBindings(earmarked=[(wait, DEFAULT_PROFILE) for wait in stored])

    def decide(self, name: str, request: Asked) -> tuple[Decision, Decision]:
        """Decide a binding; return the decisions of the service and of the simulation."""
        one = attempt(name, request, self._claims)
        decide_all(self._working, [one], NOW)
        return one.decision, self._simulation.decide(binding(name, request))


def told(decision: Decision) -> tuple[dict[str, int], str]:
    return {share.name: share.replicas for share in decision.clusters}, str(decision.reason)


@settings(max_examples=25)
@given(
    st.lists(st.integers(1, 8), min_size=3, max_size=3),
    st.sampled_from((1000, 2000, 4000)),
    st.lists(st.one_of(waiting, parts), min_size=1, max_size=3),
    st.lists(asked, min_size=1, max_size=4),
)
@example([5, 6, 1], 2000, [[Part(1, 500), Part(2, 1000)]], [Asked(2, 1)])
@example([2, 8, 5], 1000, [[Part(2, 2000), Part(2, 1000)]], [Asked(1, 1)])
@example([6, 3, 7], 4000, [[Part(1, 1000), Part(3, 500)]], [Asked(5, 0, is_partial=True)])
@example([5, 5, 3], 4000, [[Part(1, 2000), Part(3, 500)]], [Asked(4, 0)])
def test_a_simulation_keeps_what_the_service_keeps(
    node_counts: list[int],
    cpu: int,
    waits: list[Asked | list[Part]],
    coming: list[Asked],
) -> None:
    earmarks = [
        binding(f"waits-{number}", wait)
        if isinstance(wait, Asked)
        else set_of(f"waits-{number}", wait)
        for number, wait in enumerate(waits)
    ]
    fleet = Fleet(node_counts, cpu, earmarks)
    for number, request in enumerate(coming):
        live, simulated = fleet.decide(f"comes-{number}", request)
        assert told(live) == told(simulated)


def test_one_set_is_kept_and_not_as_many_as_it_has_pods() -> None:
    """Each cluster has room for three sets of four cores: two of them are for others."""
    fleet = Fleet([12, 12, 12], 1000, [set_of("waits", [Part(1, 1000), Part(3, 1000)])])
    for decision in fleet.decide("late", Asked(24, 0)):
        assert {share.name: share.replicas for share in decision.clusters} == dict.fromkeys(
            NAMES, 8
        )
    for decision in fleet.decide("later", Asked(1, 0)):
        assert not decision.is_placed
