"""A real API server of envtest's programs, and a client of any API server.

Must not know the fake one.
"""

from __future__ import annotations

import itertools
import json
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import urlencode

import urllib3
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from federation.certificates import make_certificates
from lab.patience import PATIENCE_SECONDS

Document = dict[str, Any]
READ_SECONDS: Final = PATIENCE_SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A status and a body: a document, or text where it is not JSON."""

    status: int
    body: Any
    headers: urllib3.HTTPHeaderDict

    @property
    def version(self) -> str:
        version: str = self.body["metadata"]["resourceVersion"]
        return version

    @property
    def names(self) -> list[str]:
        return [item["metadata"]["name"] for item in self.body["items"]]


class Api:
    """Requests with a token, in a namespace of its own."""

    def __init__(self, url: str, token: str | None, namespace: str, ca: Path | None = None) -> None:
        """``ca`` issued the certificate of a server with TLS."""
        self._url = url
        self._token = token
        self._ca = ca
        self._http = urllib3.PoolManager(
            maxsize=4, retries=False, timeout=READ_SECONDS, ca_certs=None if ca is None else str(ca)
        )
        self.namespace = namespace
        self.pods = f"/api/v1/namespaces/{namespace}/pods"
        self.leases = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"

    @classmethod
    def in_new_namespace(cls, url: str, token: str, ca: Path | None = None) -> Api:
        api = cls(url, token, f"contract-{uuid.uuid4().hex[:8]}", ca)
        made = api.post("/api/v1/namespaces", {"metadata": {"name": api.namespace}})
        assert made.status == 201
        return api

    def like_this(self, token: str | None) -> Api:
        """The same server and namespace, asked by somebody else."""
        return Api(self._url, token, self.namespace, self._ca)

    def close(self) -> None:
        self._http.clear()

    def get(self, path: str, accept: str = "application/json", **query: str) -> Answer:
        return self._ask("GET", path, accept=accept, query=query)

    def post(self, path: str, body: Document, **query: str) -> Answer:
        return self._ask("POST", path, body=body, query=query)

    def put(self, path: str, body: Document) -> Answer:
        return self._ask("PUT", path, body=body)

    def patch(self, path: str, body: Document, kind: str = "merge") -> Answer:
        content_type = f"application/{kind}-patch+json"
        return self._ask("PATCH", path, body=body, content_type=content_type)

    def delete(self, path: str, body: Document | None = None) -> Answer:
        return self._ask("DELETE", path, body=body)

    def watch(self, path: str, *, seconds: int, **query: str) -> Iterator[Document]:
        """The events of a watch, to its end."""
        response = self._open("GET", path, {"watch": "1", "timeoutSeconds": str(seconds), **query})
        assert response.status == 200
        try:
            rest = b""
            for part in response.stream(65_536):
                *lines, rest = (rest + part).split(b"\n")
                yield from map(json.loads, lines)
            assert rest == b""
        finally:
            response.close()

    def events(self, path: str, count: int, **query: str) -> list[Document]:
        """The first so many events of a watch."""
        watch = self.watch(path, seconds=20, **query)
        try:
            return list(itertools.islice(watch, count))
        finally:
            watch.close()

    def _ask(
        self,
        method: str,
        path: str,
        *,
        body: Document | None = None,
        accept: str = "application/json",
        content_type: str = "application/json",
        query: dict[str, str] | None = None,
    ) -> Answer:
        headers = {"Accept": accept}
        if body is not None:
            headers["Content-Type"] = content_type
        response = self._open(method, path, query or {}, body, headers)
        text = response.read().decode()
        response.release_conn()
        is_json = response.headers["Content-Type"] == "application/json"
        return Answer(
            status=response.status,
            body=json.loads(text) if is_json else text,
            headers=response.headers,
        )

    def _open(
        self,
        method: str,
        path: str,
        query: dict[str, str],
        body: Document | None = None,
        headers: dict[str, str] | None = None,
    ) -> urllib3.BaseHTTPResponse:
        # "continue" is a word of Python's.
        pairs = {key.rstrip("_"): value for key, value in query.items()}
        bearer = {"Authorization": f"Bearer {self._token}"} if self._token is not None else {}
        url = f"{self._url}{path}?{urlencode(pairs)}"
        return self._http.request(
            method,
            url,
            body=None if body is None else json.dumps(body),
            headers={**bearer, **(headers or {})},
            preload_content=False,
        )


def pod(name: str, *, node: str = "", grace_seconds: int = 0, **labels: str) -> Document:
    """A pod that any API server takes."""
    spec: Document = {
        "containers": [
            {
                "name": "main",
                "image": "registry.example/web:1",
                "resources": {"requests": {"cpu": "100m"}},
            }
        ],
        "terminationGracePeriodSeconds": grace_seconds,
    }
    if node:
        spec["nodeName"] = node
    return {"metadata": {"name": name, "labels": labels}, "spec": spec}


def binding(name: str, node: str, **metadata: str) -> Document:
    return {"metadata": {"name": name, **metadata}, "target": {"kind": "Node", "name": node}}


TOKEN: Final = "contract-admin"
START_SECONDS: Final = 60.0
STOP_SECONDS: Final = 15.0
POLL_SECONDS: Final = 0.2


class RealServer:
    """Starts both programs in ``directory``; their output is in files beside their data."""

    def __init__(self, programs: Path, directory: Path) -> None:
        self._programs = programs
        self._directory = directory
        self._running: list[subprocess.Popen[bytes]] = []
        self._reserved = [_reserved() for _ in range(3)]
        self._port, *self._etcd_ports = (each.getsockname()[1] for each in self._reserved)
        self.url = f"https://127.0.0.1:{self._port}"
        self._tls = make_certificates(directory / "tls", ["127.0.0.1"])
        self.ca = self._tls.ca

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def _start(self) -> None:
        client, peer = (f"http://127.0.0.1:{port}" for port in self._etcd_ports)
        self._run(
            "etcd",
            f"--data-dir={self._directory / 'etcd'}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            "--unsafe-no-fsync=true",
        )
        key = self._directory / "service-account.key"
        key.write_bytes(_private_key())
        tokens = self._directory / "tokens.csv"
        tokens.write_text(f"{TOKEN},contract,contract,system:masters\n", encoding="utf-8")
        arguments = (
            f"--etcd-servers={client}",
            "--bind-address=127.0.0.1",
            f"--secure-port={self._port}",
            f"--tls-cert-file={self._tls.cert}",
            f"--tls-private-key-file={self._tls.key}",
            f"--cert-dir={self._directory / 'certificates'}",
            "--authorization-mode=RBAC",
            f"--token-auth-file={tokens}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}",
            "--service-cluster-ip-range=10.0.0.0/24",
            # No controller makes the default accounts that pods would need.
            "--disable-admission-plugins=ServiceAccount",
        )
        self._run("kube-apiserver", *arguments)
        self._wait_until_ready()
        # Started anew, its watch cache knows nothing of the first versions, as after an upgrade.
        _end(self._running.pop())
        self._run("kube-apiserver", *arguments)
        self._wait_until_ready()

    def _run(self, program: str, *arguments: str) -> None:
        log = self._directory / f"{program}.log"
        with log.open("wb") as output:
            command = [str(self._programs / program), *arguments]
            self._running.append(subprocess.Popen(command, stdout=output, stderr=output))

    def _wait_until_ready(self) -> None:
        trusting = ssl.create_default_context(cafile=str(self.ca))
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            for process in self._running:
                if process.poll() is not None:
                    raise RuntimeError(f"{process.args!r} ended; see {self._directory}")
            try:
                with urllib.request.urlopen(f"{self.url}/readyz", context=trusting):
                    return
            except (urllib.error.URLError, OSError):
                time.sleep(POLL_SECONDS)
        raise TimeoutError(f"kube-apiserver is not ready; see {self._directory}")

    def _stop(self) -> None:
        while self._running:
            _end(self._running.pop())
        for each in self._reserved:
            each.close()


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _private_key() -> bytes:
    return rsa.generate_private_key(public_exponent=65_537, key_size=2_048).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )


def _reserved() -> socket.socket:
    """A port that nobody else is given; a program that is told of it may listen there."""
    reserved = socket.socket()
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    reserved.bind(("127.0.0.1", 0))
    return reserved
