"""Kubernetes nodes and pods from files, as the scorer takes them.

Must not score, nor choose between nodes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from estimator.binpack.node_scores import NodeWithPods
from federation.codec.documents import Document
from federation.codec.pods import object_at, quantities_at, resources_of_pod
from federation.codec.violations import Violations
from federation.model.pod_request import PodResources

_OVER: Final = frozenset({"Succeeded", "Failed"})
_DEFAULT_SCHEDULER: Final = "default-scheduler"


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingPod:
    """The pod that has no node yet. ``name`` is namespace/name."""

    name: str
    scheduler_name: str
    resources: PodResources


@dataclass(slots=True, kw_only=True)
class _Objects:
    allocatable: dict[str, dict[str, str]] = field(default_factory=dict)
    placed: defaultdict[str, list[PodResources]] = field(default_factory=lambda: defaultdict(list))
    pending: list[PendingPod] = field(default_factory=list)


def nodes_and_pod(
    documents: Iterable[Document], pod_name: str | None
) -> tuple[tuple[NodeWithPods, ...], PendingPod]:
    """The nodes in the order given, with the pods bound to them, and the pod to score.

    ``pod_name`` (name or namespace/name) says which, where several have no node. Pods that have
    ended, and pods of nodes that are not given, count nowhere. Raises InvalidRequest with all
    violations.
    """
    found = Violations()
    objects = _Objects()
    for position, document in enumerate(documents, start=1):
        _sort(document, position, objects, found)
    if not objects.allocatable:
        found.add("files", "hold no Node")
    incoming = _chosen(objects.pending, pod_name, found)
    found.check()
    nodes = tuple(
        NodeWithPods(name=name, allocatable=allocatable, pods=tuple(objects.placed[name]))
        for name, allocatable in objects.allocatable.items()
    )
    return nodes, incoming


def _sort(document: Document, position: int, objects: _Objects, found: Violations) -> None:
    kind, version = document.get("kind"), document.get("apiVersion", "v1")
    metadata = object_at(document.get("metadata"), f"document {position}.metadata", found)
    name = str(metadata.get("name") or "")
    path = f"{kind}/{name}" if name else f"document {position}"
    if kind not in ("Node", "Pod", "Namespace") or version != "v1":
        found.add(path, f"must be a v1 Node or Pod, not {version} {kind}")
    elif not name:
        found.add(f"{path}.metadata.name", "is required")
    elif kind == "Node":
        if name in objects.allocatable:
            found.add(path, "is there twice")
        status = object_at(document.get("status"), f"{path}.status", found)
        here = f"{path}.status.allocatable"
        objects.allocatable[name] = quantities_at(status.get("allocatable"), here, found)
    elif kind == "Pod":
        shown = f"{metadata.get('namespace') or 'default'}/{name}"
        _sort_pod(document, shown, objects, found)


def _sort_pod(document: Document, name: str, objects: _Objects, found: Violations) -> None:
    path = f"Pod/{name}"
    spec = object_at(document.get("spec"), f"{path}.spec", found)
    status = object_at(document.get("status"), f"{path}.status", found)
    if status.get("phase") in _OVER:
        return
    resources = resources_of_pod(spec, f"{path}.spec", found)
    node = spec.get("nodeName")
    if node:
        objects.placed[str(node)].append(resources)
        return
    scheduler_name = str(spec.get("schedulerName") or _DEFAULT_SCHEDULER)
    pod = PendingPod(name=name, scheduler_name=scheduler_name, resources=resources)
    objects.pending.append(pod)


def _chosen(pending: list[PendingPod], name: str | None, found: Violations) -> PendingPod:
    nobody = PendingPod(name="", scheduler_name="", resources=PodResources())
    named = [pod for pod in pending if name is None or name in (pod.name, _short(pod.name))]
    if len(named) == 1:
        return named[0]
    which = "" if name is None else f" called {name}"
    if named:
        names = ", ".join(sorted(pod.name for pod in named))
        found.add("--pod", f"is needed: several pods{which} have no spec.nodeName ({names})")
    else:
        found.add("files", f"hold no Pod{which} without spec.nodeName, which is the one to score")
    return nobody


def _short(name: str) -> str:
    return name.partition("/")[2]
