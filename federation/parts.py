"""What a control plane is made of: built and tied together here, started and stopped by ``app``.

Must not start anything, read the environment, nor contain any rule of the product.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping
from functools import partial

import grpc
from sqlalchemy.ext.asyncio import AsyncEngine

from federation.agents.forwarding import Forwarding, PeerChannels, answer_peer, dial
from federation.agents.sessions import Sessions
from federation.certificate_ends import certificate_files
from federation.database import Database
from federation.failover.breaker import BreakerLimits
from federation.model.errors import Unavailable
from federation.operations.in_process import InProcess
from federation.operations.services import Services
from federation.rpc.estimating import EstimatingProcess
from federation.rpc.interceptors import Gate
from federation.rpc.joining import Advertised
from federation.rpc.limits import CallerShares
from federation.rpc.placing import NodePlacing
from federation.rpc.simulation import SimulationServicer
from federation.rpc.simulation_worker import Setup
from federation.rpc.watching import binding_watches, cluster_watches
from federation.runtime.files import read_whole
from federation.runtime.settings import Accept, Settings
from federation.scheduler.plugins.profile import Profiles
from federation.services.access.audit import AuditTrail
from federation.services.access.namespace_quotas import QuotaService
from federation.services.access.tokens import Tokens
from federation.services.duties import (
    URGENT_LEASE_SECONDS,
    Duties,
    Duty,
    auditing,
    keeping_reports,
    pruning,
)
from federation.services.estimates.availability import Availability
from federation.services.failover.control import FailoverControl
from federation.services.failover.watching import Failover, FailoverSettings
from federation.services.fleet.conditions import Overcommitment, Readiness
from federation.services.fleet.journal_reader import Following
from federation.services.fleet.registry import FleetOwner
from federation.services.fleet.report_requests import Refreshing
from federation.services.history import DecisionHistory
from federation.services.journal import Change, ReportAdvanced
from federation.services.journal_ports import PreemptionLimits
from federation.services.members.event_loop_lag import LoopWatch
from federation.services.members.finished_jobs import Finishing
from federation.services.members.identity import Identity, Vouchers
from federation.services.members.join import Registration
from federation.services.members.kept_reports import (
    KEEP_EVERY_SECONDS,
    KEPT_AT_ONCE,
    ReportKeeping,
)
from federation.services.members.lifecycle import Membership
from federation.services.members.presences import Presences
from federation.services.members.replicas import Replicas
from federation.services.members.reports import Reporting, ReportTimes
from federation.services.pace import Shares
from federation.services.plans.carrying_out import CarryingOut
from federation.services.plans.control import PlanControl
from federation.services.ports import CheckedStore, Timer
from federation.services.scheduling.agents import LabelDiscovery
from federation.services.scheduling.bindings import Scheduling
from federation.services.scheduling.pipeline import DecisionPipeline
from federation.services.scheduling.previews import Previews
from federation.services.scheduling.release import EXPIRED_AT_ONCE, ReleaseService
from federation.services.waiting.keeper import QueueKeeper
from federation.services.waiting.news import LossObserver
from federation.services.waiting.steering import Queueing
from federation.services.watching.watches import WatchPace
from federation.services.workers import MAX_WAITING, WorkerLimits
from federation.store.engine import create_engine
from federation.store.postgres import PostgresStore
from federation.store.signal import JournalSignal
from federation.telemetry.measured import Measured
from federation.telemetry.page import MetricsPages
from federation.web.ui.site import Ui
from federation.web.ui.use_cases import UseCases

# Puts another store in front of the one on PostgreSQL.
StoreWrapper = Callable[[CheckedStore], CheckedStore]

DAY_SECONDS = 86_400.0
HOUR_SECONDS = 3_600.0


class SystemClock:
    """The machine's clock, in Unix seconds. Implements ``ports.Timer``."""

    now = staticmethod(time.time)
    sleep = staticmethod(asyncio.sleep)


class Parts:
    """All that one control plane consists of but its ports and its tasks.

    ``why_not_ready`` is what people are told on the page; None where all can be answered.
    """

    def __init__(
        self,
        settings: Settings,
        database: Database,
        *,
        profiles: Profiles,
        watch_pace: WatchPace | None,
        vouchers: Vouchers,
        why_not_ready: Callable[[], Awaitable[str | None]],
        clock: Timer,
        wrap_store: StoreWrapper | None,
    ) -> None:
        self._settings = settings
        self._database = database
        self._profiles = profiles
        self._why_not_ready = why_not_ready
        replica_id = uuid.uuid4().hex
        self.engine: AsyncEngine = create_engine(database.url, replica_id)
        self.signal = JournalSignal(database.url, replica_id)
        store = PostgresStore(self.engine, self.signal.announce)
        self.store: CheckedStore = store if wrap_store is None else wrap_store(store)
        self.clock = clock
        self.replicas = Replicas(self.store, self.clock, replica_id)
        self.fleet = FleetOwner(self.store)
        self.overcommitment = Overcommitment(self.fleet)
        self.identity = Identity(self.store, self.clock, vouchers, self._labels_of)
        self.trail = AuditTrail(self.store)
        self._build_hearing()
        self._build_deciding()
        self.simulation = self._build_simulation()
        watched = self.store, self.following, self.fleet
        self.binding_watches = binding_watches(*watched, watch_pace)
        self.cluster_watches = cluster_watches(*watched, self.clock, watch_pace)
        self.fleet.observe(self.keeper.changed)
        self.readiness = Readiness(self.fleet, self.clock, self._readiness_changed)
        shares = CallerShares({"simulations": self._settings.simulation_workers + MAX_WAITING})
        self.gate = Gate(self.identity, refusals=self.trail, clock=self.clock.now, shares=shares)
        self.loop_watch = LoopWatch(self.fleet, self.clock)
        self._advertised: Callable[[], Advertised] | None = None
        self.services = self._build_services()
        self.ui = self._build_ui()

    def advertise(self, advertised: Callable[[], Advertised]) -> None:
        """Say how agents reach this control plane, from now on."""
        self._advertised = advertised

    def _how_to_reach(self) -> Advertised:
        if self._advertised is None:
            raise Unavailable("the control plane is starting; try again later")
        return self._advertised()

    def _build_services(self) -> Services:
        holds_joiners = self._settings.accept is Accept.MANUAL
        return Services(
            clock=self.clock,
            registration=Registration(self.store, self.fleet, holds_joiners=holds_joiners),
            membership=Membership(self.store, self.fleet, self.sessions),
            advertised=self._how_to_reach,
            failover=self.failover_control,
            plans=self.plans,
            tokens=Tokens(self.store, self.identity.forget),
            quotas=QuotaService(self.store),
            trail=self.trail,
            scheduling=self.scheduling,
            previews=self.previews,
            placing=self.placing,
            releases=self.releases,
            queueing=self.queueing,
            history=self.history,
            availability=self.availability,
            estimating=self.estimating,
            binding_watches=self.binding_watches,
            cluster_watches=self.cluster_watches,
            ask_process=self.simulation.ask,
            ask_agent=partial(answer_peer, self.sessions),
        )

    def _build_hearing(self) -> None:
        """Build the parts that follow the journal, agents and other control planes."""
        self.sessions = Sessions()
        self.following = Following(self.store, self.fleet, self.signal)
        self.following.observe_anew(self.sessions.refresh_all)
        self.finishing = Finishing(self.store, self.fleet)
        self.reporting = Reporting(
            self.store,
            self.fleet,
            self.clock,
            ReportTimes(
                heartbeat_seconds=self._settings.heartbeat_seconds,
                report_seconds=self._settings.report_seconds,
            ),
            following=self.following,
            finishing=self.finishing,
        )
        knowing = self.store, self.fleet, self.sessions, self.replicas, self.reporting
        lost_seconds = self._settings.lost_seconds
        self.presences = Presences(*knowing, self.clock, lost_seconds=lost_seconds)
        self.fleet.observe(self.presences.note_report, ReportAdvanced)
        self.channels = PeerChannels(self._dial_peer, self.replicas, self.clock)
        self.agents = Forwarding(self.sessions, self.presences, self.channels, self.clock)

    def _build_deciding(self) -> None:
        """What decides, and who waits for it."""
        refreshing = Refreshing(self.fleet, self.sessions, self.clock)
        self.fleet.observe(refreshing.changed)
        self.pipeline = DecisionPipeline(
            self.store,
            self.fleet,
            self.following,
            self.clock,
            self._profiles,
            allow_unproven=self._settings.allow_unproven,
            preemption_limits=PreemptionLimits(
                replicas=self._settings.preempted_replicas,
                in_namespace=self._settings.preempted_replicas_of_namespace,
                seconds=self._settings.eviction_seconds,
            ),
            report_requests=refreshing,
        )
        self.releases = ReleaseService(self.store, self.fleet, self.following)
        self.scheduling = Scheduling(
            self.store,
            self.fleet,
            self.agents,
            self.pipeline,
            self.releases,
            LabelDiscovery(self.fleet, self.agents, self.clock),
            self._profiles,
        )
        self.previews = Previews(
            self.store,
            self.fleet,
            self.following,
            self.scheduling,
            self.pipeline,
            self.clock,
        )
        self.placing = NodePlacing(self.scheduling.node_plans)
        self.keeper = QueueKeeper(
            *(self.store, self.fleet, self.pipeline, self._profiles, self.clock),
            self.placing.start_behind,
        )
        self.pipeline.observe_waiting(self.keeper.committed)
        self.following.observe(LossObserver(self.keeper.lost))
        self.following.observe_anew(self.keeper.lost)
        self.queueing = Queueing(self.store, self.fleet, self.pipeline)
        self.history = DecisionHistory(self.store, allow_unproven=self._settings.allow_unproven)
        self.availability = Availability(self.fleet, self.agents, self.clock)
        self.estimating = (
            None
            if self._settings.no_estimating_process
            else EstimatingProcess(self.fleet, self.availability, self.clock)
        )
        self._build_background()

    def _build_background(self) -> None:
        """Build the duties, which one control plane at a time has."""
        expiring = Duty(
            name="expire leases", work=self.releases.expire_leases, at_once=EXPIRED_AT_ONCE
        )
        reports = ReportKeeping(self.fleet)
        self.following.observe(reports)
        duties = (
            expiring,
            *pruning(self._settings.keep_decisions_days * DAY_SECONDS),
            *auditing(self._settings.keep_audit_days * DAY_SECONDS),
            *keeping_reports(
                reports.keep,
                self._settings.keep_reports_hours * HOUR_SECONDS,
                at_once=KEPT_AT_ONCE,
                every_seconds=KEEP_EVERY_SECONDS,
            ),
        )
        self.duties = Duties(self.store, self.replicas.id, duties, self.clock)
        limits = failover_limits(self._settings)
        self.failover = Failover(
            *(self.store, self.fleet, self.pipeline, self.presences, self.clock, limits),
            self.placing.start_behind,
        )
        self.failover_control = FailoverControl(
            self.store, self.fleet, self.failover, self.clock, limits
        )
        self.plans = PlanControl(self.store, self.fleet, self.pipeline, self.clock)
        carrying_out = CarryingOut(
            *(self.store, self.fleet, self.pipeline, self.releases, self.clock),
            self.placing.start_behind,
            max_seconds=self._settings.eviction_seconds,
        )
        urgent = self.keeper.duty, self.failover.duty, carrying_out.duty
        self.urgent_duties = [*map(self._urgent, urgent)]

    def _urgent(self, duty: Duty) -> Duties:
        """Give a duty rounds of its own, because a piece of its work may take long."""
        return Duties(
            *(self.store, self.replicas.id, (duty,), self.clock),
            lease_seconds=URGENT_LEASE_SECONDS,
        )

    def _labels_of(self, cluster: str) -> Mapping[str, str] | None:
        fleet = self.fleet
        return fleet.known(cluster).cluster.labels if fleet.has(cluster) else None

    def _readiness_changed(self, change: Change) -> None:
        self.cluster_watches.changed(change)
        self.keeper.changed(change)

    def _shares(self) -> dict[str, Shares]:
        """All limits that callers share, by the names of metrics."""
        return {
            **self.gate.shares.by_name,
            "undecoded_requests": self.gate.large.shares,
            "binding_watches": self.binding_watches.shares,
            "cluster_watches": self.cluster_watches.shares,
            "page_events": self.ui.shares,
        }

    def metrics_pages(self) -> MetricsPages:
        return MetricsPages(
            Measured(
                calls=self.gate.measures,
                shares=self._shares(),
                decisions=self.pipeline.measures,
                availability=self.availability,
                estimating=self.estimating.process if self.estimating else None,
                keeper=self.keeper,
                failover=self.failover_control,
                fleet=self.fleet,
                following=self.following,
                sessions=self.sessions,
                settling=self.reporting.settling,
                overcommitment=self.overcommitment,
                loop_watch=self.loop_watch,
                pool=self.engine.pool,
                store=self.store,
                certificates=certificate_files(self._settings),
                clock=self.clock,
            )
        )

    def _build_ui(self) -> Ui:
        """It asks what callers of the API ask."""
        use_cases = UseCases(
            calls=InProcess(gate=self.gate, services=self.services),
            fleet=self.fleet,
            identity=self.identity,
            replicas=self.replicas,
            duties=self.duties,
            what_if=self.simulation.what_if,
            why_not_ready=self._why_not_ready,
            database=self._database.description,
        )
        return Ui(use_cases, self._settings.ui, self._settings.web_listen)

    def _build_simulation(self) -> SimulationServicer:
        """In processes of its own, which start when there is something to simulate."""
        settings = self._settings
        setup = Setup(
            profiles=self._profiles,
            most_steps=settings.simulation_steps,
            memory_mebibytes=settings.simulation_memory_mebibytes,
            log_format=settings.log_format,
            log_level=settings.log_level,
        )
        limits = WorkerLimits(
            count=settings.simulation_workers, seconds=settings.simulation_seconds
        )
        return SimulationServicer(setup, limits, self.clock)

    def read_ca(self) -> bytes | None:
        path = self._settings.tls_ca
        return None if path is None else read_whole(path)

    def _dial_peer(self, endpoint: str) -> grpc.aio.Channel:
        return dial(endpoint, self.read_ca(), self._settings.peer_name)


def failover_limits(settings: Settings) -> FailoverSettings:
    return FailoverSettings(
        enabled=not settings.no_failover,
        lost_seconds=settings.lost_seconds,
        eviction_seconds=settings.eviction_seconds,
        percent_a_minute=settings.failover_percent,
        unschedulable_seconds=settings.unschedulable_seconds,
        breaker=BreakerLimits(
            settings.breaker_clusters, settings.breaker_percent, settings.breaker_by_place
        ),
    )
