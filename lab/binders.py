"""Binders at work on an API server that tests own: whole ones, from the watches to the writes.

Must not hold any judgement.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from estimator.binder.binder import Binder
from estimator.binpack.strategy import Strategy
from estimator.estimation.capacity import NodeSet
from estimator.kube.client import KubeClient
from estimator.kube.incoming import incoming_pods
from estimator.kube.informer import Informer, Receiver
from estimator.kube.lease import Election
from estimator.kube.writes import KubeWrites
from estimator.live import LiveSource
from estimator.placement.incoming import SCHEDULER_NAME
from estimator.placement.place import DEFAULT_STRATEGY
from lab.kubeapi.documents import namespace, pod
from lab.kubeapi.resources import EVENTS, PODS, Document
from lab.kubeapi.server import KubeApiServer
from lab.kubeapi.state import Cluster
from lab.patience import PATIENCE_SECONDS

NAMESPACE = "shop"
SECONDS = PATIENCE_SECONDS


def cluster_of(*documents: Document) -> Cluster:
    """A cluster with the namespaces that tests use."""
    cluster = Cluster(version=100)
    for name in ("kube-system", "fedsched", NAMESPACE):
        cluster.put(namespace(name))
    for document in documents:
        cluster.put(document)
    return cluster


def pending(name: str, *, cpu: str = "500m", **changes: object) -> Document:
    """A pod for the binder; changes are fields of its spec."""
    document = pod(name, cpu=cpu)
    document["spec"] |= {"schedulerName": SCHEDULER_NAME, **changes}
    return document


def in_gang(document: Document, group: str, minimum: int) -> Document:
    document["metadata"]["labels"] = {
        "pod-group.scheduling.sigs.k8s.io/name": group,
        "pod-group.scheduling.sigs.k8s.io/min-available": str(minimum),
    }
    return document


@asynccontextmanager
async def binder_at(
    kubeconfig: Path, identity: str = "one", strategy: Strategy = DEFAULT_STRATEGY
) -> AsyncIterator[LiveSource]:
    """A binder that works on this server until the block ends, and the cluster it sees."""

    def uniform(_: float) -> float:
        return 0.0

    client = KubeClient(kubeconfig)
    live = LiveSource(client, NodeSet.SCHEDULABLE, clock=time.time, uniform=uniform)
    writes = KubeWrites(client, namespace="fedsched", clock=time.time)
    binder = Binder(
        live.member,
        writes,
        strategy,
        Election(identity),
        clock=time.time,
        monotonic=time.monotonic,
    )
    receiver = Receiver(replace=binder.replace_pods, put=binder.put_pod, remove=binder.remove_pod)
    pods = Informer(client, incoming_pods(SCHEDULER_NAME), receiver, uniform)
    following = asyncio.create_task(live.follow())
    await live.synced.wait()
    tasks = [asyncio.create_task(work) for work in (pods.run(), binder.run())]
    try:
        yield live
    finally:
        for task in (*tasks, following):
            task.cancel()
        await asyncio.gather(*tasks, following, return_exceptions=True)
        await client.close()


async def until(server: KubeApiServer, holds: Callable[[], bool]) -> None:
    """Wait for a change of the API server's objects after which it is so."""
    loop, changed = asyncio.get_running_loop(), asyncio.Event()

    def wake() -> None:
        loop.call_soon_threadsafe(changed.set)

    unsubscribe = server.cluster.subscribe(wake)
    try:
        async with asyncio.timeout(SECONDS):
            while not holds():
                await changed.wait()
                changed.clear()
    finally:
        unsubscribe()


def nodes_of(server: KubeApiServer) -> dict[str, str]:
    """The node of every bound pod."""
    pods = server.cluster.all(PODS)
    return {
        each["metadata"]["name"]: each["spec"]["nodeName"]
        for each in pods
        if each["spec"].get("nodeName")
    }


def told(server: KubeApiServer, name: str) -> list[str]:
    """What the events at a pod say, in the order in which they were made."""
    events = [each for each in server.cluster.all(EVENTS) if each["involvedObject"]["name"] == name]
    events.sort(key=lambda each: int(each["metadata"]["resourceVersion"]))
    return [each["message"] for each in events]
