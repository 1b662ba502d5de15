"""Puts the bridge together by its settings, and runs it until it is stopped.

Must not read the environment, the command line or signals. Changed files of the settings are read
again while it runs.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
import uuid
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, Self

import grpc.aio

from estimator.kube.access import ServiceAccount
from estimator.kube.client import KubeClient
from estimator.kube.informer import Receiver
from estimator.kube.lease import Election, KubeLease, LeaseCandidate
from federation.bridge.agreement import Agreement
from federation.bridge.bindings import BridgedBindings
from federation.bridge.clusters import BridgedClusters, ClusterChanges
from federation.bridge.decisions import BindingDecisions
from federation.bridge.metrics import BridgeState, Counts, served
from federation.bridge.objects import KarmadaBinding, KarmadaWatches
from federation.bridge.reported_cluster import AGENT_VERSION, Line
from federation.bridge.shadow import Shadow
from federation.bridge.writes import KarmadaWrites
from federation.client import Client, Target, channel_to
from federation.model.errors import InvalidRequest, PreconditionFailed, Unavailable
from federation.runtime.addresses import Address, parse_address
from federation.runtime.tokens import checked_token
from federation.runtime.watched_files import FileWatch

LEASE_LOOK_SECONDS: Final = 0.5
LOG_SECONDS: Final = 60.0

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class BridgeSettings:
    """``kubeconfig`` is of Karmada's API server, None for the service ``account``.

    ``as_karmada`` answers as karmada-scheduler does where fedsched differs on purpose.
    ``failover`` has the control plane move replicas off lost clusters and off evicting taints; else
    that is Karmada's own.
    """

    target: Target
    kubeconfig: Path | None
    account: ServiceAccount | None = None
    scheduler_name: str
    as_karmada: bool
    failover: bool = False
    lease_name: str = ""
    lease_namespace: str = ""
    health: Address | None = None
    token_file: Path | None = None
    ca: Path | None = None

    @property
    def files(self) -> tuple[Path, ...]:
        """The files that ``target`` was made of."""
        return tuple(path for path in (self.token_file, self.ca) if path is not None)

    def newest_target(self) -> Target:
        """The target by its files as they are now. Raises InvalidRequest, naming the option."""
        target = self.target
        if self.token_file is not None:
            target = replace(target, token=_token(self.token_file))
        if self.ca is not None:
            target = replace(target, ca_pem=_content(self.ca, "--ca"))
        return target


def settings_of(
    *,
    karmada_kubeconfig: Path | None,
    endpoint: str,
    token_file: Path,
    ca: Path | None,
    insecure: bool,
    health_listen: str | None = None,
    **options: Any,
) -> BridgeSettings:
    """Return the settings by these options. Raises InvalidRequest, naming the option."""
    settings = BridgeSettings(
        target=Target(endpoint=endpoint, plaintext=insecure),
        kubeconfig=karmada_kubeconfig,
        health=None if health_listen is None else _address(health_listen),
        token_file=token_file,
        ca=ca,
        **options,
    )
    return replace(settings, target=settings.newest_target())


def _address(text: str) -> Address:
    try:
        return parse_address(text)
    except ValueError as error:
        raise InvalidRequest.of("--health-listen", str(error)) from error


def _token(path: Path) -> str:
    text = _content(path, "--token-file").decode("ascii", "replace")
    try:
        return checked_token(text, str(path))
    except PreconditionFailed as error:
        raise InvalidRequest.of("--token-file", error.message) from error


def _content(path: Path, option: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InvalidRequest.of(option, f"cannot read {path}: {error.strerror}") from error


async def run(
    settings: BridgeSettings, stopping: asyncio.Event, file_watch: FileWatch | None = None
) -> None:
    """Wait for the lease, then bridge until stopped. ``file_watch`` reads changed files.

    Raises Unavailable when the lease was lost, or the control plane is away at the start, and
    PreconditionFailed where there is no usable kubeconfig.
    """
    async with KubeClient(settings.kubeconfig, settings.account) as kube:
        await kube.check()
        await _run(settings, kube, stopping, file_watch or FileWatch())


async def _run(
    settings: BridgeSettings, kube: KubeClient, stopping: asyncio.Event, files: FileWatch
) -> None:
    election = Election(f"{socket.gethostname()}_{uuid.uuid4()}")
    lease = KubeLease(kube, namespace=settings.lease_namespace, name=settings.lease_name)
    candidate = LeaseCandidate(election, lease, clock=time.time, monotonic=time.monotonic)
    held, state = asyncio.Event(), BridgeState()
    kube.watch_files(files)
    reading = asyncio.create_task(files.keep_reading())
    standing = asyncio.create_task(candidate.stand(held.set))
    try:
        async with served(settings.health, state):
            await _until_first_ends(stopping.wait(), held.wait(), beside=standing)
            if not stopping.is_set():
                logger.info("holding the lease %s", settings.lease_name)
                bridging = _bridge(settings, kube, election, state, files)
                await _until_first_ends(stopping.wait(), bridging, beside=standing)
    finally:
        await _cancel(standing, reading)
        await candidate.resign()


async def compare(
    settings: BridgeSettings,
    stopping: asyncio.Event,
    seconds: float,
    file_watch: FileWatch | None = None,
) -> Agreement:
    """Compare placed bindings, and new decisions of karmada-scheduler for so long. Writes nothing.

    Raises PreconditionFailed where there is no usable kubeconfig, and what a call raises.
    """
    files = file_watch or FileWatch()
    async with (
        KubeClient(settings.kubeconfig, settings.account) as kube,
        Client(settings.target) as client,
    ):
        await kube.check()
        kube.watch_files(files)
        _renew(settings, files, client.renew)
        shadow = Shadow(client, scheduler=settings.scheduler_name, as_karmada=settings.as_karmada)
        watches = KarmadaWatches(
            kube,
            clusters=Receiver(
                replace=shadow.replace_clusters,
                put=shadow.put_cluster,
                remove=shadow.remove_cluster,
            ),
            bindings=_shadow_receiver(shadow, "bindings"),
            cluster_bindings=_shadow_receiver(shadow, "cluster bindings"),
            clock=time.monotonic,
        )

        async def work() -> None:
            await shadow.listed.wait()
            await shadow.compare_standing()
            if seconds:
                with suppress(TimeoutError):
                    async with asyncio.timeout(seconds):
                        await shadow.compare_decided()

        state = BridgeState(
            agreement=shadow.agreement,
            is_working=True,
            alive=watches.are_alive,
            ready=lambda: shadow.listed.is_set() and watches.are_current,
        )
        following = asyncio.create_task(watches.follow())
        reading = asyncio.create_task(files.keep_reading())
        try:
            async with served(settings.health, state):
                await _until_first_ends(stopping.wait(), work(), beside=following)
        finally:
            await _cancel(following, reading)
        return shadow.agreement


def _shadow_receiver(shadow: Shadow, kind: str) -> Receiver[KarmadaBinding]:
    return Receiver(
        replace=lambda listed: shadow.replace_bindings(listed, kind),
        put=shadow.put_binding,
        remove=shadow.remove_binding,
    )


async def _bridge(
    settings: BridgeSettings,
    kube: KubeClient,
    election: Election,
    state: BridgeState,
    files: FileWatch,
) -> None:
    async with Client(settings.target) as client, ReportChannel(settings.target) as channel:
        _renew(settings, files, client.renew, channel.renew)
        counts = state.counts
        decisions = BindingDecisions(
            client,
            scheduler=settings.scheduler_name,
            as_karmada=settings.as_karmada,
            failover=settings.failover,
            unknown=counts.unknown_fields,
            is_current=lambda: watches.are_current,
        )
        writes = KarmadaWrites(kube, settings.scheduler_name, time.time)
        bindings = BridgedBindings(
            client, writes, decisions, counts, scheduler=settings.scheduler_name
        )
        changes = ClusterChanges(
            changed=bindings.clusters_changed,
            moved=bindings.cluster_moved,
            reported=bindings.put_ready_in,
            troubled=lambda cluster, why: bindings.start(writes.warn(cluster, why)),
            unknown=counts.unknown_fields,
        )
        line = _line(client, channel, bindings.listed)
        clusters = BridgedClusters(line, changes, failover=settings.failover)
        bindings.serve(clusters)
        watches = KarmadaWatches(
            kube,
            clusters=Receiver(replace=clusters.replace, put=clusters.put, remove=clusters.remove),
            bindings=_binding_receiver(bindings, namespaced=True),
            cluster_bindings=_binding_receiver(bindings, namespaced=False),
            clock=time.monotonic,
        )
        state.is_working, state.alive = True, watches.are_alive
        state.ready = lambda: clusters.is_ready and bindings.is_known and watches.are_current

        async def decide() -> None:
            await clusters.ready()
            logger.info("bridging the bindings of scheduler %s", settings.scheduler_name)
            await bindings.keep()

        await _until_first_ends(
            watches.follow(),
            clusters.follow(),
            clusters.keep(),
            bindings.follow(),
            decide(),
            _hold(election, settings.lease_name),
            _log(counts),
        )


def _line(client: Client, channel: ReportChannel, listed: asyncio.Event) -> Line:
    return Line(
        client=client,
        channel=channel,
        version=f"{AGENT_VERSION}/{version('fedsched')}",
        clock=time.time,
        monotonic=time.monotonic,
        listed=listed,
    )


def _binding_receiver(bindings: BridgedBindings, *, namespaced: bool) -> Receiver[KarmadaBinding]:
    return Receiver(
        replace=lambda listed: bindings.replace(listed, namespaced=namespaced),
        put=bindings.put,
        remove=bindings.remove,
    )


class ReportChannel:
    """The connection that clusters are reported on: one, by the newest authority."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._channel = channel_to(target)
        # Channels with streams that go on as they began.
        self._retired: list[grpc.aio.Channel] = []

    def __call__(self) -> grpc.aio.Channel:
        return self._channel

    def renew(self, target: Target) -> None:
        """Connect by this target from now on."""
        if target.connection != self._target.connection:
            self._retired.append(self._channel)
            self._channel = channel_to(target)
        self._target = target

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for channel in (self._channel, *self._retired):
            await channel.close()


def _renew(
    settings: BridgeSettings, watch: FileWatch, *receivers: Callable[[Target], None]
) -> None:
    """Hand the newest token and authority to receivers, now and later. Raises InvalidRequest."""

    async def changed() -> None:
        for receive in receivers:
            receive(files.value)

    files = watch.watch("control plane", settings.files, settings.newest_target, changed)
    for receive in receivers:
        receive(files.value)


async def _hold(election: Election, lease: str) -> None:
    """Raises Unavailable once the lease is lost."""
    while election.is_leader(time.monotonic()):  # noqa: ASYNC110 - a lease runs out by itself
        await asyncio.sleep(LEASE_LOOK_SECONDS)
    raise Unavailable(f"the lease {lease} was lost")


async def _log(counts: Counts) -> None:
    """Log the counts now and then, where they changed; until cancelled."""
    logged = ""
    while True:
        await asyncio.sleep(LOG_SECONDS)
        if (text := counts.text) != logged:
            logged = text
            logger.info("so far: %s", text)


async def _until_first_ends(
    *works: Coroutine[Any, Any, Any], beside: asyncio.Task[None] | None = None
) -> None:
    """Run until one ends, whose error is raised; all are ended with it, but for ``beside``."""
    tasks = [asyncio.create_task(work) for work in works]
    watched = tasks if beside is None else [*tasks, beside]
    try:
        done, _ = await asyncio.wait(watched, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        await _cancel(*tasks)


async def _cancel(*tasks: asyncio.Task[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
