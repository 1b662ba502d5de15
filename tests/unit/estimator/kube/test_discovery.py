"""Discovery against API servers of both kinds; the answers are shaped as the API's own types."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from estimator.kube.client import KubeClient
from estimator.kube.discovery import AGGREGATED, served_apis
from federation.model.errors import Unavailable

Documents = Mapping[str, Any]


def aggregated(groups: Mapping[str, Mapping[str, list[str]]]) -> Documents:
    """Kinds by version by group, as aggregated discovery writes them."""
    return {
        "kind": AGGREGATED,
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": [
            {
                "metadata": {"name": group, "creationTimestamp": None} if group else {},
                "versions": [
                    {
                        "version": version,
                        "freshness": "Current",
                        "resources": [
                            {
                                "resource": f"{kind.lower()}s",
                                "responseKind": {"group": group, "version": version, "kind": kind},
                                "scope": "Namespaced",
                                "verbs": ["get", "list"],
                                "subresources": [
                                    {"subresource": "status", "responseKind": {"kind": kind}}
                                ],
                            }
                            for kind in kinds
                        ],
                    }
                    for version, kinds in versions.items()
                ],
            }
            for group, versions in groups.items()
        ],
    }


def listed(group_version: str, *kinds: str) -> Documents:
    resources = [{"name": f"{kind.lower()}s", "kind": kind} for kind in kinds]
    return {
        "kind": "APIResourceList",
        "groupVersion": group_version,
        "resources": [*resources, {"name": "pods/eviction", "kind": "Eviction"}],
    }


MODERN: Documents = {
    "/api": aggregated({"": {"v1": ["Pod", "Service"]}}),
    "/apis": aggregated({"apps": {"v1": ["Deployment"]}, "stale.example.com": {"v1": []}}),
}
OLD: Documents = {
    "/api": {"kind": "APIVersions", "versions": ["v1"]},
    "/api/v1": listed("v1", "Pod", "Service"),
    "/apis": {
        "kind": "APIGroupList",
        "groups": [
            {"name": "apps", "versions": [{"groupVersion": "apps/v1", "version": "v1"}]},
            {"name": "metrics.k8s.io", "versions": [{"groupVersion": "m/v1", "version": "v1"}]},
        ],
    },
    "/apis/apps/v1": listed("apps/v1", "Deployment"),
}
SERVED = {("v1", "Pod"), ("v1", "Service"), ("apps/v1", "Deployment")}


@contextmanager
def serving(documents: Documents, tmp_path: Path) -> Iterator[tuple[Path, list[str]]]:
    """A server of these paths and 503 for others; its kubeconfig and the Accepts it was sent."""
    accepted: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            accepted.append(self.headers["Accept"])
            document = documents.get(self.path.rstrip("/"))
            content = json.dumps(document).encode()
            self.send_response(200 if document else 503)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002 - its name
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    named = {"name": "fake"}
    url = f"http://127.0.0.1:{server.server_port}"
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(
        json.dumps(
            {
                "current-context": "fake",
                "clusters": [{**named, "cluster": {"server": url}}],
                "users": [{**named, "user": {"token": "t"}}],
                "contexts": [{**named, "context": {"cluster": "fake", "user": "fake"}}],
            }
        )
    )
    try:
        yield kubeconfig, accepted
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


async def served(kubeconfig: Path) -> frozenset[tuple[str, str]]:
    async with KubeClient(kubeconfig) as client:
        return await served_apis(client)


async def test_an_aggregating_server_is_asked_twice(tmp_path: Path) -> None:
    with serving(MODERN, tmp_path) as (kubeconfig, accepted):
        assert await served(kubeconfig) == SERVED
    assert len(accepted) == 2
    assert all("apidiscovery.k8s.io;v=v2;" in accept for accept in accepted)
    assert all(accept.endswith(",application/json") for accept in accepted)


async def test_an_older_server_is_asked_group_by_group_and_one_that_is_down_is_left_out(
    tmp_path: Path,
) -> None:
    with serving(OLD, tmp_path) as (kubeconfig, accepted):
        assert await served(kubeconfig) == SERVED
    assert len(accepted) == 5


@pytest.mark.parametrize("missing", ["/api", "/apis"])
async def test_a_server_that_cannot_tell_is_not_one_without_apis(
    tmp_path: Path, missing: str
) -> None:
    documents = {path: document for path, document in MODERN.items() if path != missing}
    with (
        serving(documents, tmp_path) as (kubeconfig, _),
        pytest.raises(Unavailable, match="503"),
    ):
        await served(kubeconfig)


async def test_an_answer_that_is_none_is_told(tmp_path: Path) -> None:
    with (
        serving({"/api": ["garbled"]}, tmp_path) as (kubeconfig, _),
        pytest.raises(Unavailable, match="answer cannot be read"),
    ):
        await served(kubeconfig)
