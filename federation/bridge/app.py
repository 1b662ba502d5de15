"""Puts the bridge together and runs it until it is stopped.

Must not read the environment, the command line or signals.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
import uuid
from collections.abc import Coroutine
from contextlib import suppress
from importlib.metadata import version
from typing import Any, Final

from estimator.binder.candidate import LeaseCandidate
from estimator.binder.election import Election
from estimator.kube.access import connect
from estimator.kube.calls import KubeCalls
from estimator.kube.leases import KubeLease
from federation.bridge.agreement import Agreement
from federation.bridge.asking import Answers
from federation.bridge.bindings import BridgedBindings
from federation.bridge.counts import Counts
from federation.bridge.fleet import BridgedFleet, Changes
from federation.bridge.health import BridgeState, told
from federation.bridge.member import AGENT_VERSION, Line
from federation.bridge.renewing import MemberChannel, keep_renewed, watch_kubeconfig
from federation.bridge.settings import BridgeSettings
from federation.bridge.shadow import Shadow
from federation.bridge.watching import KarmadaWatches, WatchTarget
from federation.bridge.writing import KarmadaWrites
from federation.client import Client
from federation.model.errors import Unavailable
from federation.runtime.watched_files import FileWatch

LOOK_SECONDS: Final = 0.5
TELL_SECONDS: Final = 60.0
# Patches travel side by side; more do not make an API server faster.
THREADS: Final = 8

logger = logging.getLogger(__name__)


async def run(
    settings: BridgeSettings, stopping: asyncio.Event, file_watch: FileWatch | None = None
) -> None:
    """Wait for the lease, then bridge until told to stop. ``file_watch`` reads changed files.

    Raises Unavailable when the lease was lost, or the control plane is away at the start, and
    PreconditionFailed where there is no usable kubeconfig.
    """
    connect(settings.kubeconfig)
    calls = KubeCalls(settings.kubeconfig, threads=THREADS)
    # What is told to people must not wait for the lease, nor the other way round.
    telling = KubeCalls(settings.kubeconfig, threads=1)
    leases = KubeCalls(settings.kubeconfig, threads=1)
    election = Election(_identity())
    candidate = LeaseCandidate(
        election,
        KubeLease(leases, namespace=settings.lease_namespace, name=settings.lease_name),
        clock=time.time,
        monotonic=time.monotonic,
    )
    held, state = asyncio.Event(), BridgeState()
    files = file_watch or FileWatch()

    async def reconnect() -> None:
        for each in (calls, telling, leases):
            each.reconnect()

    watch_kubeconfig(settings.kubeconfig, files, reconnect)
    reading = asyncio.create_task(files.keep_reading())
    standing = asyncio.create_task(candidate.stand(held.set))
    try:
        async with told(settings.health, state):
            await _together(stopping.wait(), held.wait(), beside=standing)
            if not stopping.is_set():
                logger.info("holding the lease %s", settings.lease_name)
                bridging = _bridge(settings, (calls, telling), election, state, files)
                await _together(stopping.wait(), bridging, beside=standing)
    finally:
        standing.cancel()
        reading.cancel()
        await asyncio.gather(standing, reading, return_exceptions=True)
        await candidate.resign()
        for each in (calls, telling, leases):
            each.close()


async def compare(
    settings: BridgeSettings,
    stopping: asyncio.Event,
    seconds: float,
    file_watch: FileWatch | None = None,
) -> Agreement:
    """What is placed now, and for so long what karmada-scheduler places anew. Writes nothing.

    Raises PreconditionFailed where there is no usable kubeconfig, and what a call raises.
    """
    connect(settings.kubeconfig)
    files = file_watch or FileWatch()
    async with Client(settings.target) as client:
        keep_renewed(settings, files, client.renew)
        shadow = Shadow(client, scheduler=settings.scheduler_name, as_karmada=settings.as_karmada)
        watches = KarmadaWatches(
            settings.kubeconfig,
            clusters=WatchTarget(
                replace=shadow.replace_clusters,
                put=shadow.put_cluster,
                remove=shadow.remove_cluster,
            ),
            bindings=_shadowed(shadow, "bindings"),
            cluster_bindings=_shadowed(shadow, "cluster bindings"),
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
            async with told(settings.health, state):
                await _together(stopping.wait(), work(), beside=following)
        finally:
            following.cancel()
            reading.cancel()
            await asyncio.gather(following, reading, return_exceptions=True)
        return shadow.agreement


def _shadowed(shadow: Shadow, kind: str) -> WatchTarget:
    return WatchTarget(
        replace=lambda listed: shadow.replace_bindings(listed, kind),
        put=shadow.put_binding,
        remove=shadow.remove_binding,
    )


async def _bridge(
    settings: BridgeSettings,
    calls: tuple[KubeCalls, KubeCalls],
    election: Election,
    state: BridgeState,
    files: FileWatch,
) -> None:
    async with Client(settings.target) as client:
        channel = MemberChannel(settings.target)
        keep_renewed(settings, files, client.renew, channel.renew)
        counts = state.counts
        answers = Answers(
            client,
            scheduler=settings.scheduler_name,
            as_karmada=settings.as_karmada,
            failover=settings.failover,
            unknown=counts.unknown_fields,
            is_current=lambda: watches.are_current,
        )
        writes = KarmadaWrites(*calls, settings.scheduler_name, time.time)
        bindings = BridgedBindings(
            client, writes, answers, counts, scheduler=settings.scheduler_name
        )
        changes = Changes(
            changed=bindings.clusters_changed,
            moved=bindings.cluster_moved,
            spoken_for=bindings.tell_ready_in,
            troubled=lambda cluster, why: bindings.start(writes.warn(cluster, why)),
            unknown=counts.unknown_fields,
        )
        line = _line(client, channel, bindings.listed)
        fleet = BridgedFleet(line, changes, failover=settings.failover)
        bindings.serve(fleet)
        watches = KarmadaWatches(
            settings.kubeconfig,
            clusters=WatchTarget(replace=fleet.replace, put=fleet.put, remove=fleet.remove),
            bindings=_told(bindings, namespaced=True),
            cluster_bindings=_told(bindings, namespaced=False),
            clock=time.monotonic,
        )
        state.is_working, state.alive = True, watches.are_alive
        state.ready = lambda: fleet.is_ready and bindings.is_known and watches.are_current

        async def decide() -> None:
            await fleet.ready()
            logger.info("bridging the bindings of scheduler %s", settings.scheduler_name)
            await bindings.keep()

        try:
            await _together(
                watches.follow(),
                fleet.follow(),
                fleet.keep(),
                bindings.follow(),
                decide(),
                _hold(election, settings.lease_name),
                _tell(counts),
            )
        finally:
            await channel.close()


async def _hold(election: Election, lease: str) -> None:
    """Raises Unavailable once the lease is lost."""
    while election.is_leader(time.monotonic()):  # noqa: ASYNC110 - a lease runs out by itself
        await asyncio.sleep(LOOK_SECONDS)
    raise Unavailable(f"the lease {lease} was lost")


def _line(client: Client, channel: MemberChannel, listed: asyncio.Event) -> Line:
    return Line(
        client=client,
        channel=channel,
        version=f"{AGENT_VERSION}/{version('fedsched')}",
        clock=time.time,
        monotonic=time.monotonic,
        listed=listed,
    )


def _told(bindings: BridgedBindings, *, namespaced: bool) -> WatchTarget:
    return WatchTarget(
        replace=lambda listed: bindings.replace(listed, namespaced=namespaced),
        put=bindings.put,
        remove=bindings.remove,
    )


def _identity() -> str:
    return f"{socket.gethostname()}_{uuid.uuid4()}"


async def _tell(counts: Counts) -> None:
    """What was done, now and then, where there was something; until cancelled."""
    told = ""
    while True:
        await asyncio.sleep(TELL_SECONDS)
        if (text := counts.text) != told:
            told = text
            logger.info("so far: %s", text)


async def _together(
    *works: Coroutine[Any, Any, Any], beside: asyncio.Task[None] | None = None
) -> None:
    """Until one ends, whose error is raised; the others are ended with it, but for ``beside``."""
    tasks = [asyncio.create_task(work) for work in works]
    others = [] if beside is None else [beside]
    try:
        done, _ = await asyncio.wait([*tasks, *others], return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
