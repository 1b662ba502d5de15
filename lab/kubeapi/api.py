"""A Kubernetes API as the contract asks it, whoever answers.

Must not know which server it talks to.
"""

from __future__ import annotations

import itertools
import json
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

import urllib3

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
