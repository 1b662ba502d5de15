"""The control plane: everything is built, tied together, started and stopped here.

Must not read the environment or handle signals, nor contain any rule of the product.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection
from sqlalchemy.ext.asyncio import AsyncEngine

from federation.admin_token import keep_admin_token
from federation.agents.conversation import Conversations
from federation.agents.forwarding import Forwarding, PeerChannels, answer_peer, dial
from federation.agents.interests import Interests
from federation.agents.sessions import Sessions
from federation.agents.upkeep import Upkeep
from federation.database import Database, keep_running
from federation.model.errors import FederationError, Unavailable
from federation.rpc.access import add_access_to_server
from federation.rpc.agents import AgentsServicer
from federation.rpc.clusters import ClustersServicer
from federation.rpc.estimates import EstimatesServicer
from federation.rpc.failover import FailoverServicer
from federation.rpc.history import HistoryCalls
from federation.rpc.interceptors import Gate
from federation.rpc.joining import Advertised, Reached, advertised
from federation.rpc.peers import PeersServicer
from federation.rpc.placing import NodePlacing
from federation.rpc.rebalance import RebalanceServicer
from federation.rpc.scheduling import SchedulingServicer
from federation.rpc.scoring import ScoringServicer
from federation.rpc.served import (
    SERVICES,
    add_services,
    server_credentials,
    unstarted_server,
)
from federation.rpc.simulation import SimulationServicer, add_simulation_to_server
from federation.rpc.simulation_worker import Setup
from federation.rpc.watching import binding_watches, cluster_watches
from federation.runtime.addresses import Address
from federation.runtime.backoff import CAP_SECONDS
from federation.runtime.files import read_whole
from federation.runtime.settings import Settings
from federation.scheduler.plugins.profile import DEFAULT_PROFILES, Profiles
from federation.services.access.audit import AuditTrail
from federation.services.access.tokens import Tokens
from federation.services.duties import Duties, Duty, auditing, pruning
from federation.services.estimates.availability import Availability
from federation.services.failover.running import RunningFailover
from federation.services.fleet.journal_reader import Following
from federation.services.fleet.overcommitment import Overcommitment
from federation.services.fleet.readiness import Readiness
from federation.services.fleet.registry import FleetOwner
from federation.services.fleet.report_requests import Refreshing
from federation.services.history import DecisionHistory
from federation.services.journal import Change, ClusterChanged, ReportAdvanced
from federation.services.journal_ports import PreemptionLimits
from federation.services.members.finished_jobs import Finishing
from federation.services.members.hearing import LoopWatch
from federation.services.members.identity import Authenticator, Identity
from federation.services.members.join import Registration
from federation.services.members.lifecycle import Membership
from federation.services.members.presences import Presences
from federation.services.members.renewal import Renewal
from federation.services.members.replicas import Replicas
from federation.services.members.reports import MISSED_BEATS, Reporting, ReportTimes
from federation.services.plans.running import RunningPlans
from federation.services.scheduling.agents import LabelDiscovery
from federation.services.scheduling.bindings import Scheduling
from federation.services.scheduling.pipeline import DecisionPipeline
from federation.services.scheduling.previews import Previews
from federation.services.scheduling.release import EXPIRED_AT_ONCE, ReleaseService
from federation.services.waiting.running import RunningQueue
from federation.services.waiting.steering import Queueing
from federation.services.watching.watches import WatchPace
from federation.services.workers import WorkerLimits
from federation.store.engine import create_engine
from federation.store.postgres import PostgresStore
from federation.store.signal import JournalSignal
from federation.telemetry.measured import Measured
from federation.telemetry.page import MetricsPages
from federation.web.server import WebPorts
from federation.web.site import make_probe_site, make_site, metrics_route
from federation.web.ui.site import Ui
from federation.web.ui.use_cases import UseCases

DRAIN_SECONDS = 5.0
READY_SECONDS = 2.0
UPKEEP_SECONDS = 10.0
DAY_SECONDS = 86_400.0
# The longest pause between two tries of an agent.
DIAL_AGAIN_SECONDS = CAP_SECONDS
ADMIN_TOKEN_FILE = "admin.token"  # noqa: S105 - a file's name

logger = logging.getLogger(__name__)


class SystemClock:
    """The machine's clock, in Unix seconds."""

    now = staticmethod(time.time)


class ControlPlane:
    """One running control plane on one event loop: ``start`` it, ``stop`` it, once each.

    ``host_name`` is what agents dial when the server listens on every interface.
    """

    def __init__(
        self,
        settings: Settings,
        database: Database,
        *,
        host_name: str,
        profiles: Profiles = DEFAULT_PROFILES,
        watch_pace: WatchPace | None = None,
        authenticators: Sequence[Authenticator] = (),
    ) -> None:
        self._settings = settings
        self._database = database
        self._host_name = host_name
        self._engine: AsyncEngine = create_engine(database.url)
        self._signal = JournalSignal(database.url)
        self._store = PostgresStore(self._engine, self._signal.announce)
        self._clock = SystemClock()
        self._fleet = FleetOwner(self._store)
        self._identity = Identity(self._store, self._clock, authenticators)
        self._trail = AuditTrail(self._store)
        self._profiles = profiles
        self._build_hearing()
        self._build_deciding()
        self._ui = self._build_ui()
        self._simulation = self._build_simulation()
        watched = self._store, self._following, self._fleet
        self._binding_watches = binding_watches(*watched, watch_pace)
        self._cluster_watches = cluster_watches(*watched, self._clock, watch_pace)
        self._fleet.observe(self._queue.changed)
        self._readiness = Readiness(self._fleet, self._clock, self._readiness_changed)
        self._health = health.aio.HealthServicer()
        self._gate = Gate(self._identity, record=self._trail.refused)
        self._loop_watch = LoopWatch(self._fleet, self._clock)
        self._server = unstarted_server(self._gate, settings.max_connections)
        self._web = WebPorts()
        self._tasks: list[asyncio.Task[None]] = []
        self._not_ready: str | None = "starting"
        self.endpoint = settings.listen
        self.web_endpoint = settings.web_listen
        self.probe_endpoint = settings.probe_listen

    def _build_hearing(self) -> None:
        """What follows the journal, agents and other control planes."""
        self._sessions = Sessions()
        self._following = Following(self._store, self._fleet, self._signal)
        self._following.observe_anew(self._sessions.refresh_all)
        self._finishing = Finishing(self._store, self._fleet)
        self._reporting = Reporting(
            self._store,
            self._fleet,
            self._clock,
            ReportTimes(
                heartbeat_seconds=self._settings.heartbeat_seconds,
                report_seconds=self._settings.report_seconds,
            ),
            following=self._following,
            finishing=self._finishing,
        )
        self._replicas = Replicas(self._store, self._clock, uuid.uuid4().hex)
        knowing = self._store, self._fleet, self._sessions, self._replicas, self._reporting
        lost_seconds = self._settings.lost_seconds
        self._presences = Presences(*knowing, self._clock, lost_seconds=lost_seconds)
        self._fleet.observe(self._presences.note_report, ReportAdvanced)
        self._channels = PeerChannels(self._dial_peer, self._replicas, self._clock)
        self._agents = Forwarding(self._sessions, self._presences, self._channels, self._clock)

    def _build_deciding(self) -> None:
        """What decides, and who waits for it."""
        refreshing = Refreshing(self._fleet, self._sessions, self._clock)
        self._fleet.observe(refreshing.changed)
        self._pipeline = DecisionPipeline(
            self._store,
            self._fleet,
            self._following,
            self._clock,
            self._profiles,
            allow_unproven=self._settings.allow_unproven,
            preemption_limits=PreemptionLimits(
                replicas=self._settings.preempted_replicas,
                in_namespace=self._settings.preempted_replicas_of_namespace,
            ),
            report_requests=refreshing,
        )
        self._releases = ReleaseService(self._store, self._fleet, self._following)
        self._scheduling = Scheduling(
            self._store,
            self._fleet,
            self._agents,
            self._pipeline,
            self._releases,
            LabelDiscovery(self._fleet, self._agents, self._clock),
            self._profiles,
        )
        self._previews = Previews(
            self._store,
            self._fleet,
            self._following,
            self._scheduling,
            self._pipeline,
            self._clock,
        )
        self._placing = NodePlacing(self._scheduling.node_plans)
        self._queue = RunningQueue(
            self._store,
            self._fleet,
            self._following,
            self._pipeline,
            self._profiles,
            self._clock,
            self._placing.start_behind,
            self._replicas.id,
        )
        self._build_background()

    def _build_background(self) -> None:
        """What is done by one control plane at a time."""
        expiring = Duty(
            name="expire leases", work=self._releases.expire_leases, at_once=EXPIRED_AT_ONCE
        )
        duties = (
            expiring,
            *pruning(self._settings.keep_decisions_days * DAY_SECONDS),
            *auditing(self._settings.keep_audit_days * DAY_SECONDS),
        )
        self._duties = Duties(self._store, self._replicas.id, duties, self._clock)
        self._failover = RunningFailover(
            self._store, self._fleet, self._pipeline, self._presences, self._clock, self._settings
        )
        self._failover.observe(self._placing.start_behind)
        self._plans = RunningPlans(
            *(self._store, self._fleet, self._pipeline, self._releases),
            *(self._replicas.id, self._clock, self._settings),
        )
        self._plans.observe(self._placing.start_behind)

    def _readiness_changed(self, change: Change) -> None:
        self._cluster_watches.changed(change)
        self._queue.changed(change)

    def _build_metrics(self) -> MetricsPages:
        return MetricsPages(
            Measured(
                calls=self._gate.measures,
                decisions=self._pipeline.measures,
                availability=self._availability,
                keeper=self._queue.keeper,
                fleet=self._fleet,
                sessions=self._sessions,
                loop_watch=self._loop_watch,
                pool=self._engine.pool,
                store=self._store,
                clock=self._clock,
            )
        )

    def _build_ui(self) -> Ui:
        """It asks what callers of the API ask."""
        self._queueing = Queueing(self._store, self._fleet, self._pipeline)
        self._history = DecisionHistory(self._store)
        self._availability = Availability(self._fleet, self._agents, self._clock)
        use_cases = UseCases(
            fleet=self._fleet,
            scheduling=self._scheduling,
            previews=self._previews,
            queueing=self._queueing,
            history=self._history,
            availability=self._availability,
            failover=self._failover.control,
            plans=self._plans.control,
            identity=self._identity,
            replicas=self._replicas,
            duties=self._duties,
            clock=self._clock,
            ask_for_nodes=self._placing.start_behind,
            audit=self._trail,
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
        return SimulationServicer(setup, limits, self._clock)

    @property
    def admin_token_file(self) -> Path:
        return self._settings.data_dir.absolute() / ADMIN_TOKEN_FILE

    async def start(self) -> None:
        """Load the fleet and open the ports. Raises FederationError; call ``stop`` even then."""
        if self._database.embedded is not None:
            self._keep(keep_running(self._database.embedded))
        await keep_admin_token(self._identity, self.admin_token_file)
        await self._following.load(grace_until=self._clock.now() + self._grace_seconds)
        self._fleet.observe(Overcommitment(self._fleet).changed, ReportAdvanced, ClusterChanged)
        self._keep(self._loop_watch.keep_watching(), self._readiness.keep_looking())
        self._keep(self._identity.keep_looking(), self._trail.keep_writing())
        self._keep(self._following.run(), self._finishing.run())
        ca_pem = self._read_ca()
        self._listen_web(ca_pem)
        self._listen_grpc(ca_pem)
        await self._meet_peers()
        await self._server.start()
        for name in SERVICES:
            await self._health.set(name, health_pb2.HealthCheckResponse.SERVING)
        self._not_ready = None

    async def stop(self) -> None:
        """Refuse new calls, let the running ones finish for a while, close everything."""
        self._not_ready = "stopping"
        await self._health.enter_graceful_shutdown()
        stopping = asyncio.create_task(self._server.stop(DRAIN_SECONDS))
        await self._binding_watches.close()
        await self._cluster_watches.close()
        # Agents that were asked may still answer; then who waits for them is told and answers too.
        await self._placing.settle(DRAIN_SECONDS / 2)
        self._sessions.send_away(Unavailable("the control plane is stopping; dial again"))
        await self._placing.settle(DRAIN_SECONDS / 2)
        await stopping
        self._ui.close()
        await self._web.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._leave_peers()
        await self._signal.close()
        self._pipeline.close()
        self._queue.close()
        await self._simulation.close()
        await self._engine.dispose()

    async def _meet_peers(self) -> None:
        """Be known to the other control planes, and know them, from now on."""
        settings = self._settings
        dialled = settings.peer_endpoint or settings.advertise_endpoint
        self._replicas.endpoint = str(dialled or self.endpoint.dialable_at(self._host_name))
        await self._presences.share()
        self._keep(self._presences.keep_sharing(), self._duties.keep_doing())
        self._keep(self._queue.run(), self._failover.run(), self._plans.run())

    def _keep(self, *work: Coroutine[None, None, None]) -> None:
        """Goes on with each until ``stop``."""
        self._tasks += map(asyncio.create_task, work)

    async def _leave_peers(self) -> None:
        """What is not left in time is taken over when it runs out."""
        with suppress(FederationError, TimeoutError):
            async with asyncio.timeout(READY_SECONDS):
                await self._trail.write()
                await self._duties.leave()
                await self._queue.leave()
                await self._failover.leave()
                await self._plans.leave()
                await self._replicas.leave()
        await self._channels.close()

    def _dial_peer(self, endpoint: str) -> grpc.aio.Channel:
        return dial(endpoint, self._read_ca(), self._settings.peer_name)

    def _read_ca(self) -> bytes | None:
        path = self._settings.tls_ca
        return None if path is None else read_whole(path)

    def _listen_web(self, ca_pem: bytes | None) -> None:
        more = (*self._ui.routes, metrics_route(self._build_metrics().page))
        site = make_site(ca_pem=ca_pem, why_not_ready=self._why_not_ready, more=more)
        self.web_endpoint = self._web.serve(self._settings.web_listen, site)
        if self._settings.probe_listen is not None:
            probes = make_probe_site(self._why_not_ready)
            self.probe_endpoint = self._web.serve(self._settings.probe_listen, probes)

    def _listen_grpc(self, ca_pem: bytes | None) -> None:
        address = self._settings.listen
        credentials = server_credentials(self._settings)
        try:
            if credentials is None:
                port = self._server.add_insecure_port(str(address))
            else:
                port = self._server.add_secure_port(str(address), credentials)
        except RuntimeError as error:
            raise Unavailable(f"cannot listen on {address}: is the port in use?") from error
        self.endpoint = Address(host=address.host, port=port)
        reached = Reached(endpoint=self.endpoint, web=self.web_endpoint, host_name=self._host_name)
        self._add_services(advertised(self._settings, reached, ca_pem))

    def _add_services(self, reached_at: Advertised) -> None:
        server, reporting = self._server, self._reporting
        interests = Interests(self._fleet)
        self._fleet.observe(interests.changed)
        conversations = Conversations(
            self._sessions, reporting, interests, self._releases.lose_plans
        )
        self._fleet.observe_models(conversations.welcome_again)
        self._look_after_streams(conversations, reporting)
        registration = Registration(self._store, self._fleet)
        membership = Membership(self._store, self._fleet, self._sessions)
        add_access_to_server(Tokens(self._store, self._identity.forget), self._trail, server)
        add_simulation_to_server(self._simulation, server)
        add_services(
            server,
            agents=AgentsServicer(conversations.converse),
            clusters=ClustersServicer(
                registration, membership, reached_at, self._clock, self._cluster_watches
            ),
            estimates=EstimatesServicer(self._availability),
            failover=FailoverServicer(self._failover.control),
            peers=PeersServicer(partial(answer_peer, self._sessions)),
            rebalance=RebalanceServicer(self._plans.control),
            scheduling=SchedulingServicer(
                self._scheduling,
                self._previews,
                self._placing,
                self._releases,
                self._binding_watches,
                self._queueing,
                HistoryCalls(self._history, self._simulation.ask),
            ),
            scoring=ScoringServicer(),
        )
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        reflection.enable_server_reflection(
            (*SERVICES, health.SERVICE_NAME, reflection.SERVICE_NAME), server
        )

    def _look_after_streams(self, conversations: Conversations, reporting: Reporting) -> None:
        settings = self._settings
        upkeep = Upkeep(
            self._sessions,
            conversations,
            reporting,
            Renewal(self._store, renew_seconds=settings.renew_credentials_seconds),
            self._clock,
            max_age_seconds=settings.max_stream_seconds,
        )
        self._fleet.observe(upkeep.follow, ClusterChanged)
        interval_seconds = min(UPKEEP_SECONDS, settings.heartbeat_seconds)
        self._keep(upkeep.keep_up(interval_seconds))

    @property
    def _grace_seconds(self) -> float:
        """How long after a start agents may take to dial again before their clusters are stale."""
        return DIAL_AGAIN_SECONDS + MISSED_BEATS * self._settings.heartbeat_seconds

    async def _why_not_ready(self) -> str | None:
        """None when calls can be answered in full."""
        if self._not_ready is not None:
            return self._not_ready
        try:
            async with asyncio.timeout(READY_SECONDS):
                await self._store.check()
        except FederationError as error:
            return error.message
        except TimeoutError:
            return "The database does not answer in time."
        return self._following.why_not_ready
