"""A member on a real API server with a real kube-scheduler, where KUBEBUILDER_ASSETS has them.

Must not know how pods are decided on. Everything but starting programs goes by any API server.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Final, Self

from lab.kubeapi.api import Api, Document
from lab.kubeapi.real_server import TOKEN, RealServer
from lab.patience import PATIENCE_SECONDS
from lab.truth.members import NAMESPACE, Node, documents_of

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
        named = {"name": "member"}
        cluster = {"server": self._url}
        if self._ca is not None:
            cluster["certificate-authority"] = str(self._ca)
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "member",
            "clusters": [{**named, "cluster": cluster}],
            "users": [{**named, "user": {"token": self._token}}],
            "contexts": [{**named, "context": {"cluster": "member", "user": "member"}}],
        }
        path.write_text(json.dumps(content), encoding="utf-8")
        return path

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
