from __future__ import annotations

from typing import Any

import msgspec
import pytest

from estimator.kube.objects import RawNode, RawPod
from estimator.kube.translate import Untranslatable, node_from_raw, pod_from_raw
from estimator.nodes import Node, Pod, PodState
from federation.model.resources import CPU, MEMORY, PODS
from lab.kubeapi.documents import node as raw_node
from lab.kubeapi.documents import pod as raw_pod

GPU = "nvidia.com/gpu"


def node(**changes: Any) -> Node:
    """A node with parts of its spec or status replaced."""
    document = raw_node("a")
    for part in ("spec", "status"):
        document[part] |= changes.get(part, {})
    return node_from_raw(msgspec.convert(document, RawNode))


def pod(spec: dict[str, Any], phase: str = "Running", **status: Any) -> Pod:
    document = raw_pod("p")
    document["spec"] = {"nodeName": "a", **spec}
    document["status"] = {"phase": phase, **status}
    return pod_from_raw(msgspec.convert(document, RawPod))


def container(requests: dict[str, str] | None, **more: Any) -> dict[str, Any]:
    return {"name": "main", "resources": {"requests": requests}, **more}


def ready(status: str) -> dict[str, Any]:
    return {"conditions": [{"type": "MemoryPressure", "status": "False"},
                           {"type": "Ready", "status": status}]}  # fmt: skip


def taint_keys(found: Node) -> list[str]:
    return [taint.key.removeprefix("node.kubernetes.io/") for taint in found.taints]


def test_allocatable_is_rounded_down() -> None:
    found = node(status={"allocatable": {"cpu": "1930500u", "memory": "1500m", "pods": "11"}})
    assert found.allocatable == {CPU: 1930, MEMORY: 1, PODS: 11}


@pytest.mark.parametrize(
    ("status", "is_ready", "taints"),
    [("True", True, []), ("False", False, ["not-ready"]), ("Unknown", False, ["unreachable"])],
)
def test_an_unready_node_counts_as_tainted(status: str, is_ready: bool, taints: list[str]) -> None:
    found = node(status=ready(status))
    assert (found.ready, taint_keys(found)) == (is_ready, taints)


def test_a_node_that_has_not_reported_is_not_ready() -> None:
    found = node(status={"conditions": None})
    assert (found.ready, taint_keys(found)) == (False, ["not-ready"])


def test_a_cordoned_node_counts_as_tainted_once() -> None:
    found = node(spec={"unschedulable": True})
    assert (found.unschedulable, taint_keys(found)) == (True, ["unschedulable"])
    written = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    found = node(spec={"unschedulable": True, "taints": [written]})
    assert taint_keys(found) == ["unschedulable"]


@pytest.mark.parametrize(
    ("on", "phase", "state"),
    [
        ("a", "Running", PodState.BOUND),
        ("a", "Pending", PodState.BOUND),
        ("a", "Unknown", PodState.BOUND),
        ("a", "Succeeded", PodState.SUCCEEDED),
        ("a", "Failed", PodState.DONE),
        ("", "Pending", PodState.WAITING),
        ("", "", PodState.WAITING),
        ("", "Failed", PodState.DROPPED),
    ],
)
def test_what_a_pod_means_for_capacity(on: str, phase: str, state: PodState) -> None:
    assert pod({"nodeName": on}, phase).state is state


@pytest.mark.parametrize(("reason", "millis"), [("Infeasible", 2000), ("Deferred", 64000)])
def test_a_resize_that_the_kubelet_refuses_does_not_count(reason: str, millis: int) -> None:
    pending = [{"type": "PodResizePending", "status": "True", "reason": reason}]
    statuses = [{"name": "main", "allocatedResources": {"cpu": "2"}}]
    found = pod(
        {"containers": [container({"cpu": "64"})]}, containerStatuses=statuses, conditions=pending
    )
    assert found.request == {CPU: millis}


def test_a_gated_pod_is_told_from_one_that_waits() -> None:
    gates = [{"name": "kueue.x-k8s.io/admission"}]
    assert pod({"nodeName": None, "schedulingGates": gates}, "Pending").state is PodState.GATED
    assert pod({"nodeName": None, "schedulingGates": []}, "Pending").state is PodState.WAITING
    assert pod({"schedulingGates": gates}, "Pending").state is PodState.BOUND


def test_a_node_is_nominated_for_a_pod_until_it_is_bound() -> None:
    found = pod({"nodeName": None, "priority": 7}, "Pending", nominatedNodeName="b")
    assert (found.nominated_node, found.priority) == ("b", 7)
    assert pod({}, "Pending", nominatedNodeName="b").nominated_node == ""


def test_what_no_api_server_stores_is_named() -> None:
    with pytest.raises(Untranslatable, match="node a: 'lots' is not a quantity"):
        node(status={"allocatable": {"cpu": "lots"}})
    with pytest.raises(Untranslatable, match="node a: 'Never' is not a valid TaintEffect"):
        node(spec={"taints": [{"key": "x", "effect": "Never"}]})
    with pytest.raises(Untranslatable, match="pod shop/p: 'lots' is not a quantity"):
        pod({"containers": [container({"cpu": "lots"})]})


def test_required_anti_affinity_is_kept_with_whom_it_concerns() -> None:
    terms = [
        {
            "labelSelector": {
                "matchLabels": {"app": "web"},
                "matchExpressions": [{"key": "tier", "operator": "Exists"}],
            }
        },
        {"labelSelector": {}, "namespaces": ["a", "b"]},
        {"labelSelector": {}, "namespaceSelector": {}},
        {"topologyKey": "zone"},
    ]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
    own, named, anywhere = pod({"affinity": {"podAntiAffinity": required}}).repulsions
    namespace = pod({}).namespace
    assert own.concerns(namespace, {"app": "web", "tier": "x"})
    assert not own.concerns(namespace, {"app": "web"})
    assert not own.concerns("elsewhere", {"app": "web", "tier": "x"})
    assert named.concerns("b", {})
    assert not named.concerns(namespace, {})
    assert anywhere.concerns("anywhere", {})


def test_anti_affinity_that_is_only_preferred_keeps_nobody_away() -> None:
    preferred = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1}]}
    assert pod({"affinity": {"podAntiAffinity": preferred}}).repulsions == ()


def test_a_pod_tells_which_labels_it_looks_at() -> None:
    terms = [
        {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]},
                              {"key": "disk", "operator": "Exists"}]},
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]},
    ]  # fmt: skip
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    spec = {"nodeSelector": {"arch": "arm64", "zone": "a"}, "affinity": {"nodeAffinity": required}}
    assert pod(spec).selects_by == ("arch", "zone", "disk")
    assert pod(spec).selects_by is pod(spec).selects_by
    assert pod({}).selects_by == ()
    assert pod({"affinity": {"nodeAffinity": {}}}).selects_by == ()
