"""A fleet in virtual time, by the code that simulations run: whatever comes, goes, falls silent and
is back, nothing is over-committed, nobody waits beside room, and gangs are whole.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any, NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from federation.cli import inputs
from federation.failover.breaker import BreakerLimits
from federation.model.placement import Binding, PreemptionPolicy, SchedulingType
from federation.model.workload import TargetCluster
from federation.simulation.capacity import SimulationOptions
from federation.simulation.decisions import Simulation
from federation.simulation.steps import (
    EventKind,
    FailoverRules,
    FleetEvent,
    StepKind,
    VirtualStep,
)
from federation.simulation.world import VirtualFleet
from tests.unit.cli.test_simulation import DUPLICATED, DYNAMIC, binding, cluster

NAMES = ("a", "b", "c")
# All shares take room, also those whose division does not look at it.
OPTIONS = SimulationOptions(reserve=True)
MOST_PREEMPTED = 4
RULES = FailoverRules(
    lost_seconds=60.0,
    breaker=BreakerLimits(clusters=3, percent=90.0),
    preempted_replicas=MOST_PREEMPTED,
)
TIMES = st.integers(0, 30).map(lambda each: each * 20.0)


class Asked(NamedTuple):
    """A binding as it is drawn; ``gang`` is one of two, or none."""

    replicas: int
    is_duplicated: bool
    priority: int
    gang: str
    arrives: float
    is_deleted: bool
    preempts: bool


asked = st.builds(
    Asked,
    st.integers(1, 4),
    st.booleans(),
    st.integers(0, 2),
    st.sampled_from(["", "", "", "x", "y"]),
    TIMES,
    st.booleans(),
    st.booleans(),
)
silences = st.lists(st.tuples(st.sampled_from(NAMES), TIMES, TIMES), max_size=3)


def documents(every: Sequence[Asked]) -> list[dict[str, Any]]:
    sizes = Counter(each.gang for each in every)
    return [
        binding(
            f"b{number}",
            each.replicas,
            DUPLICATED if each.is_duplicated else DYNAMIC,
            schedulePriority={"priority": each.priority},
            **({"preemptionPolicy": "PreemptLowerPriority"} if each.preempts else {}),
            **({"gang": {"name": each.gang, "size": sizes[each.gang]}} if each.gang else {}),
        )
        for number, each in enumerate(every)
    ]


def ran(
    cpus: Sequence[int], every: Sequence[Asked], silent: Sequence[tuple[str, float, float]]
) -> tuple[VirtualFleet, list[Binding]]:
    clusters = [cluster(name, cpu) for name, cpu in zip(NAMES, cpus, strict=True)]
    states = inputs.clusters_of(inputs.by_position(clusters, "clusters"), now=0.0)
    messages = inputs.binding_messages_of(inputs.by_position(documents(every), "bindings"))
    bindings = inputs.bindings_of(messages, None)
    events = []
    for each, one in zip(every, bindings, strict=True):
        if each.arrives:
            events.append(FleetEvent(each.arrives, EventKind.ARRIVE, one.key))
        # What is left of a gang goes its own way: that is another story.
        if each.is_deleted and not each.gang:
            events.append(FleetEvent(each.arrives + 200.0, EventKind.DELETE, one.key))
    for name, lost_at, seconds in silent:
        events.append(FleetEvent(lost_at, EventKind.LOSE, name))
        events.append(FleetEvent(lost_at + seconds, EventKind.BACK, name))
    fleet = VirtualFleet(states, OPTIONS, RULES, began=1000.0)
    fleet.run(bindings, events)
    return fleet, bindings


@settings(max_examples=60)
@given(
    st.lists(st.integers(1, 6), min_size=3, max_size=3),
    st.lists(asked, min_size=1, max_size=8),
    silences,
)
def test_whatever_happens(
    cpus: list[int], every: list[Asked], silent: list[tuple[str, float, float]]
) -> None:
    fleet, bindings = ran(cpus, every, silent)
    check_room(fleet, dict(zip(NAMES, cpus, strict=True)))
    check_gangs(fleet, bindings)
    check_moves(fleet.steps, bindings)
    check_preemption(fleet.steps, bindings)
    check_order(fleet)
    check_capacity(fleet)
    check_who_waits(fleet)
    again, _ = ran(cpus, every, silent)
    assert again.steps == fleet.steps


def check_room(fleet: VirtualFleet, cpus: dict[str, int]) -> None:
    """L4: what is promised is what reports show, at most."""
    taken = Counter[str]()
    for each in fleet.bindings:
        taken.update({target.name: target.replicas for target in each.clusters})
    assert all(taken[name] <= cpu for name, cpu in cpus.items())


def check_gangs(fleet: VirtualFleet, bindings: Sequence[Binding]) -> None:
    """All of one are placed at one instant, or none is."""
    placed = [each for each in fleet.steps if each.kind is StepKind.PLACED]
    for name in {each.gang.name for each in bindings if each.gang}:
        members = {each.key for each in bindings if each.gang and each.gang.name == name}
        first = {each.subject: each.at for each in reversed(placed) if each.subject in members}
        assert first.keys() in (set(), members)
        assert len(set(first.values())) <= 1


def check_moves(steps: Sequence[VirtualStep], bindings: Sequence[Binding]) -> None:
    """L7: what moves has all that it had; L5: no faster than a binding a second."""
    known = {each.key: each for each in bindings}
    moved = [each for each in steps if each.kind is StepKind.MOVED]
    for each in moved:
        one = known[each.subject]
        if one.placement.replica_scheduling.type is SchedulingType.DIVIDED:
            assert sum(target.replicas for target in each.clusters) == one.replicas
        assert sum(each.at <= other.at < each.at + 60 for other in moved) <= 60


def check_preemption(steps: Sequence[VirtualStep], bindings: Sequence[Binding]) -> None:
    """Strictly downwards, by who asks for it, and within the limit of any minute."""
    known = {each.key: each for each in bindings}
    held, lost = Counter[str](), list[tuple[float, int]]()
    for each in steps:
        now = sum(target.replicas for target in each.clusters)
        if each.kind is StepKind.PREEMPTED:
            by = known[each.reason.split()[2].rstrip(":")]
            assert known[each.subject].priority < by.priority
            assert by.preemption_policy is PreemptionPolicy.PREEMPT_LOWER_PRIORITY
            # One that was placed and preempted at the beginning is told of once.
            count = held[each.subject] - now if each.subject in held else 0
            lost.append((each.at, count))
        if each.subject in known:
            held[each.subject] = now
    for at, _ in lost:
        assert sum(count for then, count in lost if at <= then < at + 60) <= MOST_PREEMPTED


def check_order(fleet: VirtualFleet) -> None:
    """L2: who asks for the same and comes later in the order is not placed where another waits."""
    placed_at = {each.subject: each.at for each in fleet.steps if each.kind is StepKind.PLACED}
    waiting = [each for each in fleet.waiting() if not each.binding.gang]
    for each in waiting:
        one = each.binding
        for other in fleet.bindings:
            is_like = (other.replicas, other.placement) == (one.replicas, one.placement)
            if not is_like or other.gang or one.clusters or other.key not in placed_at:
                continue
            assert other.priority >= one.priority or placed_at[other.key] < each.since


def packed_anew(fleet: VirtualFleet) -> Simulation:
    """Return a simulation of the same clusters in which all bindings are packed at once."""
    clusters = fleet._simulation.fleet.clusters
    states = [
        replace(fleet._simulation.state(cluster.name), cluster=cluster) for cluster in clusters
    ]
    simulation = Simulation(states, OPTIONS, now=fleet._now)
    for placed in fleet.bindings:
        evicted = [
            TargetCluster(name=task.from_cluster, replicas=task.replicas)
            for task in placed.eviction_tasks
        ]
        simulation.capacity.put(placed, [*placed.clusters, *evicted], None)
    return simulation


def check_capacity(fleet: VirtualFleet) -> None:
    """The capacity after all moves, deletions and losses is that of packing all at once."""
    (probe,) = inputs.bindings_of(
        inputs.binding_messages_of(inputs.by_position([binding("probe", 1, DYNAMIC)], "bindings")),
        None,
    )
    simulation, anew = fleet._simulation, packed_anew(fleet)
    available_c, anew_c = (
        one.capacity.estimates(probe, None).replicas_c.tolist() for one in (simulation, anew)
    )
    assert available_c == anew_c


def check_who_waits(fleet: VirtualFleet) -> None:
    """L1: whoever waits at the end would find no room, and no two of them stand at one place."""
    anew = packed_anew(fleet)
    for each in fleet.waiting():
        if each.position and not each.binding.gang:
            decision = anew.decide(each.binding)
            assert not decision.is_placed or decision.clusters == each.binding.clusters
    alone = [each for each in fleet.waiting() if each.position and not each.binding.gang]
    for one, other in combinations(alone, 2):
        assert one.position < other.position
        assert one.binding.priority >= other.binding.priority
