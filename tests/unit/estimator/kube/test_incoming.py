"""What a pod without a node asks for, and what about it goes beyond one node."""

from __future__ import annotations

import json
from typing import Any

import pytest

from estimator.kube.incoming import MAX_REQUEST, read_incoming
from estimator.kube.translate import Untranslatable
from estimator.placement.incoming import IncomingPod
from federation.model.cluster import TaintEffect
from federation.model.workload import (
    NodeSelectorTerm,
    Operator,
    Requirement,
    Toleration,
    TolerationOperator,
)


def read(spec: dict[str, Any], **metadata: Any) -> IncomingPod:
    identity = {"name": "p", "namespace": "shop", "uid": "u"}
    pod = {"metadata": {**identity, **metadata}, "spec": spec, "status": {"phase": "Pending"}}
    return read_incoming(json.dumps(pod).encode())


def test_identity_order_and_request() -> None:
    requests = {"cpu": "1500m", "memory": "1Gi", "nvidia.com/gpu": "0"}
    pod = read(
        {
            "schedulerName": "fedsched-binpack",
            "priority": 7,
            "containers": [{"name": "c", "resources": {"requests": requests}}],
        },
        labels={"app": "web"},
        creationTimestamp="1970-01-01T00:01:00Z",
    )
    assert (pod.uid, pod.namespace, pod.name, pod.node) == ("u", "shop", "p", "")
    assert (pod.scheduler_name, pod.priority, pod.created_at) == ("fedsched-binpack", 7, 60.0)
    assert pod.labels == {"app": "web"}
    assert pod.amounts == {"cpu": 1500, "memory": 2**30}
    assert (pod.unjudged, pod.held) == ((), "")


def test_nodes_it_may_have() -> None:
    expression = {"key": "zone", "operator": "In", "values": ["a"]}
    field = {"key": "metadata.name", "operator": "NotIn", "values": ["n1"]}
    required = {"nodeSelectorTerms": [{"matchExpressions": [expression], "matchFields": [field]}]}
    node_affinity = {
        "requiredDuringSchedulingIgnoredDuringExecution": required,
        "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": {}}],
    }
    claim = read(
        {
            "nodeSelector": {"disk": "ssd"},
            "affinity": {"nodeAffinity": node_affinity},
            "tolerations": [
                {"operator": "Exists"},
                {"key": "k", "value": "v", "effect": "NoSchedule"},
                {"key": "k", "operator": "Lt", "value": "5"},
            ],
        }
    ).node_claim
    assert claim.node_selector == {"disk": "ssd"}
    assert claim.required_terms == (
        NodeSelectorTerm(
            match_expressions=(Requirement(key="zone", operator=Operator.IN, values=("a",)),),
            match_fields=(
                Requirement(key="metadata.name", operator=Operator.NOT_IN, values=("n1",)),
            ),
        ),
    )
    assert claim.tolerations == (
        Toleration(operator=TolerationOperator.EXISTS),
        Toleration(key="k", value="v", effect=TaintEffect.NO_SCHEDULE),
    )


REQUIRED, PREFERRED = (
    f"{kind}DuringSchedulingIgnoredDuringExecution" for kind in ("required", "preferred")
)


@pytest.mark.parametrize(
    ("spec", "unjudged"),
    [
        ({"affinity": {"podAffinity": {REQUIRED: [{}]}}}, "pod affinity"),
        ({"affinity": {"podAntiAffinity": {REQUIRED: [{}]}}}, "pod anti-affinity"),
        (
            {"topologySpreadConstraints": [{"whenUnsatisfiable": "DoNotSchedule"}]},
            "topology spread constraints",
        ),
        (
            {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]},
            "a persistentVolumeClaim volume",
        ),
        ({"volumes": [{"name": "v", "ephemeral": {}}]}, "a ephemeral volume"),
        ({"resourceClaims": [{"name": "gpu"}]}, "resource claims"),
        ({"containers": [{"name": "c", "ports": [{"hostPort": 80}]}]}, "host ports"),
        ({"initContainers": [{"name": "c", "ports": [{"hostPort": 80}]}]}, "host ports"),
    ],
)
def test_what_one_node_alone_cannot_tell_is_named(spec: dict[str, Any], unjudged: str) -> None:
    assert read(spec).unjudged == (unjudged,)


@pytest.mark.parametrize(
    "spec",
    [
        {"affinity": {"podAffinity": {PREFERRED: [{}]}, "podAntiAffinity": {REQUIRED: []}}},
        {"topologySpreadConstraints": [{"whenUnsatisfiable": "ScheduleAnyway"}]},
        {"volumes": [{"name": "v", "emptyDir": {}}, {"name": "w", "configMap": {}}]},
        {"containers": [{"name": "c", "ports": [{"containerPort": 80}]}]},
        {"volumes": None, "tolerations": None, "affinity": None, "containers": None},
    ],
)
def test_preferences_and_what_every_node_has_do_not_matter(spec: dict[str, Any]) -> None:
    assert read(spec).unjudged == ()


def test_pods_nobody_may_schedule_yet() -> None:
    assert read({"schedulingGates": [{"name": "g"}]}).held == "has scheduling gates"
    deleted = read({}, deletionTimestamp="2026-01-01T00:00:00Z")
    assert deleted.held == "is being deleted"


@pytest.mark.parametrize(
    "spec",
    [
        {"containers": [{"resources": {"requests": {"cpu": "much"}}}]},
        {"tolerations": [{"key": "k", "effect": "Never"}]},
        {"containers": 3},
    ],
)
def test_what_no_api_server_stores_is_refused(spec: dict[str, Any]) -> None:
    with pytest.raises(Untranslatable):
        read(spec)


def test_amounts_no_array_holds_are_cut_off() -> None:
    requests = {"cpu": "1e999", "memory": "8Ei"}
    pod = read({"containers": [{"resources": {"requests": requests}}]})
    assert pod.amounts == {"cpu": MAX_REQUEST, "memory": MAX_REQUEST}
    assert pod.request.nonzero["cpu"] == MAX_REQUEST
