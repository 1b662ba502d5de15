"""Builds an agent out of its settings and runs it: source, credential, stream.

Must not read the environment, argv or signals: ``__main__`` does.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from estimator.agent.agent import Agent
from estimator.agent.channel import Dialler
from estimator.agent.enrolment import ClusterIdentity
from estimator.agent.session import keep_connected
from estimator.agent.stream import Speaker, wait_until
from estimator.attempts import Answer, patiently, together, unless_stopped
from estimator.binpack.strategy import Strategy
from estimator.credential import CredentialFile, CredentialStore, KeptCredential
from estimator.doctor import examine
from estimator.estimation.pooling import USUAL_LABEL_KEYS, Pooling
from estimator.joining import Joining
from estimator.placement.incoming import SCHEDULER_NAME
from estimator.placement.place import DEFAULT_STRATEGY
from estimator.scoring_config.reader import (
    ScoringConfiguration,
    read_scoring_configuration,
    strategy_for,
)
from estimator.settings import RunSettings
from estimator.side_servers import (
    answer_karmada,
    bind_pods,
    expire_assumptions,
    serve_extender,
    tell_health,
)
from estimator.sources import ClusterSource, DumpSource, ScriptSource
from estimator.watched_cluster import WatchedCluster
from federation.model.errors import (
    EPOCH_AHEAD,
    SERVER_TIME,
    InvalidRequest,
    PermissionRefused,
    PreconditionFailed,
    Unauthenticated,
)
from federation.runtime.backoff import Backoff, uniform
from federation.runtime.findings import Finding
from federation.runtime.watched_files import FileWatch

# Loading an HTTP client takes a fifth of a second of CPU: who follows a file never needs it.
if TYPE_CHECKING:
    import grpc.aio

    from estimator.kube.client import KubeClient
    from estimator.live import LiveSource


logger = logging.getLogger(__name__)


@asynccontextmanager
async def kube_client(
    settings: RunSettings, files: FileWatch | None = None
) -> AsyncIterator[KubeClient | None]:
    """Give a client of the API server; None where this agent asks none."""
    follows_file = settings.dump is not None or settings.report is not None
    if follows_file and settings.credential_secret is None:
        yield None
        return
    from estimator.kube.client import KubeClient  # noqa: PLC0415 - see above

    async with KubeClient(settings.kubeconfig, settings.account) as client:
        if files is not None:
            client.watch_files(files)
        yield client


def open_source(settings: RunSettings, client: KubeClient | None) -> ClusterSource:
    """Open the source of the picture. Raises PreconditionFailed or InvalidRequest."""
    if settings.report is not None:
        return ScriptSource(settings.report, settings.cluster)
    source: DumpSource | LiveSource
    if settings.dump is not None:
        source = DumpSource(settings.dump, settings.node_set)
    elif client is not None:
        from estimator.live import LiveSource  # noqa: PLC0415 - see above

        source = LiveSource(client, settings.node_set, clock=settings.monotonic, uniform=uniform)
    else:
        raise AssertionError("a live cluster has a client")
    label_keys = (*settings.pool_labels, *USUAL_LABEL_KEYS)
    source.member.pool_by(Pooling(settings.pool_budget, label_keys))
    return source


async def run(
    settings: RunSettings, stopping: asyncio.Event, files: FileWatch | None = None
) -> None:
    """Join if need be, then report and answer until told to stop; serve and bind if told to.

    TLS files are read again every few seconds, and at once when ``files`` is requested to.
    Raises PermissionRefused or Unauthenticated when the control plane refuses this agent for good.
    """
    files = FileWatch() if files is None else files
    async with kube_client(settings, files) as client:
        await _run(settings, client, stopping, files)


async def _run(
    settings: RunSettings, client: KubeClient | None, stopping: asyncio.Event, files: FileWatch
) -> None:
    source = open_source(settings, client)
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
            tasks.append(_speak(settings, client, source, stopping))
        if settings.karmada is not None:
            answering = settings, settings.karmada, source, stopping, files
            tasks.append(answer_karmada(*answering))
        if settings.scoring.extender is not None:
            extending = settings.scoring.extender
            serving = settings, client, extending, configuration, source, stopping, files
            tasks.append(serve_extender(*serving))
        if settings.scoring.binder:
            tasks.append(bind_pods(settings, client, configuration, source, stopping))
        if isinstance(source.member, WatchedCluster) and source.member.follows_claims:
            tasks.append(expire_assumptions(source.member, settings.clock, stopping))
        if settings.health is not None:
            tasks.append(tell_health(settings.health, source, stopping))
        reading = asyncio.create_task(files.keep_reading())
        try:
            await together(tasks)
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    await _while_following(source, work())


async def join(settings: RunSettings) -> str:
    """Enrol with the token, whatever was kept before; where the credential is kept now."""
    async with kube_client(settings) as client:
        source = open_source(settings, client)
        joining = _joining(settings, client)

        async def enrolled() -> str:
            await source.ready()
            await joining.enrol(await source.identity())
            return joining.kept_in

        return await _while_following(source, enrolled())


async def looked_at(settings: RunSettings) -> list[Finding]:
    """Return the doctor's findings, with these settings."""
    async with kube_client(settings) as client:
        follows_file = settings.dump is not None or settings.report is not None
        joining = _joining(settings, client)
        api_server = None if follows_file else client
        return await examine(settings, api_server, _store(settings, client), joining)


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


def _scoring(settings: RunSettings) -> ScoringConfiguration:
    """Raises PreconditionFailed when the file cannot be read, InvalidRequest when it is wrong."""
    path = settings.scoring.configuration
    if path is None:
        return ScoringConfiguration(strategies=(DEFAULT_STRATEGY,))
    try:
        configuration = read_scoring_configuration(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise PreconditionFailed(f"{path} cannot be read: {error}") from error
    for warning in configuration.warnings:
        logger.warning("%s: %s", path, warning)
    return configuration


def placing_strategy(configuration: ScoringConfiguration, *, lenient: bool) -> Strategy:
    """Return the strategy of Place. ``lenient``: an extender has profiles, MostAllocated will do.

    Raises InvalidRequest when the configuration has no strategy for the agent, unless lenient.
    """
    try:
        return strategy_for(configuration, SCHEDULER_NAME)
    except InvalidRequest as error:
        if not lenient:
            raise
        logger.warning("placing by %s: %s", DEFAULT_STRATEGY.name, error.message)
        return DEFAULT_STRATEGY


async def _speak(
    settings: RunSettings,
    client: KubeClient | None,
    source: ClusterSource,
    stopping: asyncio.Event,
) -> None:
    """Get ready, and then speak, which a stop lets drain."""
    joining = _joining(settings, client)

    async def ready() -> tuple[ClusterIdentity, KeptCredential]:
        await patiently(source.ready)
        identity = await patiently(source.identity)
        return identity, await patiently(lambda: joining.credential(identity))

    prepared = await unless_stopped(ready(), stopping)
    if prepared is None:
        return
    identity, credential = prepared
    try:
        await _keep_speaking(settings, joining, source, identity, credential, stopping)
    except Unauthenticated as error:
        if not await joining.has_another_token():
            raise
        # Whoever restarts a revoked agent with another token means it to be used.
        logger.warning("%s; joining with the join token", error.message.rstrip("."))
        again = await unless_stopped(patiently(lambda: joining.enrol(identity)), stopping)
        if again is not None:
            await _keep_speaking(settings, joining, source, identity, again, stopping)


async def _keep_speaking(
    settings: RunSettings,
    joining: Joining,
    source: ClusterSource,
    identity: ClusterIdentity,
    credential: KeptCredential,
    stopping: asyncio.Event,
) -> None:
    """Session after session, each over as many streams as it takes.

    A session that a control plane takes for one of the future is not the last: a clock is wrong,
    and another control plane may be right.
    """
    ca_pem = await patiently(lambda: joining.trusted(credential.ca))
    dialler, backoff = _dialler(settings), Backoff()
    speaker = Speaker(
        cluster=settings.cluster,
        bearer=credential,
        agent_version=agent_version(),
        kubernetes_version=lambda: identity.kubernetes_version,
        apis=source.apis,
        placer=settings.scoring.placer,
    )

    def dial() -> grpc.aio.Channel:
        channel = dialler.open(ca_pem)
        speaker.clocks.dial(dialler.dialled)
        return channel

    while not stopping.is_set():
        epoch = await patiently(
            lambda: credential.begin_session(settings.clock(), settings.addresses)
        )
        agent = Agent(source.member, epoch=epoch, clock=settings.clock)
        try:
            await keep_connected(dial, agent, speaker, stopping, backoff)
        except PermissionRefused as error:
            if error.reason != EPOCH_AHEAD:
                raise
            # The next session must not go on from one that never was.
            await patiently(lambda: credential.forget_session(settings.clock()))
            seconds = backoff.next_seconds()
            logger.warning(
                "%s; dialling again in %.1f s",
                _clock_refusal(error, speaker, settings.clock()),
                seconds,
            )
            await wait_until(stopping, seconds)


def _clock_refusal(error: PermissionRefused, speaker: Speaker, now: float) -> str:
    """Return the refusal of a session that begins in the future, and whose clock is wrong."""
    server_time = error.facts.get(SERVER_TIME)
    if server_time is None:
        return error.message
    speaker.clocks.note(now - float(server_time))
    return f"{error.message} {speaker.clocks.explain()}"


def _store(settings: RunSettings, client: KubeClient | None) -> CredentialStore:
    if settings.credential_secret is None or client is None:
        return CredentialFile(settings.credential_file)
    from estimator.kube.secret import CredentialSecret  # noqa: PLC0415 - see above

    return CredentialSecret(settings.credential_secret, client)


def _joining(settings: RunSettings, client: KubeClient | None) -> Joining:
    store = _store(settings, client)
    return Joining(
        settings, store, _dialler(settings), version=agent_version(), clock=settings.clock
    )


def _dialler(settings: RunSettings) -> Dialler:
    """Agents begin anywhere in the list, so that they spread over it."""
    return Dialler(settings.endpoints, first=int(uniform(len(settings.endpoints))))


def agent_version() -> str:
    try:
        return version("fedsched")
    except PackageNotFoundError:
        return "unknown"
