"""API servers that serve Karmada: the fake one, and a real one where KARMADA_ASSETS has it.

The folder that it names has etcd, kube-apiserver (Karmada's own is the same program) and the
CustomResourceDefinitions of Karmada's chart in crds/. Clusters have none there, as Karmada has an
aggregated server for them; they get one of ours. Must not run any of Karmada's controllers.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import yaml

from lab.karmadas import new_karmada_server
from lab.kubeapi.api import TOKEN, Api, Document, RealServer
from lab.patience import PATIENCE_SECONDS
from tests.karmada_api import BINDINGS, CLUSTERS, EXISTS, OK, KarmadaApi

VARIABLE: Final = "KARMADA_ASSETS"
PROGRAMS: Final = ("etcd", "kube-apiserver")
NEEDED: Final = ("resourcebindings", "clusterresourcebindings")
DEFINITIONS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
POLL_SECONDS: Final = 0.1
CLUSTERS_DEFINITION: Final[Document] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "clusters.cluster.karmada.io"},
    "spec": {
        "group": "cluster.karmada.io",
        "scope": "Cluster",
        "names": {
            "kind": "Cluster",
            "listKind": "ClusterList",
            "plural": "clusters",
            "singular": "cluster",
        },
        "versions": [
            {
                "name": "v1alpha1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "x-kubernetes-preserve-unknown-fields": True,
                    }
                },
            }
        ],
    },
}


def lacking(assets: Path) -> str:
    """Why no server can be started from there; "" where it can."""
    if not assets.is_dir():
        return f"{VARIABLE} is {assets}, which is no folder"
    for program in PROGRAMS:
        if not os.access(assets / program, os.X_OK):
            return f"{VARIABLE} is {assets}, where there is no {program} to run"
    defined = {each["spec"]["names"]["plural"] for each in definitions(assets)}
    missing = ", ".join(name for name in NEEDED if name not in defined)
    return f"{VARIABLE} is {assets}, whose crds/ define no {missing}" if missing else ""


def definitions(assets: Path) -> list[Document]:
    """Without the webhooks that convert between versions: nobody would answer for them."""
    found = []
    for path in sorted((assets / "crds").rglob("*.yaml")):
        for document in yaml.safe_load_all(path.read_text(encoding="utf-8")):
            if (document or {}).get("kind") == "CustomResourceDefinition":
                document["spec"].pop("conversion", None)
                found.append(document)
    return found


@contextmanager
def fake_karmada() -> Iterator[KarmadaApi]:
    with new_karmada_server() as server:
        api = KarmadaApi(server.url)
        try:
            yield api
        finally:
            api.close()


@contextmanager
def real_karmada(assets: Path, directory: Path) -> Iterator[KarmadaApi]:
    """Both programs in ``directory``, with all kinds served, until the end of the block."""
    with RealServer(assets, directory) as server:
        _define(Api(server.url, TOKEN, "default", server.ca), definitions(assets))
        api = KarmadaApi(server.url, TOKEN, server.ca)
        try:
            yield api
        finally:
            api.close()


def _define(api: Api, documents: list[Document]) -> None:
    for document in (CLUSTERS_DEFINITION, *documents):
        answer = api.post(DEFINITIONS, document)
        assert answer.status in (*OK, EXISTS), answer.body
    deadline = time.monotonic() + PATIENCE_SECONDS
    for path in (CLUSTERS, BINDINGS):
        while (answer := api.get(path)).status not in OK:
            assert time.monotonic() < deadline, answer.body
            time.sleep(POLL_SECONDS)
    api.close()
