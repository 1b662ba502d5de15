"""Pod templates and bindings: what no decision considers is named, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from federation.codec.binding_warnings import MAX_WARNINGS, warnings_of_binding
from federation.codec.pod_warnings import MAX_NAMED, pod_warnings
from federation.codec.strict import message_from_document
from federation.v1 import resource_pb2

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"


def unjudged(spec: dict[str, Any]) -> str:
    warnings = [*pod_warnings(spec, "spec")]
    if not warnings:
        return ""
    (warning,) = warnings
    named, _, effect = warning.partition("; ")
    assert effect == "pods may stay pending where replicas are placed"
    return named.removeprefix("not judged: ")


@pytest.mark.parametrize(
    ("spec", "names"),
    [
        (
            {"affinity": {"podAntiAffinity": {REQUIRED: [{"topologyKey": HOST}]}}},
            f"affinity.podAntiAffinity ({HOST})",
        ),
        (
            {"affinity": {"podAffinity": {REQUIRED: [{"topologyKey": ZONE}]}}},
            f"affinity.podAffinity ({ZONE})",
        ),
        (
            {
                "topologySpreadConstraints": [
                    {"topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule"},
                    {"topologyKey": HOST, "whenUnsatisfiable": "ScheduleAnyway"},
                ]
            },
            f"topologySpreadConstraints ({ZONE})",
        ),
        ({"containers": [{"ports": [{"hostPort": 80}, {"containerPort": 81}]}]}, "hostPort 80"),
        (
            {"hostNetwork": True, "containers": [{"ports": [{"containerPort": 81}]}]},
            "hostPort 81",
        ),
        (
            {"volumes": [{"persistentVolumeClaim": {"claimName": "a"}}, {"emptyDir": {}}]},
            "volumes (persistentVolumeClaim)",
        ),
        (
            {"nodeName": "n1", "schedulerName": "volcano", "os": {"name": "windows"}},
            "nodeName, schedulerName, os.name",
        ),
        ({"resourceClaims": [{"name": "gpu"}]}, "resourceClaims"),
        (
            {"runtimeClassName": "kata", "schedulingGates": [{"name": "a"}]},
            "schedulingGates, runtimeClassName",
        ),
        (
            {
                "schedulerName": "default-scheduler",
                "affinity": {"podAntiAffinity": {PREFERRED: [{"weight": 1}]}, "nodeAffinity": {}},
                "nodeSelector": {"disk": "ssd"},
                "tolerations": [{"operator": "Exists"}],
                "volumes": [{"configMap": {"name": "a"}}],
                "containers": [{"resources": {"requests": {"cpu": "100m", "memory": "1Gi"}}}],
            },
            "",
        ),
    ],
)
def test_what_a_pod_asks_for_and_is_not_judged_is_named(spec: dict[str, Any], names: str) -> None:
    assert unjudged(spec) == names


@pytest.mark.parametrize("value", ["text", 1, None, [], {}, [1], {"a": 1}, [["b"]]])
def test_a_template_may_hold_anything(value: object) -> None:
    fields = ("affinity", "topologySpreadConstraints", "volumes", "containers", "os", "overhead")
    assert isinstance([*pod_warnings(dict.fromkeys(fields, value), "spec")], list)
    assert [*pod_warnings({"affinity": {"podAffinity": value}}, "spec")] == []
    assert [*pod_warnings({"containers": [{"resources": value, "ports": value}]}, "spec")] == []


def test_names_are_bounded_and_short() -> None:
    ports = [{"hostPort": 1000 + number} for number in range(MAX_NAMED + 2)]
    assert unjudged({"containers": [{"ports": ports}]}).endswith(" and 2 more")
    long = unjudged({"topologySpreadConstraints": [{"topologyKey": "x" * 100_000}]})
    assert len(long) < 400


def test_a_fraction_of_a_byte_is_named_where_it_stands() -> None:
    spec = {
        "overhead": {"memory": "1500m"},
        "initContainers": [{"resources": {"limits": {"ephemeral-storage": "0.5"}}}],
        "containers": [
            {"resources": {"requests": {"cpu": "1500m", "memory": "1Gi"}}},
            {"resources": {"requests": {"memory": "2048m", "example.com/licence": "1.5"}}},
        ],
        "resources": {"requests": {"memory": "2.5Ki"}},
    }
    assert [*pod_warnings(spec, "spec")] == [
        "spec.overhead[memory]: 1500m is a fraction and counts as 2 bytes",
        "spec.containers[1].resources.requests[memory]: 2048m is a fraction and counts as 3 bytes",
        (
            "spec.containers[1].resources.requests[example.com/licence]: "
            "1.5 is a fraction and counts as 2"
        ),
        (
            "spec.initContainers[0].resources.limits[ephemeral-storage]: "
            "0.5 is a fraction and counts as 1 byte"
        ),
    ]


def message(**spec: Any) -> resource_pb2.ResourceBinding:
    return message_from_document({"spec": spec}, resource_pb2.ResourceBinding)


def test_a_binding_is_warned_of_fractions_and_of_names_that_no_node_reports() -> None:
    component = {
        "name": "tm",
        "replicaRequirements": {"resourceRequest": {"memory": "2048m"}},
    }
    requirements = {"resourceRequest": {"mem": "2Gi", "cpu": "0.5", "nvidia.com/gpu": 1, "pods": 1}}
    found = warnings_of_binding(
        message(
            replicaRequirements=requirements,
            components=[component],
            suspension={"dispatching": True},
        )
    )
    assert found == [
        "accepted, but nothing here reads spec.suspension.dispatching",
        (
            "spec.replicaRequirements.resourceRequest[mem]: "
            "no node reports a resource of this name; names are cpu, memory, "
            "ephemeral-storage, hugepages-SIZE or a name with a prefix"
        ),
        (
            "spec.components[0].replicaRequirements.resourceRequest[memory]: "
            "2048m is a fraction and counts as 3 bytes"
        ),
    ]
    assert warnings_of_binding(message(replicas=3)) == []


def test_warnings_of_a_binding_are_bounded() -> None:
    request = {f"example.com/r{number}": "0.5" for number in range(MAX_WARNINGS + 5)}
    found = warnings_of_binding(message(replicaRequirements={"resourceRequest": request}))
    assert len(found) == MAX_WARNINGS + 1
    assert found[-1] == "and 5 more warnings like these"


@pytest.mark.parametrize(
    ("kind", "scheduling", "is_warned"),
    [
        ("DaemonSet", {"replicaSchedulingType": "Divided"}, True),
        ("CronJob", {}, True),
        ("DaemonSet", {"replicaSchedulingType": "Duplicated"}, False),
        ("Deployment", {"replicaSchedulingType": "Divided"}, False),
    ],
)
def test_what_cannot_be_divided_is_warned_of(
    kind: str, scheduling: dict[str, Any], is_warned: bool
) -> None:
    placement = {"replicaScheduling": scheduling}
    found = warnings_of_binding(message(resource={"kind": kind}, placement=placement))
    assert bool(found) is is_warned
    assert all(f"a {kind} is not divided" in each for each in found)
