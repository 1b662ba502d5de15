"""Kubernetes of a study's members, real or simulated, and the agents that speak for them.

A real API server and kube-scheduler are taken where KUBEBUILDER_ASSETS has them. Must not decide
anything: pods are made and bound as others say.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Final, Self

import msgspec
import numpy as np

from estimator.kube.dump import read_dump
from estimator.placement.incoming import IncomingPod
from federation.runtime.log_errors import errors_in
from lab.agents import ROOT
from lab.kubeapi.api import TOKEN, Api, RealServer
from lab.kubeapi.documents import write_kubeconfig
from lab.kubeapi.resources import NODES, PODS, Document
from lab.kubeapi.server import KubeApiServer
from lab.kubeapi.state import Change, Cluster
from lab.kubeapi.statuses import Refused
from lab.patience import PATIENCE_SECONDS
from lab.truth.kube_scheduler import BindRefused, HttpExtender, KubeScheduler, Timeline
from lab.truth.streams import NAMESPACE, Node, documents_of

STOCK_SCHEDULER = "default-scheduler"
FOREVER_SECONDS = 1e6


class AgentProcess:
    """An ``estimator run``, as long as the block lasts; ``kills`` counts how often it died."""

    def __init__(self, arguments: tuple[str, ...], log: Path) -> None:
        self.kills = 0
        self._arguments = arguments
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end(signal.SIGTERM)

    def start(self) -> None:
        environment = {k: v for k, v in os.environ.items() if not k.startswith("ESTIMATOR_")}
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "estimator", "run", *self._arguments],
                cwd=ROOT,
                env=environment,
                stdout=subprocess.DEVNULL,
                stderr=log,
            )

    def restart(self) -> None:
        """As after ``kill -9``."""
        self.kills += 1
        self._end(signal.SIGKILL)
        self.start()

    def unexpected(self) -> str:
        """Return the errors in its log."""
        return "\n".join(errors_in(self._log.read_text(encoding="utf-8", errors="replace")))

    def _end(self, number: signal.Signals) -> None:
        if self._process is None:
            return
        self._process.send_signal(number)
        try:
            self._process.wait(PATIENCE_SECONDS)
        finally:
            self._process.kill()
            self._process.wait()
            self._process = None


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


VARIABLE: Final = "KUBEBUILDER_ASSETS"
PROGRAMS: Final = ("etcd", "kube-apiserver", "kube-scheduler")
CREATED, EXISTS = 201, 409


def programs_there() -> Path | None:
    """The folder with all programs that are needed, None where one is missing."""
    folder = Path(os.environ.get(VARIABLE, ""))
    found = all(os.access(folder / program, os.X_OK) for program in PROGRAMS)
    return folder if os.environ.get(VARIABLE) and found else None


class ApiMember:
    """A member that is read and written by its API alone."""

    def __init__(self, url: str, token: str, ca: Path | None = None) -> None:
        self._url, self._token, self._ca = url, token, ca
        self._api = Api(url, token, NAMESPACE, ca)

    def close(self) -> None:
        self._api.close()

    def fill(self, nodes: Iterable[Node]) -> None:
        """Nodes, and the pods that run there from the beginning."""
        version = self._api.get("/version").body["gitVersion"]
        for document in documents_of(nodes):
            if document["kind"] == "Node":
                # Agents tell releases by kubelets, and schedulers of several score differently.
                document["status"]["nodeInfo"]["kubeletVersion"] = version
            namespace = document["metadata"].get("namespace", "")
            kind = f"{document['kind'].lower()}s"
            path = f"/api/v1/namespaces/{namespace}/{kind}" if namespace else f"/api/v1/{kind}"
            answer = self._api.post(path, _without_uid(document))
            assert answer.status in (CREATED, EXISTS), answer.body
            if kind == "nodes":
                # Admission taints new nodes as not ready, and no controller is there to end that.
                taints = {"spec": {"taints": document["spec"].get("taints", [])}}
                self._api.patch(f"{path}/{document['metadata']['name']}", taints)

    def create(self, pod: Document) -> None:
        answer = self._api.post(self._pods(pod), _without_uid(pod))
        assert answer.status == CREATED, answer.body

    def delete(self, pod: Document) -> None:
        now = {"gracePeriodSeconds": 0}
        self._api.delete(f"{self._pods(pod)}/{pod['metadata']['name']}", now)

    def nodes_of_pods(self) -> dict[str, str]:
        """By name of the pod, empty where it has none."""
        pods = self._api.get("/api/v1/pods").body["items"]
        return {pod["metadata"]["name"]: pod["spec"].get("nodeName", "") for pod in pods}

    def kubeconfig(self, path: Path) -> Path:
        return write_kubeconfig(path, self._url, self._token, self._ca)

    def _pods(self, pod: Document) -> str:
        return f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods"


class RealMember(ApiMember):
    """Its API server and, once started, its kube-scheduler, as long as the block lasts."""

    def __init__(self, programs: Path, directory: Path, nodes: Iterable[Node]) -> None:
        directory.mkdir()
        self._programs, self._directory, self._nodes = programs, directory, nodes
        self._server = RealServer(programs, directory)
        self._running = ExitStack()
        super().__init__(self._server.url, TOKEN, self._server.ca)

    def __enter__(self) -> Self:
        self._running.enter_context(self._server)
        self._running.callback(self.close)
        self.fill(self._nodes)
        return self

    def __exit__(self, *_: object) -> None:
        self._running.close()

    def start_scheduler(self, seed: int, extender_url: str = "") -> None:
        del seed
        kubeconfig = self.kubeconfig(self._directory / "scheduler.kubeconfig")
        configuration = self._directory / "scheduler.json"
        configuration.write_text(json.dumps(_configuration(kubeconfig, extender_url)))
        with (self._directory / "kube-scheduler.log").open("wb") as log:
            process = subprocess.Popen(
                [
                    str(self._programs / "kube-scheduler"),
                    f"--config={configuration}",
                    "--secure-port=0",
                ],
                stdout=log,
                stderr=log,
            )
        self._running.callback(_end, process)


def _configuration(kubeconfig: Path, extender_url: str) -> Document:
    extender = {
        "urlPrefix": extender_url,
        "filterVerb": "filter",
        "prioritizeVerb": "prioritize",
        "weight": 1,
        "nodeCacheCapable": True,
        "httpTimeout": "5s",
    }
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": str(kubeconfig)},
        "leaderElection": {"leaderElect": False},
        "extenders": [extender] if extender_url else [],
    }


def _without_uid(document: Document) -> Document:
    metadata = {key: value for key, value in document["metadata"].items() if key != "uid"}
    return {**document, "metadata": metadata}


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(PATIENCE_SECONDS)
    finally:
        process.kill()
        process.wait()
