"""Builds an agent out of its settings and runs it: source, credential, stream.

Must not read the environment, argv or signals: ``__main__`` does.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any, Final, TypeVar

from estimator.agent import Agent, WatchedCluster
from estimator.binder.binder import SCHEDULER_NAME, Binder
from estimator.binder.election import Election
from estimator.binpack.strategy import Strategy
from estimator.control_plane.channel import Dialler
from estimator.control_plane.enrolment import ClusterIdentity
from estimator.control_plane.stream import Speaker, keep_connected, wait_until
from estimator.credential import CredentialFile, CredentialStore, KeptCredential
from estimator.doctor import examine
from estimator.estimation.pooling import USUAL_LABEL_KEYS, Pooling
from estimator.extender.extender import Extender
from estimator.health import HealthServer
from estimator.joining import Joining
from estimator.karmada.server import KarmadaEstimator, KarmadaSettings, serve_karmada
from estimator.metrics import metrics_page
from estimator.placing.place import MOST_ALLOCATED
from estimator.scoring_config.choice import strategy_for
from estimator.scoring_config.reader import ScoringConfiguration, read_scoring_configuration
from estimator.settings import ExtenderSettings, RunSettings
from estimator.sources import ClusterSource, DumpSource, ScriptSource
from federation.model.errors import (
    EPOCH_AHEAD,
    InvalidRequest,
    PermissionRefused,
    PreconditionFailed,
    Unauthenticated,
    Unavailable,
)
from federation.runtime.addresses import Address
from federation.runtime.backoff import Backoff, uniform
from federation.runtime.findings import Finding

# Loading Kubernetes' client takes a third of a second of CPU: who follows a file never needs it.
if TYPE_CHECKING:
    from estimator.kube.writing import KubeWrites
    from estimator.live import LiveSource

# So long pods wait for a control plane that is away, when an agent starts.
PROMISES_SECONDS: Final = 30.0
# Pods that an extender let on nodes before it ended are bound there meanwhile, and are seen.
SETTLING_SECONDS: Final = 2.0

Answer = TypeVar("Answer")

logger = logging.getLogger(__name__)


def open_source(settings: RunSettings) -> ClusterSource:
    """Where the picture comes from. Raises PreconditionFailed or InvalidRequest."""
    if settings.report is not None:
        return ScriptSource(settings.report, settings.cluster)
    source: DumpSource | LiveSource
    if settings.dump is not None:
        source = DumpSource(settings.dump, settings.node_set)
    else:
        from estimator.live import LiveSource  # noqa: PLC0415 - see above

        source = LiveSource(
            settings.kubeconfig, settings.node_set, clock=time.monotonic, uniform=uniform
        )
    label_keys = (*settings.pool_labels, *USUAL_LABEL_KEYS)
    source.member.pool_by(Pooling(settings.pool_budget, label_keys))
    return source


async def run(settings: RunSettings, stopping: asyncio.Event) -> None:
    """Join if need be, then report and answer until told to stop; serve and bind if told to.

    Raises PermissionRefused or Unauthenticated when the control plane refuses this agent for good.
    """
    source = open_source(settings)
    configuration = _scoring(settings)
    if isinstance(source.member, WatchedCluster):
        lenient = settings.scoring.extender is not None
        source.member.place_by(placing_strategy(configuration, lenient=lenient))
        source.member.follows_claims = settings.scoring.placer != "none"
        if not settings.endpoints:
            # Nobody promises anything here.
            source.member.told.set()

    async def work() -> None:
        tasks = []
        if settings.endpoints:
            tasks.append(_speak(settings, source, stopping))
        if settings.karmada is not None:
            tasks.append(_serve_karmada(settings.cluster, settings.karmada, source, stopping))
        if settings.scoring.extender is not None:
            extending = settings.scoring.extender
            tasks.append(_serve_extender(settings, extending, configuration, source, stopping))
        if settings.scoring.binder:
            tasks.append(_bind_pods(settings, configuration, source, stopping))
        if settings.health is not None:
            tasks.append(_tell_health(settings.health, source, stopping))
        await _together(tasks)

    await _while_following(source, work())


async def join(settings: RunSettings) -> str:
    """Enrol with the token, whatever was kept before; where the credential is kept now."""
    source = open_source(settings)
    joining = _joining(settings)

    async def enrolled() -> str:
        await source.ready()
        await joining.enrol(await source.identity())
        return joining.kept_in

    return await _while_following(source, enrolled())


async def looked_at(settings: RunSettings) -> list[Finding]:
    """What the doctor finds, with these settings."""
    joining = _joining(settings)
    return await examine(settings, _store(settings), joining)


async def _while_following(source: ClusterSource, work: Coroutine[Any, Any, Answer]) -> Answer:
    """Do ``work`` with the picture kept current; a source that fails fails the work."""
    following = asyncio.create_task(source.follow())
    working = asyncio.create_task(work)
    try:
        await asyncio.wait({following, working}, return_when=asyncio.FIRST_COMPLETED)
        if following.done():
            following.result()
        return await working
    finally:
        for task in (following, working):
            task.cancel()
        await asyncio.gather(following, working, return_exceptions=True)


async def _together(coroutines: Sequence[Coroutine[Any, Any, None]]) -> None:
    """Run all of them until all have ended; the first that fails ends the others."""
    tasks = [asyncio.create_task(coroutine) for coroutine in coroutines]
    try:
        for task in asyncio.as_completed(tasks):
            await task
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _unless_stopped(
    preparing: Coroutine[Any, Any, Answer], stopping: asyncio.Event
) -> Answer | None:
    """What ``preparing`` gives; None when a stop came first, which just ends it."""
    working = asyncio.create_task(preparing)
    stopped = asyncio.create_task(stopping.wait())
    try:
        await asyncio.wait({working, stopped}, return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        for task in (working, stopped):
            task.cancel()
        await asyncio.gather(working, stopped, return_exceptions=True)


async def _serve_karmada(
    cluster: str, settings: KarmadaSettings, source: ClusterSource, stopping: asyncio.Event
) -> None:
    """Get ready, and then answer Karmada: half a picture looks like a small cluster."""

    async def ready() -> KarmadaEstimator:
        await _patiently(source.ready)
        return KarmadaEstimator(cluster, source.member, clock=time.time)

    estimator = await _unless_stopped(ready(), stopping)
    if estimator is not None:
        await serve_karmada(settings, estimator, stopping)


async def _tell_health(listen: Address, source: ClusterSource, stopping: asyncio.Event) -> None:
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
        if await _unless_stopped(_is_ready(source), stopping) is not None:
            ready.set()
            await stopping.wait()
    finally:
        server.stop()


async def _serve_extender(
    settings: RunSettings,
    extending: ExtenderSettings,
    configuration: ScoringConfiguration,
    source: ClusterSource,
    stopping: asyncio.Event,
) -> None:
    """Get ready, and then answer kube-scheduler until told to stop."""
    # Loading aiohttp takes a fifth of a second of CPU, and few agents need it.
    from estimator.extender.server import ExtenderServer, server_tls  # noqa: PLC0415 - see above
    from estimator.kube.incoming import read_incoming  # noqa: PLC0415 - see above

    binding, unbound = _binding(settings, extending)
    extender = Extender(
        _watched(source),
        partial(strategy_for, configuration),
        read_incoming,
        clock=time.time,
        binding=binding,
        unbound=unbound,
    )
    tls = None
    if extending.tls_cert is not None and extending.tls_key is not None:
        tls = server_tls(extending.tls_cert, extending.tls_key, extending.client_ca)

    async def may_extend() -> bool:
        await _may_place(source, "extender")
        if settings.endpoints:
            await asyncio.sleep(SETTLING_SECONDS)
        return True

    if await _unless_stopped(may_extend(), stopping) is None:
        return
    listen = extending.listen
    server = ExtenderServer(extender, host=listen.host, port=listen.port, tls=tls)
    try:
        await server.start()
        logger.info("kube-scheduler's extender is served on %s", listen)
        await stopping.wait()
    finally:
        await server.stop()
        if binding is not None:
            binding.close()


def _binding(settings: RunSettings, extending: ExtenderSettings) -> tuple[KubeWrites | None, str]:
    """What binds for the extender; without it, why it does not."""
    if settings.dump is not None:
        return None, "this agent follows a file: there is no API server to bind at"
    if not extending.may_bind:
        return None, (
            "binding is open to callers that show a certificate, or on a loopback address: "
            "see --extender-client-ca"
        )
    return _writes(settings), ""


async def _bind_pods(
    settings: RunSettings,
    configuration: ScoringConfiguration,
    source: ClusterSource,
    stopping: asyncio.Event,
) -> None:
    """Get ready, and then bind pods until told to stop."""
    from estimator.kube.pending import PendingPods  # noqa: PLC0415 - see above

    strategy = strategy_for(configuration, SCHEDULER_NAME)
    if await _unless_stopped(_may_place(source, "binder"), stopping) is None:
        return
    writes = _writes(settings)
    binder = Binder(
        _watched(source),
        writes,
        strategy,
        Election(f"{socket.gethostname()}_{uuid.uuid4()}"),
        clock=time.time,
        monotonic=time.monotonic,
    )
    pods = PendingPods(settings.kubeconfig, SCHEDULER_NAME, binder, uniform=uniform)
    try:
        await _unless_stopped(_together([pods.follow(), binder.run()]), stopping)
    finally:
        writes.close()


async def _is_ready(source: ClusterSource) -> bool:
    await _patiently(source.ready)
    return True


async def _may_place(source: ClusterSource, placer: str) -> bool:
    """Whose picture is whole, and who knows what is promised in it: others' pods would take that.

    An agent that starts knows of no promise until the control plane has told it.
    """
    await _is_ready(source)
    told = _watched(source).told
    if not told.is_set():
        logger.info("the %s waits to be told what is promised here", placer)
        await wait_until(told, PROMISES_SECONDS)
    if not told.is_set():
        logger.warning(
            "the %s begins without knowing what is promised here: the control plane has not said "
            "in %.0f s; other pods may take that room",
            *(placer, PROMISES_SECONDS),
        )
    return True


def _scoring(settings: RunSettings) -> ScoringConfiguration:
    """Raises PreconditionFailed when the file cannot be read, InvalidRequest when it is wrong."""
    path = settings.scoring.configuration
    if path is None:
        return ScoringConfiguration(strategies=(MOST_ALLOCATED,))
    try:
        configuration = read_scoring_configuration(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise PreconditionFailed(f"{path} cannot be read: {error}") from error
    for warning in configuration.warnings:
        logger.warning("%s: %s", path, warning)
    return configuration


def placing_strategy(configuration: ScoringConfiguration, *, lenient: bool) -> Strategy:
    """What Place goes by. ``lenient``: the profiles are an extender's, MostAllocated will do.

    Raises InvalidRequest when the configuration has no strategy for the agent, unless lenient.
    """
    try:
        return strategy_for(configuration, SCHEDULER_NAME)
    except InvalidRequest as error:
        if not lenient:
            raise
        logger.warning("placing by %s: %s", MOST_ALLOCATED.name, error.message)
        return MOST_ALLOCATED


def _writes(settings: RunSettings) -> KubeWrites:
    from estimator.kube.writing import KubeWrites  # noqa: PLC0415 - see above

    namespace = settings.scoring.binder_namespace
    return KubeWrites(settings.kubeconfig, namespace=namespace, clock=time.time)


def _watched(source: ClusterSource) -> WatchedCluster:
    """The cluster of nodes and pods; the settings leave no other here."""
    if not isinstance(source.member, WatchedCluster):
        raise PreconditionFailed("scoring needs nodes, which scripted reports have not")
    return source.member


async def _speak(settings: RunSettings, source: ClusterSource, stopping: asyncio.Event) -> None:
    """Get ready, and then speak, which a stop lets drain."""
    joining = _joining(settings)

    async def ready() -> tuple[ClusterIdentity, KeptCredential]:
        await _patiently(source.ready)
        identity = await _patiently(source.identity)
        return identity, await _patiently(lambda: joining.credential(identity))

    prepared = await _unless_stopped(ready(), stopping)
    if prepared is None:
        return
    identity, kept = prepared
    try:
        await _keep_speaking(settings, source, identity, kept, stopping)
    except Unauthenticated as error:
        if not await joining.has_another_token():
            raise
        # Whoever restarts a revoked agent with another token means it to be used.
        logger.warning("%s; joining with the join token", error.message.rstrip("."))
        again = await _unless_stopped(_patiently(lambda: joining.enrol(identity)), stopping)
        if again is not None:
            await _keep_speaking(settings, source, identity, again, stopping)


async def _keep_speaking(
    settings: RunSettings,
    source: ClusterSource,
    identity: ClusterIdentity,
    kept: KeptCredential,
    stopping: asyncio.Event,
) -> None:
    """One session, over as many streams as it takes."""
    ca_pem = await _patiently(lambda: _joining(settings).trusted(kept.ca))
    dialler = _dialler(settings)
    epoch = await _patiently(lambda: kept.begin_session(time.time(), settings.addresses))
    speaker = Speaker(
        cluster=settings.cluster,
        bearer=kept,
        agent_version=agent_version(),
        kubernetes_version=identity.kubernetes_version,
        apis=source.apis,
        placer=settings.scoring.placer,
    )
    agent = Agent(source.member, epoch=epoch, clock=time.time)
    try:
        await keep_connected(lambda: dialler.open(ca_pem), agent, speaker, stopping, Backoff())
    except PermissionRefused as error:
        if error.reason == EPOCH_AHEAD:
            # The next start must not go on from a session that never was.
            await _patiently(lambda: kept.forget_session(time.time()))
        raise


def _store(settings: RunSettings) -> CredentialStore:
    if settings.credential_secret is None:
        return CredentialFile(settings.credential_file)
    from estimator.kube.secret import CredentialSecret  # noqa: PLC0415 - see above

    return CredentialSecret(settings.credential_secret, settings.kubeconfig)


def _joining(settings: RunSettings) -> Joining:
    store = _store(settings)
    return Joining(settings, store, _dialler(settings), version=agent_version(), clock=time.time)


def _dialler(settings: RunSettings) -> Dialler:
    """Agents begin anywhere in the list, so that they spread over it."""
    return Dialler(settings.endpoints, first=int(uniform(len(settings.endpoints))))


async def _patiently(attempt: Callable[[], Awaitable[Answer]]) -> Answer:
    """Try until it works; what cannot be reached now may be reached later."""
    backoff = Backoff()
    while True:
        try:
            return await attempt()
        except Unavailable as error:
            seconds = backoff.next_seconds()
            logger.warning("%s; again in %.1f s", error.message, seconds)
            await asyncio.sleep(seconds)


def agent_version() -> str:
    try:
        return version("fedsched")
    except PackageNotFoundError:
        return "unknown"
