"""Puts the bridge together and runs it until it is stopped.

Must not read the environment, the command line or signals.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from importlib.metadata import version
from typing import Any, Final

from bridge.agreement import Comparison
from bridge.asking import Answers
from bridge.bindings import BridgedBindings, Counts
from bridge.fleet import AGENT_VERSION, BridgedFleet, Changes
from bridge.member import Line
from bridge.settings import BridgeSettings
from bridge.shadow import Shadow
from bridge.watching import KarmadaWatches, WatchTarget
from bridge.writing import KarmadaWrites
from estimator.binder.candidate import LeaseCandidate
from estimator.binder.election import Election
from estimator.kube.calls import KubeCalls
from estimator.kube.leases import KubeLease
from federation.client import Client, channel_to
from federation.model.errors import Unavailable

LOOK_SECONDS: Final = 0.5
# Patches travel side by side; more do not make an API server faster.
THREADS: Final = 8

logger = logging.getLogger(__name__)


async def run(settings: BridgeSettings, stopping: asyncio.Event) -> None:
    """Wait for the lease, then bridge until told to stop. Raises Unavailable when it was lost."""
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
    held = asyncio.Event()
    standing = asyncio.create_task(candidate.stand(held.set))
    try:
        await _unless_stopped(stopping, held.wait(), standing)
        if not stopping.is_set():
            logger.info("holding the lease %s", settings.lease_name)
            await _unless_stopped(stopping, _bridge(settings, (calls, telling), election), standing)
    finally:
        standing.cancel()
        await asyncio.gather(standing, return_exceptions=True)
        await candidate.resign()
        for each in (calls, telling, leases):
            each.close()


async def compare(
    settings: BridgeSettings, stopping: asyncio.Event, seconds: float
) -> Sequence[Comparison]:
    """What is placed now, and for so long what karmada-scheduler places anew. Writes nothing."""
    async with Client(settings.target) as client:
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

        following = asyncio.create_task(watches.follow())
        try:
            await _unless_stopped(stopping, work(), following)
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
        return shadow.compared


def _shadowed(shadow: Shadow, kind: str) -> WatchTarget:
    return WatchTarget(
        replace=lambda listed: shadow.replace_bindings(listed, kind),
        put=shadow.put_binding,
        remove=shadow.remove_binding,
    )


async def _bridge(
    settings: BridgeSettings, calls: tuple[KubeCalls, KubeCalls], election: Election
) -> None:
    scheduler = settings.scheduler_name

    def may_work() -> bool:
        return election.is_leader(time.monotonic())

    async with Client(settings.target) as client:
        channel = channel_to(settings.target)
        bindings = _bindings(settings, client, calls, may_work)
        changes = Changes(
            changed=bindings.clusters_changed,
            left=bindings.cluster_left,
            spoken_for=bindings.tell_ready_in,
        )
        line = Line(
            client=client,
            channel=channel,
            version=f"{AGENT_VERSION}/{version('fedsched')}",
            clock=time.time,
            monotonic=time.monotonic,
        )
        fleet = BridgedFleet(line, changes)
        watches = KarmadaWatches(
            settings.kubeconfig,
            clusters=WatchTarget(replace=fleet.replace, put=fleet.put, remove=fleet.remove),
            bindings=_told(bindings, namespaced=True),
            cluster_bindings=_told(bindings, namespaced=False),
            clock=time.monotonic,
        )

        async def decide() -> None:
            await fleet.ready()
            bindings.serve(fleet)
            logger.info("bridging the bindings of scheduler %s", scheduler)
            await bindings.keep()

        async def look() -> None:
            while may_work():  # noqa: ASYNC110 - a lease runs out by itself
                await asyncio.sleep(LOOK_SECONDS)
            raise Unavailable(f"the lease {settings.lease_name} was lost")

        try:
            await _together(
                watches.follow(), fleet.follow(), fleet.keep(), bindings.follow(), decide(), look()
            )
        finally:
            await channel.close()


def _bindings(
    settings: BridgeSettings, client: Client, calls: tuple[KubeCalls, KubeCalls], may_work: Any
) -> BridgedBindings:
    writes = KarmadaWrites(*calls, settings.scheduler_name, time.time)
    counts = Counts()
    answers = Answers(
        client,
        scheduler=settings.scheduler_name,
        as_karmada=settings.as_karmada,
        unknown=counts.unknown_fields,
    )
    return BridgedBindings(
        client, writes, answers, counts, scheduler=settings.scheduler_name, may_work=may_work
    )


def _told(bindings: BridgedBindings, *, namespaced: bool) -> WatchTarget:
    return WatchTarget(
        replace=lambda listed: bindings.replace(listed, namespaced=namespaced),
        put=bindings.put,
        remove=bindings.remove,
    )


def _identity() -> str:
    return f"{socket.gethostname()}_{os.getpid()}"


async def _together(*works: Coroutine[Any, Any, None]) -> None:
    """Until one ends; the others are ended with it."""
    tasks = [asyncio.create_task(work) for work in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _unless_stopped(
    stopping: asyncio.Event, work: Coroutine[Any, Any, Any], beside: asyncio.Task[None]
) -> None:
    """Until the work ends, or a stop comes; raises what ``beside`` raises."""
    tasks = [asyncio.create_task(work), asyncio.create_task(stopping.wait())]
    try:
        done, _ = await asyncio.wait([*tasks, beside], return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
