"""What tests of the use cases say to them. Must not check anything."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

from federation.model.cluster import (
    CapacityReport,
    NodeSummary,
    ReportedPool,
    ReportedPools,
    ResourceSummary,
)
from federation.model.errors import DeadlineMissed, Unavailable
from federation.model.grades import DEFAULT_MODEL, model_hash
from federation.model.node_plans import NodePlan, NodeShare, PlaceOrder
from federation.model.placement import Binding, Placement, ReplicaScheduling, SchedulingType
from federation.model.reservations import Reservation
from federation.model.workload import ReplicaRequirements, TargetCluster
from federation.scheduler.plugins.profile import DEFAULT_PROFILES, Profiles
from federation.services.agent_values import AgentHello, Enrollment
from federation.services.fleet.journal_reader import Following
from federation.services.fleet.registry import FleetOwner
from federation.services.fleet.report_requests import Refreshing
from federation.services.journal_ports import PreemptionLimits
from federation.services.members.join import Registration
from federation.services.members.reports import Reporting
from federation.services.ports import Clock, Store, Transaction
from federation.services.scheduling.agents import LabelDiscovery
from federation.services.scheduling.bindings import Scheduling
from federation.services.scheduling.pipeline import DecisionPipeline
from federation.services.scheduling.preempting import DEFAULT_LIMITS
from federation.services.scheduling.previews import Previews
from federation.services.scheduling.release import ReleaseService
from federation.services.values import ExactQuestion, IssuedCredential, Scheduled

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


class UnsteadyStore:
    """A store that can be cut off, and that counts its transactions. Implements ports.Store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.reachable = True
        self.transactions = 0

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Transaction]:
        self._check()
        self.transactions += 1
        async with self._store.transaction() as tx:
            yield tx

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[Transaction]:
        self._check()
        async with self._store.reading() as tx:
            yield tx

    def _check(self) -> None:
        if not self.reachable:
            raise Unavailable


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Deciders:
    """The use cases around decisions, over one fleet."""

    following: Following
    pipeline: DecisionPipeline
    releases: ReleaseService
    scheduling: Scheduling
    previews: Previews


def make_deciders(
    store: Store,
    fleet: FleetOwner,
    agents: Agents,
    clock: Clock,
    profiles: Profiles = DEFAULT_PROFILES,
    *,
    allow_unproven: bool = False,
    preemption_limits: PreemptionLimits = DEFAULT_LIMITS,
    report_requests: Refreshing | None = None,
) -> Deciders:
    following = Following(store, fleet)
    pipeline = DecisionPipeline(
        store,
        fleet,
        following,
        clock,
        profiles,
        allow_unproven=allow_unproven,
        preemption_limits=preemption_limits,
        report_requests=report_requests,
    )
    releases = ReleaseService(store, fleet, following)
    discovery = LabelDiscovery(fleet, agents, clock)
    scheduling = Scheduling(store, fleet, agents, pipeline, releases, discovery, profiles)
    return Deciders(
        following=following,
        pipeline=pipeline,
        releases=releases,
        scheduling=scheduling,
        previews=Previews(store, fleet, following, scheduling, pipeline, clock),
    )


def make_scheduling(
    store: Store,
    fleet: FleetOwner,
    agents: Agents,
    clock: Clock,
    profiles: Profiles = DEFAULT_PROFILES,
) -> Scheduling:
    return make_deciders(store, fleet, agents, clock, profiles).scheduling


async def join(
    registration: Registration, name: str, *, cluster_uid: str | None = None
) -> IssuedCredential:
    token = await registration.create_join_token(name)
    return await registration.enroll(
        Enrollment(cluster=name, token=token.token, cluster_uid=cluster_uid or f"uid-{name}")
    )


async def join_and_report(
    registration: Registration, reporting: Reporting, reports: Mapping[str, CapacityReport]
) -> Mapping[str, IssuedCredential]:
    credentials = {name: await join(registration, name) for name in reports}
    for name, report in reports.items():
        await reporting.connected(name, AgentHello(epoch=report.epoch), credentials[name].id)
        await reporting.accept(name, report)
    return credentials


class Agents:
    """Answers orders as told, by cluster: a plan, an error, or never.

    Implements AgentGateway and AgentEstimates.
    """

    def __init__(self) -> None:
        self.orders: dict[str, PlaceOrder] = {}
        self.errors: dict[str, Exception] = {}
        self.silent: set[str] = set()
        self.forgetful: set[str] = set()
        self.claiming: set[str] = set()
        self.questions: dict[str, list[ExactQuestion]] = {}

    async def estimate(
        self,
        cluster: str,
        question: ExactQuestion,
        timeout_seconds: float,
    ) -> tuple[int, ...]:
        """Cannot tell."""
        self.questions.setdefault(cluster, []).append(question)
        raise Unavailable

    def sees_nodes(self, cluster: str) -> bool:
        return cluster not in self.errors

    async def place(self, cluster: str, order: PlaceOrder, timeout_seconds: float) -> NodePlan:
        self.orders[cluster] = order
        if cluster in self.silent:
            await asyncio.sleep(timeout_seconds)
            raise DeadlineMissed
        if cluster in self.errors:
            raise self.errors[cluster]
        nodes = tuple(
            NodeShare(
                node=f"{cluster}-n1", component=share.component, replicas=share.replicas, score=70
            )
            for share in order.shares
        )
        if cluster in self.forgetful:
            nodes = nodes[1:]
        return NodePlan(
            cluster=cluster,
            nodes=nodes,
            strategy="MostAllocated",
            claimed=cluster in self.claiming,
        )


def shares(clusters: tuple[TargetCluster, ...]) -> dict[str, int]:
    return {target.name: target.replicas for target in clusters}


def decided(scheduled: Scheduled) -> dict[str, int]:
    return shares(scheduled.record.decision.clusters)


async def apply(scheduling: Scheduling, binding: Binding) -> Scheduled:
    return await scheduling.schedule(binding, adopt=False, wait=True)


def reservations_of(fleet: FleetOwner, binding: str) -> tuple[Reservation, ...]:
    """All that a binding holds, by ascending cluster."""
    return tuple(
        each for name in fleet.holdings(binding) for each in fleet.ledger(name).of_binding(binding)
    )
