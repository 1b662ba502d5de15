"""An agent's servers besides its stream: Karmada, health, kube-scheduler's extender, the binder.

Must not read settings from anywhere; it is given them.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import uuid
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from estimator.agent.stream import wait_until
from estimator.attempts import patiently, together, unless_stopped
from estimator.metrics import metrics_page
from estimator.placement.incoming import SCHEDULER_NAME
from estimator.scoring_config.reader import ScoringConfiguration, strategy_for
from estimator.servers.extender import Extender
from estimator.servers.health import HealthServer
from estimator.servers.karmada import KarmadaEstimator, KarmadaSettings, serve_karmada
from estimator.settings import ExtenderSettings, RunSettings
from estimator.sources import ClusterSource
from estimator.watched_cluster import WatchedCluster
from federation.model.errors import PreconditionFailed
from federation.runtime.addresses import Address
from federation.runtime.backoff import uniform
from federation.runtime.watched_files import FileWatch

if TYPE_CHECKING:
    from estimator.kube.client import KubeClient
    from estimator.kube.writes import KubeWrites

logger = logging.getLogger(__name__)


# So long pods wait for a control plane that is away, when an agent starts.
PROMISES_SECONDS: Final = 30.0
# Pods that an extender let on nodes before it ended are bound there meanwhile, and are seen.
SETTLING_SECONDS: Final = 2.0


# Also while nobody asks anything: reports and estimates count assumed pods.
ASSUMPTIONS_SECONDS: Final = 1.0


async def expire_assumptions(
    cluster: WatchedCluster, clock: Callable[[], float], stopping: asyncio.Event
) -> None:
    """Count no longer, in time, the pods that were not seen on their nodes."""
    while await unless_stopped(asyncio.sleep(ASSUMPTIONS_SECONDS, True), stopping):
        cluster.expire_assumptions(clock())


async def answer_karmada(
    settings: RunSettings,
    karmada: KarmadaSettings,
    source: ClusterSource,
    stopping: asyncio.Event,
    files: FileWatch,
) -> None:
    """Get ready, and then answer Karmada: half a picture looks like a small cluster."""

    async def ready() -> KarmadaEstimator:
        await patiently(source.ready)
        return KarmadaEstimator(settings.cluster, source.member, clock=settings.clock)

    estimator = await unless_stopped(ready(), stopping)
    if estimator is not None:
        await serve_karmada(karmada, estimator, stopping, files)


async def tell_health(listen: Address, source: ClusterSource, stopping: asyncio.Event) -> None:
    """Be alive at once, and ready once the first picture is whole and while it is seen."""
    ready = asyncio.Event()
    server = HealthServer(
        is_alive=lambda: source.is_alive,
        is_ready=lambda: ready.is_set() and not source.member.view().is_blind,
        metrics=lambda: metrics_page(source.member.measures, source.member.view()),
    )
    try:
        await server.start(listen.host, listen.port)
    except OSError as error:
        raise PreconditionFailed(f"--health-listen: {listen}: {error.strerror}") from error
    try:
        if await unless_stopped(is_ready(source), stopping) is not None:
            ready.set()
            await stopping.wait()
    finally:
        server.stop()


async def serve_extender(
    settings: RunSettings,
    client: KubeClient | None,
    extending: ExtenderSettings,
    configuration: ScoringConfiguration,
    source: ClusterSource,
    stopping: asyncio.Event,
    files: FileWatch,
) -> None:
    """Get ready, and then answer kube-scheduler until told to stop."""
    # Loading aiohttp takes a fifth of a second of CPU, and few agents need it.
    from estimator.kube.incoming import read_incoming  # noqa: PLC0415 - see above
    from estimator.servers.extender_http import ExtenderServer  # noqa: PLC0415 - see above

    binding, unbound = extender_writes(settings, client, extending)
    extender = Extender(
        nodes_of(source),
        partial(strategy_for, configuration),
        read_incoming,
        clock=settings.clock,
        binding=binding,
        unbound=unbound,
    )
    tls = extender_tls(extending, files)

    async def may_extend() -> bool:
        await may_place(source, "extender")
        if settings.endpoints:
            await asyncio.sleep(SETTLING_SECONDS)
        return True

    if await unless_stopped(may_extend(), stopping) is None:
        return
    listen = extending.listen
    server = ExtenderServer(extender, host=listen.host, port=listen.port, tls=tls)
    try:
        await server.start()
        logger.info("kube-scheduler's extender is served on %s", listen)
        await stopping.wait()
    finally:
        await server.stop()


def extender_tls(extending: ExtenderSettings, files: FileWatch) -> ssl.SSLContext | None:
    """The context of the extender's port, whose files are read again; None for plain text."""
    from estimator.servers.extender_http import renewed_tls, server_tls  # noqa: PLC0415 - see above

    certificate, key, authority = extending.tls_cert, extending.tls_key, extending.client_ca
    if certificate is None or key is None:
        return None
    paths = [path for path in (certificate, key, authority) if path is not None]
    contexts = files.watch(
        "TLS of the extender", paths, lambda: server_tls(certificate, key, authority)
    )
    return renewed_tls(lambda: contexts.value)


def extender_writes(
    settings: RunSettings, client: KubeClient | None, extending: ExtenderSettings
) -> tuple[KubeWrites | None, str]:
    """Return the writes of the extender; without them, why it does not bind."""
    if settings.dump is not None or client is None:
        return None, "this agent follows a file: there is no API server to bind at"
    if not extending.may_bind:
        return None, (
            "binding is open to callers that show a certificate, or on a loopback address: "
            "see --extender-client-ca"
        )
    return kube_writes(settings, client), ""


async def bind_pods(
    settings: RunSettings,
    client: KubeClient | None,
    configuration: ScoringConfiguration,
    source: ClusterSource,
    stopping: asyncio.Event,
) -> None:
    """Get ready, and then bind pods until told to stop."""
    from estimator.binder.binder import Binder  # noqa: PLC0415 - see above
    from estimator.kube.incoming import incoming_pods  # noqa: PLC0415 - see above
    from estimator.kube.informer import Informer, Receiver  # noqa: PLC0415 - see above
    from estimator.kube.lease import Election  # noqa: PLC0415 - see above

    if client is None:
        raise PreconditionFailed("a binder needs a live cluster, not a file")
    strategy = strategy_for(configuration, SCHEDULER_NAME)
    if await unless_stopped(may_place(source, "binder"), stopping) is None:
        return
    writes = kube_writes(settings, client)
    binder = Binder(
        nodes_of(source),
        writes,
        strategy,
        Election(f"{socket.gethostname()}_{uuid.uuid4()}"),
        clock=settings.clock,
        monotonic=settings.monotonic,
    )
    # The nodes' informer notes when the API server is out of reach.
    receiver = Receiver(replace=binder.replace_pods, put=binder.put_pod, remove=binder.remove_pod)
    informer = Informer(client, incoming_pods(SCHEDULER_NAME), receiver, uniform)
    await unless_stopped(together([informer.run(), binder.run()]), stopping)


async def is_ready(source: ClusterSource) -> bool:
    await patiently(source.ready)
    return True


async def may_place(source: ClusterSource, placer: str) -> bool:
    """Wait for a whole picture and its promises: pods of others would take promised room.

    An agent that starts knows of no promise until the control plane has told it.
    """
    await is_ready(source)
    is_told = nodes_of(source).told
    if not is_told.is_set():
        logger.info("the %s waits to be told what is promised here", placer)
        await wait_until(is_told, PROMISES_SECONDS)
    if not is_told.is_set():
        logger.warning(
            "the %s begins without knowing what is promised here: the control plane has not said "
            "in %.0f s; other pods may take that room",
            *(placer, PROMISES_SECONDS),
        )
    return True


def kube_writes(settings: RunSettings, client: KubeClient) -> KubeWrites:
    from estimator.kube.writes import KubeWrites  # noqa: PLC0415 - see above

    namespace = settings.scoring.binder_namespace
    return KubeWrites(client, namespace=namespace, clock=settings.clock)


def nodes_of(source: ClusterSource) -> WatchedCluster:
    """The cluster of nodes and pods; the settings leave no other here."""
    if not isinstance(source.member, WatchedCluster):
        raise PreconditionFailed("scoring needs nodes, which scripted reports have not")
    return source.member
