"""Small Kubernetes objects for tests that only need them to be there.

Must not hold more fields than the agent reads.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lab.kubeapi.resources import Document


def node(name: str, *, cpu: str = "4", **metadata: Any) -> Document:
    return {
        "kind": "Node",
        "apiVersion": "v1",
        "metadata": {"name": name, "uid": f"uid-{name}", **metadata},
        "spec": {"providerID": "aws:///eu-1a/i-1"},
        "status": {
            "allocatable": {"cpu": cpu, "memory": "8Gi", "pods": "10"},
            "conditions": [{"type": "Ready", "status": "True"}],
            "nodeInfo": {"kubeletVersion": "v1.36.1"},
        },
    }


def pod(name: str, *, on: str = "", phase: str = "Running", cpu: str = "500m") -> Document:
    """A pod of the namespace shop, bound where ``on`` says."""
    spec: Document = {
        "containers": [{"name": "main", "resources": {"requests": {"cpu": cpu}}}],
    }
    if on:
        spec["nodeName"] = on
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {"name": name, "namespace": "shop", "uid": f"uid-{name}"},
        "spec": spec,
        "status": {"phase": phase if on else "Pending"},
    }


def pods(count: int, on: str) -> Iterator[Document]:
    for number in range(count):
        yield pod(f"p{number:04}", on=on, cpu="1m")


def namespace(name: str, uid: str = "") -> Document:
    return {
        "kind": "Namespace",
        "apiVersion": "v1",
        "metadata": {"name": name, "uid": uid or f"uid-{name}"},
    }


def quota(cpu: str, name: str = "q") -> Document:
    """A quota of the namespace shop that nothing is counted against yet."""
    return {
        "kind": "ResourceQuota",
        "apiVersion": "v1",
        "metadata": {"name": name, "namespace": "shop", "uid": f"uid-{name}"},
        "spec": {"hard": {"cpu": cpu}},
    }


def write_kubeconfig(path: Path, url: str, token: str, ca: Path | None = None) -> Path:
    """Write a kubeconfig for a server and return where it is."""
    named = {"name": "it"}
    authority = {"certificate-authority": str(ca)} if ca else {}
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "it",
        "clusters": [{**named, "cluster": {"server": url, **authority}}],
        "users": [{**named, "user": {"token": token}}],
        "contexts": [{**named, "context": {"cluster": "it", "user": "it"}}],
    }
    path.write_text(json.dumps(content), encoding="utf-8")
    return path
