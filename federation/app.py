"""The control plane: its parts are started, served and stopped here.

Must not read the environment or handle signals, nor contain any rule of the product.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from contextlib import suppress
from pathlib import Path

from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from federation.admin_token import keep_admin_token
from federation.agents.conversation import Conversations
from federation.agents.interests import Interests
from federation.agents.upkeep import Upkeep
from federation.database import Database, keep_running
from federation.model.errors import FederationError, Unavailable
from federation.operations.serving import add_methods
from federation.operations.streams import Streams
from federation.parts import Parts, StoreWrapper, SystemClock
from federation.rpc.health import HealthServicer
from federation.rpc.joining import Reached, advertised
from federation.rpc.served import (
    SERVICES,
    TlsFiles,
    client_credentials,
    tls_files,
    unstarted_server,
)
from federation.rpc.simulation import add_simulation_to_server
from federation.runtime.addresses import Address
from federation.runtime.backoff import CAP_SECONDS
from federation.runtime.served_certificates import renewed_credentials
from federation.runtime.settings import Settings
from federation.runtime.watched_files import FileWatch, WatchedFiles
from federation.scheduler.plugins.profile import DEFAULT_PROFILES, Profiles
from federation.services.journal import ClusterChanged, ReportAdvanced
from federation.services.members.identity import Vouchers
from federation.services.members.join import Renewal
from federation.services.members.reports import MISSED_BEATS, Reporting
from federation.services.ports import Timer
from federation.services.scheduling.decision_ids import prepare_days
from federation.services.watching.watches import WatchPace
from federation.store.condition import losses_of
from federation.store.engine import translated
from federation.web.server import WebPorts
from federation.web.site import make_probe_site, make_site, metrics_route

DRAIN_SECONDS = 5.0
READY_SECONDS = 2.0
UPKEEP_SECONDS = 10.0
# The longest pause between two tries of an agent.
DIAL_AGAIN_SECONDS = CAP_SECONDS
ADMIN_TOKEN_FILE = "admin.token"  # noqa: S105 - a file's name

logger = logging.getLogger(__name__)


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
        vouchers: Vouchers | None = None,
        file_watch: FileWatch | None = None,
        clock: Timer | None = None,
        store: StoreWrapper | None = None,
    ) -> None:
        """``file_watch`` is told by the program's entry when its files are to be read at once.

        ``clock`` stands for the machine's clock, and ``store`` puts another store in front of
        PostgreSQL: with both, tests decide when time passes and what fails.
        """
        self._settings = settings
        self._database = database
        self._host_name = host_name
        self.parts = Parts(
            settings,
            database,
            profiles=profiles,
            watch_pace=watch_pace,
            vouchers=vouchers or Vouchers(),
            why_not_ready=self._why_not_ready,
            clock=clock or SystemClock(),
            wrap_store=store,
        )
        self._health = HealthServicer()
        self._server = unstarted_server(self.parts.gate, settings.max_connections)
        self._web = WebPorts()
        self._tasks: list[asyncio.Task[None]] = []
        self._file_watch = file_watch or FileWatch()
        self._not_ready: str | None = "starting"
        self.endpoint = settings.listen
        self.client_endpoint = settings.client_listen
        self.web_endpoint = settings.web_listen
        self.probe_endpoint = settings.probe_listen

    @property
    def admin_token_file(self) -> Path:
        return self._settings.data_dir.absolute() / ADMIN_TOKEN_FILE

    async def start(self) -> None:
        """Load the fleet and open the ports. Raises FederationError; call ``stop`` even then."""
        parts = self.parts
        if self._database.embedded is not None:
            self._keep(keep_running(self._database.embedded))
        await keep_admin_token(parts.identity, self.admin_token_file)
        await self._warn_of_losses()
        await prepare_days(parts.store)
        await parts.following.load(grace_until=parts.clock.now() + self._grace_seconds)
        if parts.estimating is not None:
            parts.estimating.begin()
        parts.fleet.observe(parts.overcommitment.changed, ReportAdvanced, ClusterChanged)
        self._keep(parts.loop_watch.keep_watching(), parts.readiness.keep_looking())
        self._keep(parts.identity.keep_looking(), parts.trail.keep_writing())
        self._keep(parts.following.run(), parts.finishing.run(), parts.ui.keep_looking())
        tls = tls_files(self._settings, self._file_watch, parts.channels.redial)
        self._listen_web(tls)
        self._listen_grpc(tls)
        self._keep(self._file_watch.keep_reading())
        await self._meet_peers()
        await self._server.start()
        for name in SERVICES:
            await self._health.set(name, health_pb2.HealthCheckResponse.SERVING)
        self._not_ready = None

    async def _warn_of_losses(self) -> None:
        async with translated():
            losses = await losses_of(self.parts.engine)
        if losses:
            fields = {"why": losses, "more": "federation doctor"}
            logger.warning("decisions may be lost", extra={"fields": fields})

    async def stop(self) -> None:
        """Refuse new calls, let the running ones finish for a while, close everything."""
        parts = self.parts
        self._not_ready = "stopping"
        await self._health.enter_graceful_shutdown()
        stopping = asyncio.create_task(self._server.stop(DRAIN_SECONDS))
        await parts.binding_watches.close()
        await parts.cluster_watches.close()
        # Agents that were asked may still answer; then who waits for them is told and answers too.
        await parts.placing.settle(DRAIN_SECONDS / 2)
        parts.sessions.send_away(Unavailable("the control plane is stopping; dial again"))
        await parts.placing.settle(DRAIN_SECONDS / 2)
        await stopping
        parts.ui.close()
        await self._web.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._leave_peers()
        await parts.signal.close()
        parts.pipeline.close()
        parts.keeper.close()
        await parts.simulation.close()
        if parts.estimating is not None:
            await parts.estimating.close()
        await parts.engine.dispose()

    async def _meet_peers(self) -> None:
        """Be known to the other control planes, and know them, from now on."""
        parts, settings = self.parts, self._settings
        dialled = settings.peer_endpoint or settings.advertise_endpoint
        parts.replicas.endpoint = str(dialled or self.endpoint.dialable_at(self._host_name))
        await parts.presences.share()
        self._keep(parts.presences.keep_sharing(), parts.duties.keep_doing())
        self._keep(parts.keeper.run(), parts.failover.keep_looking())
        self._keep(*(duties.keep_doing() for duties in parts.urgent_duties))

    def _keep(self, *work: Coroutine[None, None, None]) -> None:
        """Goes on with each until ``stop``."""
        self._tasks += map(asyncio.create_task, work)

    async def _leave_peers(self) -> None:
        """What is not left in time is taken over when it runs out."""
        parts = self.parts
        with suppress(FederationError, TimeoutError):
            async with asyncio.timeout(READY_SECONDS):
                await parts.trail.finish()
                await parts.duties.leave()
                parts.failover.moving.close()
                for duties in parts.urgent_duties:
                    await duties.leave()
                await parts.replicas.leave()
        await parts.channels.close()

    def _listen_web(self, tls: WatchedFiles[TlsFiles] | None) -> None:
        ca_pem = None if tls is None else lambda: tls.value.authority
        more = (*self.parts.ui.routes, metrics_route(self.parts.metrics_pages().page))
        site = make_site(ca_pem=ca_pem, why_not_ready=self._why_not_ready, more=more)
        self.web_endpoint = self._web.serve(self._settings.web_listen, site)
        if self._settings.probe_listen is not None:
            probes = make_probe_site(ca_pem=ca_pem, why_not_ready=self._why_not_ready)
            self.probe_endpoint = self._web.serve(self._settings.probe_listen, probes)

    def _listen_grpc(self, tls: WatchedFiles[TlsFiles] | None) -> None:
        address = self._settings.listen
        try:
            if tls is None:
                port = self._server.add_insecure_port(str(address))
            else:
                credentials = renewed_credentials(lambda: tls.value.served)
                port = self._server.add_secure_port(str(address), credentials)
        except RuntimeError as error:
            raise Unavailable(f"cannot listen on {address}: is the port in use?") from error
        self.endpoint = Address(host=address.host, port=port)
        if self._settings.client_listen is not None:
            self.client_endpoint = self._listen_to_clients(self._settings.client_listen)
        reached = Reached(endpoint=self.endpoint, web=self.web_endpoint, host_name=self._host_name)
        self.parts.advertise(
            lambda: advertised(
                self._settings, reached, None if tls is None else tls.value.authority
            )
        )
        self._add_services()

    def _listen_to_clients(self, address: Address) -> Address:
        """With certificates of their own."""
        credentials = client_credentials(self._settings, self._file_watch)
        try:
            port = self._server.add_secure_port(str(address), credentials)
        except RuntimeError as error:
            text = f"cannot listen on {address}: is the port in use, or --client-ca no PEM file?"
            raise Unavailable(text) from error
        return Address(host=address.host, port=port)

    def _add_services(self) -> None:
        parts, server, reporting = self.parts, self._server, self.parts.reporting
        interests = Interests(parts.fleet)
        parts.fleet.observe(interests.changed)
        conversations = Conversations(
            parts.sessions, reporting, interests, parts.releases.downgrade_lost_plans
        )
        parts.fleet.observe_models(conversations.welcome_again)
        self._look_after_streams(conversations, reporting)
        add_simulation_to_server(parts.simulation, server)
        streams = Streams(parts.services, conversations.converse)
        add_methods(server, parts.services, streams.methods())
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        reflection.enable_server_reflection(
            (*SERVICES, health.SERVICE_NAME, reflection.SERVICE_NAME), server
        )

    def _look_after_streams(self, conversations: Conversations, reporting: Reporting) -> None:
        parts, settings = self.parts, self._settings
        upkeep = Upkeep(
            parts.sessions,
            conversations,
            reporting,
            Renewal(parts.store, renew_seconds=settings.renew_credentials_seconds),
            parts.clock,
            max_age_seconds=settings.max_stream_seconds,
        )
        parts.fleet.observe(upkeep.follow, ClusterChanged)
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
                await self.parts.store.check()
        except FederationError as error:
            return error.message
        except TimeoutError:
            return "The database does not answer in time."
        return self.parts.following.why_not_ready
