"""What tests of the use cases say to them. Must not check anything."""

from __future__ import annotations

from collections.abc import Mapping

from federation.model.cluster import (
    CapacityReport,
    Cluster,
    NodeSummary,
    ReportedPool,
    ReportedPools,
    ResourceSummary,
)
from federation.model.grades import DEFAULT_MODEL, model_hash
from federation.model.placement import Binding, Placement, ReplicaScheduling, SchedulingType
from federation.model.reservations import Reservation
from federation.model.workload import ReplicaRequirements
from federation.services.agent_values import Enrollment
from federation.services.fleet.registry import FleetOwner
from federation.services.members.join import Registration
from federation.services.values import IssuedCredential
from federation.store.engine import create_engine
from federation.store.postgres import PostgresStore

GIB = 2**30
DYNAMIC = ReplicaScheduling(type=SchedulingType.DIVIDED, dynamic=True)
WEB = Binding(
    namespace="shop",
    name="web",
    uid="uid-web",
    replicas=9,
    requirements=ReplicaRequirements(request={"cpu": 1000, "memory": GIB}),
    placement=Placement(replica_scheduling=DYNAMIC),
)


def make_report(
    sequence: int = 1,
    *,
    epoch: int = 1,
    cpu_millis: int = 100_000,
    pods: int = 1000,
    grades: Mapping[int, int] | None = None,
    content_hash: str = "",
) -> CapacityReport:
    """What is free is what is given, on one node; with ``grades`` only those say what is where."""
    grades = grades or {}
    return CapacityReport(
        epoch=epoch,
        sequence=sequence,
        snapshot_time=500.0,
        summary=ResourceSummary(
            allocatable={"cpu": cpu_millis, "memory": 10_000 * GIB, "pods": pods},
            allocated={"cpu": 0, "memory": 0, "pods": 0},
        ),
        nodes=NodeSummary(total=9, ready=9, graded=sum(grades.values())),
        grade_counts=grades,
        model_hash=model_hash(DEFAULT_MODEL) if grades else "",
        content_hash=content_hash,
        pools=None
        if grades
        else one_node({"cpu": cpu_millis, "memory": 10_000 * GIB, "pods": pods}),
    )


def one_node(free: Mapping[str, int]) -> ReportedPools:
    """The pools of a cluster of one node."""
    return ReportedPools(
        label_keys=(),
        pools=(ReportedPool(),),
        resources=tuple(free),
        cell_pools=(0,),
        counts=(1,),
        minimums=tuple(free.values()),
        spreads=(0,) * len(free),
        surpluses=(0,) * len(free),
    )


def fleet_of(**reports: CapacityReport) -> FleetOwner:
    """Clusters with reports, of a store that is never asked."""
    owner = FleetOwner(PostgresStore(create_engine("postgresql://unused")))
    for name, report in reports.items():
        owner.put_cluster(Cluster(name=name))
        owner.put_report(name, report, 1.0)
    return owner


async def join(
    registration: Registration, name: str, *, cluster_uid: str | None = None
) -> IssuedCredential:
    token = await registration.create_join_token(name)
    return await registration.enroll(
        Enrollment(cluster=name, token=token.token, cluster_uid=cluster_uid or f"uid-{name}")
    )


def reservations_of(fleet: FleetOwner, binding: str) -> tuple[Reservation, ...]:
    """All that a binding holds, by ascending cluster."""
    return tuple(
        each for name in fleet.holdings(binding) for each in fleet.ledger(name).of_binding(binding)
    )
