"""Preemption of many small bindings by a large one: each cluster is packed as seldom as may be."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest

from federation.capacity import cluster_room
from federation.capacity.cluster_room import Room, Site
from federation.capacity.pool_kinds import PoolKinds
from federation.model.cluster import CapacityReport, Cluster, ClusterState
from federation.model.placement import Binding, Placement, PreemptionPolicy
from federation.model.reservations import Outstanding
from federation.model.workload import ReplicaRequirements
from federation.scheduler.decision import Outcome
from federation.scheduler.simulation import Simulation, SimulationOptions
from federation.services.fleet.registry import FleetOwner
from federation.services.members.join import Registration
from federation.services.members.reports import Reporting
from federation.store.postgres import PostgresStore
from lab.services import (
    DYNAMIC,
    GIB,
    WEB,
    Agents,
    apply,
    join_and_report,
    make_deciders,
    make_report,
    one_node,
)
from tests.unit.services.conftest import StillClock

CLUSTERS = "abc"
NODES, CORES = 8, 4
SMALL, FILLING, WANTED = 40, 60, 12


class Packings:
    """How many rooms were packed anew."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        packed = cluster_room.packed_anew

        def counted(
            kinds: PoolKinds, every: Sequence[tuple[Site, Sequence[Outstanding]]]
        ) -> list[Room]:
            self.count += len(every)
            return packed(kinds, every)

        monkeypatch.setattr(cluster_room, "packed_anew", counted)


@pytest.fixture
def packings(monkeypatch: pytest.MonkeyPatch) -> Packings:
    return Packings(monkeypatch)


def report_of(number: int) -> CapacityReport:
    report = make_report(number, cpu_millis=NODES * CORES * 1000)
    pools = one_node({"cpu": CORES * 1000, "memory": 64 * GIB, "pods": 110})
    nodes = replace(report.nodes, total=NODES, ready=NODES)
    return replace(report, pools=replace(pools, counts=(NODES,)), nodes=nodes)


def bindings() -> list[Binding]:
    """Small ones of many shapes, of two priorities; then more urgent ones than all of them; then
    one that takes their room.
    """
    choices = random.Random(1)
    web = replace(WEB, uid="", placement=Placement(replica_scheduling=DYNAMIC))
    small = [
        replace(
            web,
            name=f"small-{number}",
            replicas=choices.randint(1, 2),
            priority=choices.randint(0, 1),
            requirements=ReplicaRequirements(
                request={"cpu": choices.choice((500, 750, 1000)), "memory": GIB}
            ),
        )
        for number in range(SMALL)
    ]
    cores = ReplicaRequirements(request={"cpu": 500})
    filling = [
        replace(web, name=f"filling-{number}", replicas=2, priority=50, requirements=cores)
        for number in range(FILLING)
    ]
    urgent = PreemptionPolicy.PREEMPT_LOWER_PRIORITY
    large = replace(web, name="large", replicas=WANTED, priority=10, preemption_policy=urgent)
    return [*small, *filling, large]


async def test_it_takes_no_longer_by_the_square(
    store: PostgresStore,
    fleet: FleetOwner,
    registration: Registration,
    reporting: Reporting,
    agents: Agents,
    clock: StillClock,
    packings: Packings,
) -> None:
    reports = {name: report_of(place) for place, name in enumerate(CLUSTERS, 4)}
    await join_and_report(registration, reporting, reports)
    deciders = make_deciders(store, fleet, agents, clock)
    *others, large = bindings()
    for each in others:
        await apply(deciders.scheduling, each)
    packings.count = 0
    answer = await apply(deciders.scheduling, large)
    decision = answer.record.decision
    assert decision.outcome is Outcome.SCHEDULED
    victims = len(decision.trace.preempted)
    assert victims >= WANTED
    # For each that is tried one cluster, not every one for all that would go with it.
    assert packings.count < 3 * SMALL
    assert not fleet.snapshot.rooms.overcommitted_c.any()
    held = Counter[str]()
    for name in CLUSTERS:
        ledger = fleet.ledger(name)
        for key in ledger.bindings():
            for each in ledger.of_binding(key):
                held[name] += each.replicas * each.requirements.request["cpu"]
    assert max(held.values()) <= NODES * CORES * 1000


def test_nor_does_a_simulation(packings: Packings) -> None:
    states = [
        ClusterState(cluster=Cluster(name=name), report=report_of(1), as_of=0.0)
        for name in CLUSTERS
    ]
    *others, large = bindings()
    simulation = Simulation(states, SimulationOptions(), now=0.0)
    simulation.decide_all(others)
    packings.count = 0
    (decision,) = simulation.decide_all([large])
    assert decision.outcome is Outcome.SCHEDULED
    assert len(decision.trace.preempted) >= WANTED
    assert packings.count < 3 * SMALL
