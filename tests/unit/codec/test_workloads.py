"""Workloads and policies as bindings: replicas, requests, and which policy wins."""

from __future__ import annotations

from typing import Any

import pytest

from federation.codec.bindings import binding_from_message
from federation.codec.workloads import bindings_from_documents, policies_from_documents
from federation.model.errors import InvalidRequest
from federation.model.placement import Binding
from federation.v1 import resource_pb2
from tests.unit.codec.documents import violations


def workload(
    kind: str = "Deployment", spec: dict[str, Any] | None = None, **metadata: Any
) -> dict[str, Any]:
    template = {"template": {"spec": {"containers": []}}}
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": "web", **metadata},
        "spec": {**template, **(spec or {})},
    }


def policy(
    kind: str = "PropagationPolicy",
    *,
    name: str = "policy",
    namespace: str | None = None,
    clusters: tuple[str, ...] = (),
    priority: int = 0,
    **selector: Any,
) -> dict[str, Any]:
    return {
        "apiVersion": "policy.karmada.io/v1alpha1",
        "kind": kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment", **selector}],
            "placement": {"clusterAffinity": {"clusterNames": list(clusters or [name])}},
            "priority": priority,
        },
    }


def only(*documents: dict[str, Any]) -> Binding:
    (message,) = bindings_from_documents(documents)
    return binding_from_message(message)


def broken(*documents: dict[str, Any]) -> dict[str, str]:
    return violations(bindings_from_documents, documents)


def winner(*policies: dict[str, Any], **metadata: Any) -> str:
    affinity = only(workload(**metadata), *policies).placement.affinity
    assert affinity is not None
    return affinity.cluster_names[0]


def test_a_deployment_becomes_a_binding() -> None:
    pod = {
        "containers": [
            {"resources": {"requests": {"cpu": "250m", "memory": "64Mi"}, "limits": {"cpu": 1}}},
            {"resources": {"limits": {"cpu": "100m"}}},
        ],
        "initContainers": [{"restartPolicy": "Always", "resources": {"requests": {"cpu": "50m"}}}],
        "overhead": {"memory": "1Mi"},
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [
                        {"matchExpressions": [{"key": "a", "operator": "Exists"}]}
                    ]
                },
                "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1}],
            },
            "podAntiAffinity": {},
        },
        "priorityClassName": "high",
        "serviceAccountName": "ignored",
    }
    binding = only(
        workload(
            spec={"replicas": 3, "strategy": {}, "template": {"spec": pod}},
            namespace="shop",
            uid="u1",
            labels={"app": "web"},
        ),
        policy(namespace="shop", name="m1"),
    )
    assert binding.key == "shop/web-deployment"
    assert binding.labels == {"app": "web"}
    assert (binding.resource.kind, binding.resource.uid) == ("Deployment", "u1")
    assert binding.replicas == 3
    assert binding.requirements.request == {"cpu": 400, "memory": 65 << 20}
    assert binding.requirements.namespace == "shop"
    assert binding.requirements.priority_class_name == "high"
    claim = binding.requirements.node_claim
    assert claim is not None
    assert claim.node_selector == {"disk": "ssd"}
    assert claim.required_terms is not None
    assert claim.tolerations[0].key == "gpu"


@pytest.mark.parametrize(
    ("document", "replicas"),
    [
        (workload(), 1),
        (workload(spec={"replicas": 0}), 0),
        (workload("StatefulSet", {"replicas": 4}), 4),
        (workload("ReplicaSet"), 1),
        (workload("Job", {"parallelism": 5, "replicas": 9}), 5),
        (workload("Job"), 1),
        (workload("Job", {"completions": 4}), 1),
        (workload("Job", {"parallelism": 5, "completions": 3}), 3),
        (workload("Job", {"parallelism": 3, "completions": 5}), 3),
        (workload("Job", {"parallelism": 3, "completions": None}), 3),
        (workload("Job", {"parallelism": 0, "completions": 3}), 0),
        (workload("CronJob", {"jobTemplate": {"spec": {"parallelism": 3}}}), 0),
        (workload("GameServerSet", {"replicas": 7}), 7),
        (workload("Rollout", {"replicas": 2}), 2),
        (workload("DaemonSet"), 0),
        (workload("ConfigMap", {"template": None}), 0),
    ],
)
def test_replicas_by_kind(document: dict[str, Any], replicas: int) -> None:
    chosen = policy()
    chosen["spec"]["resourceSelectors"][0]["kind"] = document["kind"]
    binding = only(document, chosen)
    assert binding.replicas == replicas
    assert binding.key == f"default/web-{document['kind'].lower()}"


@pytest.mark.parametrize(
    ("api_version", "kind"),
    [
        ("apps/v1", "Deployment"),
        ("apps/v1", "StatefulSet"),
        ("apps/v1", "ReplicaSet"),
        ("v1", "ReplicationController"),
        ("batch/v1", "Job"),
    ],
)
def test_kubernetes_own_workloads_need_a_template(api_version: str, kind: str) -> None:
    document = {**workload(kind, {"template": None}), "apiVersion": api_version}
    chosen = policy()
    chosen["spec"]["resourceSelectors"] = [{"apiVersion": api_version, "kind": kind}]
    assert broken(document, chosen) == {f"{kind}/web.spec.template": "is required"}


def test_a_rollout_that_refers_to_a_deployment_is_refused() -> None:
    reference = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    document = workload("Rollout", {"template": None, "replicas": 3, "workloadRef": reference})
    chosen = policy()
    chosen["spec"]["resourceSelectors"][0]["kind"] = "Rollout"
    assert broken(document, chosen) == {
        "Rollout/web.spec.workloadRef": "is not followed: give the pod template in spec.template"
    }


@pytest.mark.parametrize("field", ["parallelism", "completions"])
def test_counts_of_a_job_are_checked(field: str) -> None:
    chosen = policy()
    chosen["spec"]["resourceSelectors"][0]["kind"] = "Job"
    assert list(broken(workload("Job", {field: -1}), chosen)) == [f"Job/web.spec.{field}"]


@pytest.mark.parametrize(("asked", "limit", "counted"), [("1", "3", 1000), (None, "3", 3000)])
def test_a_limit_of_the_pod_counts_when_no_container_asks(
    asked: str | None, limit: str, counted: int
) -> None:
    pod = {
        "containers": [{"resources": {"requests": {"cpu": asked} if asked else {}}}],
        "resources": {"limits": {"cpu": limit}},
    }
    binding = only(workload(spec={"template": {"spec": pod}}), policy())
    assert binding.requirements.request == {"cpu": counted}


def test_a_pod_is_one_replica() -> None:
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}, "spec": {
        "containers": [{"resources": {"requests": {"cpu": 2}}}]}}  # fmt: skip
    chosen = policy()
    chosen["spec"]["resourceSelectors"] = [{"apiVersion": "v1", "kind": "Pod"}]
    binding = only(pod, chosen)
    assert (binding.replicas, binding.requirements.request) == (1, {"cpu": 2000})


def test_more_specific_selectors_win_and_priority_beats_them() -> None:
    everything = policy(name="everything")
    labels = policy(name="labels", labelSelector={"matchLabels": {"app": "web"}})
    named = policy(name="named")
    named["spec"]["resourceSelectors"][0]["name"] = "web"
    important = policy(name="important", priority=1)
    wide = policy("ClusterPropagationPolicy", name="wide", priority=9)
    metadata = {"labels": {"app": "web"}}
    assert winner(everything, labels, named, **metadata) == "named"
    assert winner(everything, labels, **metadata) == "labels"
    assert winner(everything, labels) == "everything"
    assert winner(named, important, wide, **metadata) == "important"
    assert winner(wide) == "wide"
    assert winner(policy(name="b"), policy(name="a")) == "a"


def test_policies_stay_in_their_namespace() -> None:
    elsewhere = policy(namespace="other")
    assert "no PropagationPolicy" in broken(workload(), elsewhere)["Deployment/web"]
    wide = policy("ClusterPropagationPolicy", name="wide", namespace=None)
    wide["spec"]["resourceSelectors"][0]["namespace"] = "other"
    assert "no PropagationPolicy" in broken(workload(), wide)["Deployment/web"]
    assert winner(wide, namespace="other") == "wide"


def test_bindings_pass_through_and_the_policy_gives_the_rest() -> None:
    chosen = policy(name="m1")
    chosen["spec"] |= {"schedulerName": "mine", "suspension": {"dispatching": True}}
    given = {"kind": "ResourceBinding", "metadata": {"name": "a"}, "spec": {"placement": {}}}
    first, second = bindings_from_documents([workload(), given, chosen])
    assert first == resource_pb2.ResourceBinding(
        kind="ResourceBinding",
        metadata={"name": "a"},
        spec={"placement": {}},
    )
    assert second.spec.scheduler_name == "mine"
    assert second.spec.suspension.dispatching


POD_PATH = "Deployment/web.spec.template.spec"


def of_pod(**pod: Any) -> dict[str, Any]:
    return workload(spec={"template": {"spec": pod}})


@pytest.mark.parametrize(
    ("document", "field"),
    [
        ({"metadata": {"name": "a"}}, "document 1.kind"),
        ({"kind": "Cluster", "metadata": {"name": "m1"}}, "Cluster/m1"),
        ({"kind": "ResourceBinding", "apiVersion": "v1"}, "document 1.apiVersion"),
        (workload(spec={"replicas": "many"}), "Deployment/web.spec.replicas"),
        (workload(spec={"replicas": True}), "Deployment/web.spec.replicas"),
        (workload(spec={"replicas": 2**31}), "Deployment/web.spec.replicas"),
        (workload(spec={"replicas": -1}), "Deployment/web.spec.replicas"),
        (workload(labels={"a": 1}), "Deployment/web.metadata.labels[a]"),
        (of_pod(containers={}), f"{POD_PATH}.containers"),
        (of_pod(containers=["x"]), f"{POD_PATH}.containers[0]"),
        (
            of_pod(containers=[{"resources": {"requests": {"cpu": "1 Gi"}}}]),
            f"{POD_PATH}.containers[0].resources.requests[cpu]",
        ),
        (
            of_pod(containers=[{"resources": {"limits": {"cpu": True}}}]),
            f"{POD_PATH}.containers[0].resources.limits[cpu]",
        ),
        (of_pod(nodeSelector={"a": 1}), f"{POD_PATH}.nodeSelector[a]"),
        (of_pod(tolerations=[{"kee": 1}]), f"{POD_PATH}.tolerations[0].kee"),
        (of_pod(priorityClassName=1), f"{POD_PATH}.priorityClassName"),
        (
            of_pod(affinity={"nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": []}}),
            f"{POD_PATH}.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution",
        ),
    ],
)  # fmt: skip
def test_broken_rules_are_told_by_path(document: dict[str, Any], field: str) -> None:
    assert list(broken(document, policy())) == [field]


def test_a_policy_is_checked_before_it_is_used() -> None:
    lacking = policy()
    del lacking["spec"]["placement"]
    lacking["spec"]["resourceSelectors"] = [{"kind": "Deployment"}]
    lacking["spec"]["resourceSelector"] = []
    found = broken(workload(), lacking)
    assert list(found) == ["PropagationPolicy/policy.spec.resourceSelector"]
    del lacking["spec"]["resourceSelector"]
    assert set(broken(workload(), lacking)) == {
        "PropagationPolicy/policy.spec.resourceSelectors[0].apiVersion",
    }
    # Karmada's default is every cluster; who names a policy as the placement to try means one.
    with pytest.raises(InvalidRequest, match=r"policy.spec.placement: is required"):
        policies_from_documents([{**policy(), "spec": {"resourceSelectors": []}}])


def test_a_binding_that_is_there_twice_is_refused() -> None:
    assert "is there twice" in broken(workload(), workload(), policy()).popitem()[1]


def test_a_policy_that_is_there_twice_is_refused() -> None:
    assert broken(workload(), policy(), policy()) == {"PropagationPolicy/policy": "is there twice"}
    # A namespace that is not written is the usual one; other namespaces and kinds are others.
    twice = broken(workload(), policy(namespace="default"), policy(clusters=("b",)))
    assert set(twice) == {"PropagationPolicy/policy"}
    everywhere = policy("ClusterPropagationPolicy")
    assert winner(policy(clusters=("a",)), policy(namespace="shop"), everywhere) == "a"
