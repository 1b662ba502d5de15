from __future__ import annotations

from dataclasses import replace

from federation.model.cluster import ReportedPool, ReportedPools
from federation.model.estimate import Source
from federation.model.workload import Component, ReplicaRequirements
from federation.services.fleet.registry import FleetOwner
from federation.services.members.join import Registration
from federation.services.members.reports import Reporting
from federation.services.scheduling.bindings import Scheduling
from federation.services.scheduling.working_copy import Working
from tests.services import DYNAMIC, WEB, apply, decided, join_and_report, make_report

GIB = 1024**3
# Two nodes of one core: by its total the cluster seems to hold more.
SMALL_NODES = ReportedPools(
    label_keys=(),
    pools=(ReportedPool(),),
    resources=("cpu", "memory", "pods"),
    cell_pools=(0,),
    counts=(2,),
    minimums=(1000, 64 * GIB, 100),
    spreads=(0, 0, 0),
    surpluses=(0, 0, 0),
)


async def report_pools(registration: Registration, reporting: Reporting) -> None:
    report = replace(make_report(7, cpu_millis=6000), pools=SMALL_NODES)
    await join_and_report(registration, reporting, {"pooled": report})


async def test_a_decision_rests_on_what_an_estimate_would_answer(
    scheduling: Scheduling, registration: Registration, reporting: Reporting, fleet: FleetOwner
) -> None:
    await report_pools(registration, reporting)
    wanted = replace(
        WEB,
        replicas=8,
        requirements=ReplicaRequirements(request={"cpu": 1000}),
        placement=replace(WEB.placement, replica_scheduling=DYNAMIC),
    )
    scheduled = await apply(scheduling, wanted)
    inputs = scheduled.record.decision.trace.inputs
    position = scheduled.record.decision.trace.clusters.index("pooled")
    assert inputs.available_c[position] == 2
    assert inputs.source_c[position] == Source.POOLS
    assert decided(scheduled).get("pooled", 0) <= 2


async def test_sets_of_components_are_packed_into_pools(
    registration: Registration, reporting: Reporting, fleet: FleetOwner
) -> None:
    await report_pools(registration, reporting)
    part = ReplicaRequirements(request={"cpu": 600})
    binding = replace(WEB, components=(Component(name="a", replicas=2, requirements=part),))
    snapshot = fleet.snapshot
    found = Working(snapshot).availability(binding, None)
    # By the sum five sets would fit; one part fits on each node.
    assert found.replicas_c.tolist() == [1]
    assert found.source_c.tolist() == [Source.POOLS]
