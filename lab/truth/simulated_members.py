"""A member on the fake API server, with the simulated kube-scheduler on a thread of its own.

Must not decide anything: pods are made and bound as others say.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Self

import msgspec
import numpy as np

from estimator.kube.dump import read_dump
from estimator.placing.incoming import IncomingPod
from lab.kubeapi.resources import NODES, PODS, Document
from lab.kubeapi.server import KubeApiServer
from lab.kubeapi.state import Change, Cluster
from lab.kubeapi.statuses import Refused
from lab.truth.extender_client import HttpExtender
from lab.truth.kube_scheduler import BindRefused, KubeScheduler
from lab.truth.members import Node, documents_of
from lab.truth.timeline import Timeline

STOCK_SCHEDULER = "default-scheduler"
FOREVER_SECONDS = 1e6


class SimulatedMember:
    """Its API server, and the scheduler of its pods once that is started."""

    def __init__(self, nodes: Iterable[Node]) -> None:
        self._cluster = Cluster(version=100)
        for document in documents_of(nodes):
            self._cluster.put(document)
        self._server = KubeApiServer(self._cluster)
        self._running = ExitStack()

    def __enter__(self) -> Self:
        self._running.enter_context(self._server)
        return self

    def __exit__(self, *_: object) -> None:
        self._running.close()

    def kubeconfig(self, path: Path) -> Path:
        return self._server.kubeconfig(path)

    def start_scheduler(self, seed: int, extender_url: str = "") -> None:
        self._running.enter_context(_Scheduler(self._server, seed, extender_url))

    def create(self, pod: Document) -> None:
        self._server.writer.create(PODS, pod["metadata"]["namespace"], pod)

    def delete(self, pod: Document) -> None:
        metadata = pod["metadata"]
        now = {"gracePeriodSeconds": 0}
        self._server.writer.delete(PODS, metadata["namespace"], metadata["name"], now)

    def nodes_of_pods(self) -> dict[str, str]:
        """By name of the pod, empty where it has none."""
        return {
            pod["metadata"]["name"]: pod["spec"].get("nodeName", "")
            for pod in self._cluster.all(PODS)
        }


class _Scheduler:
    """kube-scheduler beside a fake API server, until the block ends."""

    def __init__(self, server: KubeApiServer, seed: int, extender_url: str) -> None:
        self._server = server
        self._timeline = Timeline(real=True)
        self._extender = HttpExtender(extender_url) if extender_url else None
        self._version = 0
        self._scheduler = KubeScheduler(
            nodes=(),
            timeline=self._timeline,
            bind=self._bind,
            random=np.random.default_rng(seed),
            extender=self._extender,
        )
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kube-scheduler")

    def __enter__(self) -> Self:
        self._unsubscribe = self._server.cluster.subscribe(self._wake)
        self._wake()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._unsubscribe()
        self._ended.set()
        self._wake()
        self._thread.join()
        if self._extender is not None:
            self._extender.close()

    def _run(self) -> None:
        self._timeline.run(FOREVER_SECONDS, idle=self._ended.is_set)

    def _wake(self) -> None:
        self._timeline.post(self._catch_up)

    def _catch_up(self) -> None:
        changes = self._server.cluster.changes_after(self._version)
        if not changes:
            return
        self._version = changes[-1].version
        if any(change.resource is NODES for change in changes):
            nodes = self._server.cluster.all(NODES)
            content = msgspec.json.encode({"kind": "List", "apiVersion": "v1", "items": nodes})
            self._scheduler.put_nodes(read_dump(content).nodes)
        for change in changes:
            if change.resource is PODS:
                self._take(change)

    def _take(self, change: Change) -> None:
        if change.after is None:
            assert change.before is not None
            self._scheduler.remove_pod(change.before["metadata"]["uid"])
            return
        spec = change.after["spec"]
        if spec.get("nodeName") or spec.get("schedulerName") == STOCK_SCHEDULER:
            self._scheduler.put_pod(change.after)

    def _bind(self, pod: IncomingPod, node: str) -> None:
        order = {
            "metadata": {"name": pod.name, "uid": pod.uid},
            "target": {"kind": "Node", "name": node},
        }
        try:
            self._server.writer.bind(pod.namespace, pod.name, order)
        except Refused as refused:
            raise BindRefused(refused.status["message"]) from refused
