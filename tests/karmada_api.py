"""Karmada's API as its users reach it: over HTTP, whoever serves it.

Must not look into a server, nor decide anything.
"""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any, Final

from lab.karmadas import namespace
from lab.kubeapi.api import Answer, Api
from lab.kubeapi.resources import BY_KIND, Document, Resource
from lab.kubeapi.server import ADMIN_TOKEN

OK: Final = (200, 201)
EXISTS: Final = 409
NAMESPACES: Final = ("default", "fedsched", "karmada-system")
BINDINGS: Final = "/apis/work.karmada.io/v1alpha2/namespaces/default/resourcebindings"
CLUSTERS: Final = "/apis/cluster.karmada.io/v1alpha1/clusters"
# What the server gives, whoever else says something.
_GIVEN: Final = ("uid", "generation", "resourceVersion")


class KarmadaApi:
    """Asked by one who may do everything."""

    def __init__(self, url: str, token: str = ADMIN_TOKEN, ca: Path | None = None) -> None:
        self.url, self._token, self._ca = url, token, ca
        self._api = Api(url, token, "default", ca)
        for name in NAMESPACES:
            answer = self._api.post("/api/v1/namespaces", namespace(name))
            assert answer.status in (*OK, EXISTS), answer.body

    def close(self) -> None:
        self._api.close()

    def create(self, *documents: Document) -> None:
        """Each with its status, which takes a second request."""
        for document in documents:
            made = copy.deepcopy(document)
            for name in _GIVEN:
                made["metadata"].pop(name, None)
            status = made.pop("status", None)
            resource = BY_KIND[made["apiVersion"], made["kind"]]
            folder = _folder(resource, made["metadata"].get("namespace", ""))
            _done(self._api.post(folder, made))
            if status:
                path = f"{folder}/{made['metadata']['name']}/status"
                _done(self._api.patch(path, {"status": status}))

    def binding(self, name: str) -> Document:
        return _done(self._api.get(f"{BINDINGS}/{name}"))

    def bindings(self) -> dict[str, Document]:
        """All of the namespace default, by name."""
        listed = _done(self._api.get(BINDINGS))["items"]
        return {each["metadata"]["name"]: each for each in listed}

    def edit(self, name: str, *, status: Document | None = None, **patch: Any) -> None:
        """A merge patch of a binding, or of its status."""
        path = f"{BINDINGS}/{name}"
        if status is not None:
            _done(self._api.patch(f"{path}/status", {"status": status}))
        if patch:
            _done(self._api.patch(path, patch))

    def edit_cluster(self, name: str, *, status: Document | None = None, **patch: Any) -> None:
        path = f"{CLUSTERS}/{name}"
        if status is not None:
            _done(self._api.patch(f"{path}/status", {"status": status}))
        if patch:
            _done(self._api.patch(path, patch))

    def remove_cluster(self, name: str) -> None:
        _done(self._api.delete(f"{CLUSTERS}/{name}"))

    def leases(self, namespace: str) -> list[str]:
        path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        return [each["metadata"]["name"] for each in _done(self._api.get(path))["items"]]

    def kubeconfig(self, path: Path) -> Path:
        """Write a kubeconfig for this server and return where it is."""
        named = {"name": "karmada"}
        cluster = {"server": self.url}
        if self._ca is not None:
            cluster["certificate-authority"] = str(self._ca)
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "karmada",
            "clusters": [{**named, "cluster": cluster}],
            "users": [{**named, "user": {"token": self._token}}],
            "contexts": [{**named, "context": {"cluster": "karmada", "user": "karmada"}}],
        }
        path.write_text(json.dumps(content), encoding="utf-8")
        return path


def _folder(resource: Resource, namespace: str) -> str:
    root = f"/apis/{resource.api_version}" if resource.group else f"/api/{resource.version}"
    where = f"/namespaces/{namespace}" if namespace else ""
    return f"{root}{where}/{resource.plural}"


def _done(answer: Answer) -> Document:
    assert answer.status in OK, answer.body
    body: Document = answer.body
    return body
