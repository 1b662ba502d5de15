"""How the fake is set up for each file of recorded exchanges, and what happens between them.

Must not ask the fake anything: the replay does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from lab.kubeapi.access import Rule, User
from lab.kubeapi.faults import throttled
from lab.kubeapi.resources import BY_KIND, NAMESPACES, NODES, PODS, Document
from lab.kubeapi.server import KubeApiServer
from lab.kubeapi.state import Cluster
from tests.contract.kubeapi.recorded import recorded

SHOP = "shop"
SERVICE_ACCOUNT = "system:serviceaccount:shop"
READER = Rule(
    groups=frozenset({""}),
    resources=frozenset({"pods"}),
    verbs=frozenset({"get", "list"}),
    namespace=SHOP,
)
Step = Callable[[KubeApiServer], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """A cluster, and by exchange: what is done before it, and while its watch is open."""

    cluster: Callable[[], Cluster]
    before: Mapping[str, Step] = field(default_factory=dict)
    during: Mapping[str, Step] = field(default_factory=dict)


def steps(*each: Step) -> Step:
    """One after another."""

    def all_of_them(server: KubeApiServer) -> None:
        for step in each:
            step(server)

    return all_of_them


def at(version: int) -> Step:
    """Kinds that are not kept here were written until this version."""

    def skip(server: KubeApiServer) -> None:
        server.cluster.skip_versions(version - server.cluster.version)

    return skip


def create(name: str, **spec: Any) -> Step:
    """A pod as those that were recorded were made."""
    container = {
        "name": "web",
        "image": "registry.example/web:1",
        "resources": {"requests": {"cpu": "250m", "memory": "256Mi"}},
    }
    document = {
        "metadata": {"name": name, "labels": {"app": "web"}},
        "spec": {
            "containers": [container],
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": False,
            **spec,
        },
    }
    return lambda server: server.writer.create(PODS, SHOP, document)


def bind(name: str, node: str) -> Step:
    binding = {"metadata": {"name": name}, "target": {"name": node}}
    return lambda server: server.writer.bind(SHOP, name, binding)


def phase(name: str, phase_name: str) -> Step:
    patch = {"status": {"phase": phase_name}}
    return lambda server: server.writer.patch(PODS, SHOP, name, patch, part="status")


def delete(name: str, grace_seconds: int | None = None) -> Step:
    options = None if grace_seconds is None else {"gracePeriodSeconds": grace_seconds}
    return lambda server: server.writer.delete(PODS, SHOP, name, options)


def annotate(name: str, text: str) -> Step:
    patch = {"metadata": {"annotations": {"n": text}}}
    return lambda server: server.writer.patch(PODS, SHOP, name, patch)


def patch_node(name: str, patch: Document, part: str = "") -> Step:
    return lambda server: server.writer.patch(NODES, "", name, patch, part=part, strategic=True)


def delete_node(name: str) -> Step:
    return lambda server: server.writer.delete(NODES, "", name)


def hear_of(kind: str) -> Step:
    """Somebody lists this kind: its watch cache learns the newest version."""
    return lambda server: server.cluster.read_consistently(BY_KIND["v1", kind])


def shop(version: int, *, but: frozenset[str] = frozenset(), watch_cache: bool = True) -> Cluster:
    """Nodes and pods as the recorded lists show them, without those named."""
    namespaces = [
        {
            "kind": "Namespace",
            "apiVersion": "v1",
            "metadata": {"name": name, "uid": f"uid-{name}", "resourceVersion": "3"},
        }
        for name in ("default", SHOP)
    ]
    kube_system = recorded("discovery", "cluster-uid")
    listed = [
        {"kind": kind, "apiVersion": "v1", **item}
        for kind, id_ in (
            ("Node", "nodes-unpaged"),
            ("Pod", "pods-page-1-of-3"),
            ("Pod", "pods-page-2-of-3"),
            ("Pod", "pods-page-3-of-3"),
        )
        for item in recorded("list", id_).response["body"]["items"]
        if item["metadata"]["name"] not in but
    ]
    documents = [*namespaces, kube_system.response["body"], *listed]
    cluster = Cluster.of(documents, watch_cache=watch_cache)
    cluster.skip_versions(version - cluster.version)
    return cluster


def five_nodes(version: int) -> Cluster:
    """The shop after worker-6 was deleted and worker-4 cordoned and uncordoned."""
    cluster = shop(253, but=frozenset({"worker-4", "worker-6"}))
    watched = recorded("watchlist", "nodes")
    assert watched.lines is not None
    worker_4 = watched.lines[3]["object"]
    documents = [each for kind in (NAMESPACES, NODES, PODS) for each in cluster.all(kind)]
    changed = Cluster.of([*documents, worker_4])
    changed.skip_versions(version - changed.version)
    return changed


def shop_before_compaction() -> Cluster:
    """21 pods at version 407, watched from 404 on."""
    nodes = recorded("expired", "watchlist-old-version")
    pods = [
        {"kind": "Pod", "apiVersion": "v1", **item}
        for id_ in ("page-1-before-compaction", "inconsistent-continue")
        for item in recorded("expired", id_).response["body"]["items"]
    ]
    known = {each["metadata"]["name"] for each in pods}
    base = shop(253)
    others = [each for each in base.all(PODS) if each["metadata"]["name"] not in known]
    warned = {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {"name": "warned", "namespace": SHOP, "resourceVersion": "326"},
        "spec": {},
        "status": {},
    }
    assert nodes.lines is not None
    listed_nodes = [line["object"] for line in nodes.lines if line["type"] == "ADDED"]
    cluster = Cluster.of([*pods, *others, warned, *listed_nodes])
    cluster.skip_versions(404 - cluster.version)
    cluster.forget_window()
    cluster.read_consistently(NODES)
    cluster.skip_versions(3)
    return cluster


def set_up_errors(server: KubeApiServer) -> None:
    """Who is who, and the object that updates race for."""
    no_rights = User(name=f"{SERVICE_ACCOUNT}:no-rights", rules=())
    reader = User(name=f"{SERVICE_ACCOUNT}:reader", rules=(READER,))
    server.tokens |= {"no-rights": no_rights, "reader": reader}
    at(323)(server)


def make_configmap(server: KubeApiServer) -> None:
    """The ConfigMap whose recorded versions the requests name."""
    uid = recorded("errors", "200-update").request["body"]["metadata"]["uid"]
    document = {"metadata": {"name": "state", "uid": uid}, "data": {"a": "1"}}
    server.writer.create(BY_KIND["v1", "ConfigMap"], SHOP, document)


def throttle(server: KubeApiServer, *, retry_after_seconds: int) -> None:
    server.faults.clear()
    server.faults.add(throttled(retry_after_seconds))


def replay_web_01(server: KubeApiServer) -> None:
    """The changes of web-01 that the recorded watch shows, and four of other kinds."""
    watched = recorded("expired", "watch-compacted-but-in-cache")
    assert watched.lines is not None
    for line in watched.lines:
        metadata = line["object"]["metadata"]
        at(int(metadata["resourceVersion"]) - 1)(server)
        annotate("web-01", metadata["annotations"]["n"])(server)
    server.cluster.compact()


NOT_READY = {"conditions": [{"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}]}


def shop_without_watch_cache(version: int) -> Cluster:
    """Compacted just now, as an etcd with a short memory is."""
    cluster = shop(version, watch_cache=False)
    cluster.compact()
    return cluster


# For the exchanges that were recorded with the watch cache off.
UNCACHED_SCENES: Mapping[str, Scene] = {
    "list": Scene(cluster=partial(shop_without_watch_cache, 729)),
    "watch": Scene(cluster=partial(shop_without_watch_cache, 728)),
    "expired": Scene(cluster=partial(shop_without_watch_cache, 728)),
}
SCENES: Mapping[str, Scene] = {
    "discovery": Scene(cluster=partial(shop, 253)),
    "list": Scene(
        cluster=partial(shop, 253),
        before={
            "rv-not-older-than": steps(
                create("late-01", nodeName="worker-1"), create("late-02", nodeName="worker-2")
            ),
            "continue-keeps-its-version": steps(delete("late-01"), delete("late-02")),
            "future-rv": at(288),
        },
    ),
    "selectors": Scene(cluster=partial(shop, 259)),
    "watch": Scene(
        cluster=partial(shop, 259),
        during={
            "added-modified-deleted-bookmark": steps(
                create("watched"),
                bind("watched", "worker-1"),
                at(262),
                phase("watched", "Running"),
                delete("watched"),
            ),
            "selector-turns-leaving-into-deleted": steps(
                create("finisher", nodeName="worker-1"),
                phase("finisher", "Running"),
                phase("finisher", "Succeeded"),
                delete("finisher"),
                at(271),
            ),
            "selector-turns-arriving-into-added": steps(
                create("binder-test"),
                bind("binder-test", "worker-1"),
                at(274),
                delete("binder-test"),
            ),
            "nodes": steps(
                patch_node("worker-4", {"spec": {"unschedulable": True}}),
                patch_node("worker-4", {"status": NOT_READY}, part="status"),
                delete_node("worker-6"),
                at(281),
                patch_node("worker-4", {"spec": {"unschedulable": None}}),
            ),
            "graceful-deletion": steps(
                create("slow-end", nodeName="worker-1", terminationGracePeriodSeconds=30),
                delete("slow-end"),
                delete("slow-end", grace_seconds=0),
            ),
        },
        before={
            "timeout-bookmark": hear_of("Node"),
            "nodes": at(277),
            "server-shutdown": steps(at(767), hear_of("Pod")),
            "bookmarks-over-80-seconds": steps(at(772), hear_of("Node"), at(780)),
        },
    ),
    "watchlist": Scene(
        cluster=partial(five_nodes, 288),
        before={"empty": at(295), "send-initial-false": at(296)},
        during={
            "pods-then-events": steps(
                at(289),
                create("watched"),
                bind("watched", "worker-1"),
                phase("watched", "Running"),
                delete("watched"),
            ),
        },
    ),
    "expired": Scene(
        cluster=shop_before_compaction,
        before={"continue-after-compaction": replay_web_01},
    ),
    "errors": Scene(
        cluster=partial(shop, 322),
        before={
            "401-bad-token": set_up_errors,
            "200-update": make_configmap,
            "200-update-without-version": at(771),
        },
    ),
    "binding": Scene(
        cluster=partial(shop, 330),
        before={
            "before": steps(*(create(f"b-{number}") for number in range(1, 6))),
            "gated": create("b-gated", schedulingGates=[{"name": "example.com/wait"}]),
            "being-deleted": steps(
                create("b-dying", nodeName="worker-1", terminationGracePeriodSeconds=30),
                delete("b-dying"),
                at(343),
            ),
        },
    ),
    "events": Scene(cluster=partial(shop, 345), before={"events-v1-created": at(369)}),
    "leases": Scene(cluster=partial(shop, 348)),
    "throttled": Scene(
        cluster=partial(shop, 741),
        before={
            "429-list": partial(throttle, retry_after_seconds=2),
            "429-max-inflight": partial(throttle, retry_after_seconds=1),
            "watch-is-exempt": lambda server: server.faults.clear(),
        },
    ),
}
