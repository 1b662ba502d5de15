"""Bindings and placements: their rules, defaults, and the way back."""

from __future__ import annotations

from typing import Any

import pytest

from federation.codec.bindings import binding_from_message, binding_to_message
from federation.codec.requirements import requirements_from_message
from federation.codec.strict import message_from_document
from federation.model.errors import InvalidRequest
from federation.model.placement import (
    Binding,
    DivisionPreference,
    Placement,
    SchedulingType,
    SpreadConstraint,
    SpreadField,
)
from federation.model.workload import NodeSelectorTerm, ReplicaRequirements
from federation.v1 import resource_pb2

FIRST, SECOND = "2026-03-01T12:00:00Z", "2026-03-01T12:00:01Z"


def read(spec: dict[str, Any], **rest: Any) -> Binding:
    document = {"metadata": {"name": "web"}, "spec": {"placement": {}, **spec}, **rest}
    return binding_from_message(message_from_document(document, resource_pb2.ResourceBinding))


def violations(spec: dict[str, Any], **rest: Any) -> dict[str, str]:
    with pytest.raises(InvalidRequest) as caught:
        read(spec, **rest)
    return {each.field: each.rule for each in caught.value.violations}


def placed(**placement: Any) -> dict[str, Any]:
    return {"placement": placement}


def divided(**scheduling: Any) -> dict[str, Any]:
    return placed(replicaScheduling=scheduling)


def test_no_placement_is_refused_and_an_empty_one_means_every_cluster() -> None:
    assert "is required" in violations({"placement": None})["spec.placement"]
    assert read({}).placement == Placement()


@pytest.mark.parametrize(
    ("spec", "field", "said"),
    [
        ({"replicas": -1}, "spec.replicas", "from 0 to 2147483647, not -1"),
        ({"replicas": 2**31}, "spec.replicas", "not 2147483648"),
        ({"resource": {"kind": "Deploy\x1b[2Jment"}}, "spec.resource.kind", "printable"),
        ({"resource": {"kind": "k" * 254}}, "spec.resource.kind", "at most 253"),
        ({"components": [{"replicas": 1}]}, "spec.components[0].name", "is required"),
        ({"components": [{"name": "a"}, {"name": "a"}]}, "spec.components[1].name", "already"),
        ({"clusters": [{"name": "a"}, {"name": "a"}]}, "spec.clusters[1].name", "already"),
        ({"clusters": [{"name": "a", "replicas": -2}]}, "spec.clusters[0].replicas", "not -2"),
        ({"clusters": [{"replicas": 2}]}, "spec.clusters[0].name", "is required"),
        ({"certificate": "golden"}, "spec.certificate", "planned, careful or strict"),
        ({"leaseSeconds": 0}, "spec.leaseSeconds", "from 1"),
        ({"leaseSeconds": 315_360_001}, "spec.leaseSeconds", "to 315360000"),
        ({"minAvailable": 0}, "spec.minAvailable", "from 1 to 2147483647, not 0"),
        ({"minAvailable": 2**31}, "spec.minAvailable", "not 2147483648"),
        ({"preemptionPolicy": "Always"}, "spec.preemptionPolicy", "PreemptLowerPriority"),
        (
            {"gracefulEvictionTasks": [{"fromCluster": "a", "purgeMode": "Now"}]},
            "spec.gracefulEvictionTasks[0].purgeMode",
            "Directly, Immediately or Never",
        ),
        ({"schedulePriority": {"priority": 2**31}}, "spec.schedulePriority.priority", "2147483647"),
        (placed(tieBreak="coin"), "spec.placement.tieBreak", "hash or karmada"),
        (
            placed(clusterAffinity={}, clusterAffinities=[{"affinityName": "a"}]),
            "spec.placement.clusterAffinities",
            "cannot be combined",
        ),
        (
            placed(clusterAffinities=[{}]),
            "spec.placement.clusterAffinities[0].affinityName",
            "is required",
        ),
        (
            placed(spreadConstraints=[{"spreadByField": "rack"}]),
            "spec.placement.spreadConstraints[0].spreadByField",
            "cluster, region, zone or provider",
        ),
        (
            placed(spreadConstraints=[{"minGroups": 3, "maxGroups": 2}]),
            "spec.placement.spreadConstraints[0].maxGroups",
            "at least minGroups",
        ),
        (
            placed(spreadConstraints=[{"minGroups": -1}]),
            "spec.placement.spreadConstraints[0].minGroups",
            "not -1",
        ),
        (
            placed(spreadConstraints=[{}, {"spreadByField": "cluster"}]),
            "spec.placement.spreadConstraints[1].spreadByField",
            "already",
        ),
        (
            placed(spreadConstraints=[{"spreadByLabel": "a"}]),
            "spec.placement.spreadConstraints[0].spreadByLabel",
            "not supported",
        ),
        (
            divided(replicaSchedulingType="Split"),
            "spec.placement.replicaScheduling.replicaSchedulingType",
            "Duplicated or Divided",
        ),
        (
            divided(weightPreference={"dynamicWeight": "Luck"}),
            "spec.placement.replicaScheduling.weightPreference.dynamicWeight",
            "AvailableReplicas",
        ),
        (
            divided(weightPreference={"staticWeightList": [{"weight": -1}]}),
            "spec.placement.replicaScheduling.weightPreference.staticWeightList[0].weight",
            "not -1",
        ),
        (
            divided(clusterLimits=[{"min": 3, "max": 2}]),
            "spec.placement.replicaScheduling.clusterLimits[0].max",
            "at least min, 3",
        ),
        (
            placed(clusterAffinity={"labelSelector": {"matchExpressions": [
                {"key": "a", "operator": "Gt", "values": ["1"]}]}}),
            "spec.placement.clusterAffinity.labelSelector.matchExpressions[0].operator",
            "In, NotIn, Exists, DoesNotExist",
        ),
        (
            placed(clusterAffinity={"labelSelector": {"matchExpressions": [
                {"key": "a", "operator": "In"}]}}),
            "spec.placement.clusterAffinity.labelSelector.matchExpressions[0].values",
            "at least one value",
        ),
        (
            placed(clusterAffinity={"fieldSelector": {"matchExpressions": [
                {"key": "rack", "operator": "In", "values": ["1"]}]}}),
            "spec.placement.clusterAffinity.fieldSelector.matchExpressions[0].key",
            "provider, region, zone",
        ),
        (
            placed(clusterTolerations=[{"key": "a", "operator": "Exists", "value": "b"}]),
            "spec.placement.clusterTolerations[0].value",
            "must be empty",
        ),
        (
            placed(clusterTolerations=[{"value": "b"}]),
            "spec.placement.clusterTolerations[0].operator",
            "must be Exists",
        ),
    ],
)  # fmt: skip
def test_broken_rules_are_told_by_path(spec: dict[str, Any], field: str, said: str) -> None:
    assert said in violations(spec)[field]


@pytest.mark.parametrize("text", ["1 Gi", "-1", "1e", "9" * 30, "", "one", "1.2.3", "0x10"])
def test_wrong_quantities_are_told_by_path(text: str) -> None:
    spec = {"replicaRequirements": {"resourceRequest": {"memory": text, "cpu": "1"}}}
    found = violations(spec)
    assert list(found) == ["spec.replicaRequirements.resourceRequest[memory]"]
    message = resource_pb2.ReplicaRequirements(resource_request={"memory": text})
    with pytest.raises(InvalidRequest) as caught:
        requirements_from_message(message, "shapes[0]")
    assert caught.value.violations[0].field == "shapes[0].resourceRequest[memory]"


def test_names_are_checked() -> None:
    document = {"metadata": {"name": "Web", "namespace": "a.b", "resourceVersion": "x"}}
    assert set(violations({}, **document)) == {
        "metadata.name", "metadata.namespace", "metadata.resourceVersion",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("triggered", "last", "fresh"),
    [(None, None, False), (None, FIRST, False), (FIRST, FIRST, False), (FIRST, SECOND, False),
     (SECOND, FIRST, True), (FIRST, None, True)],
)  # fmt: skip
def test_fresh_when_the_trigger_is_later(
    triggered: str | None, last: str | None, fresh: bool
) -> None:
    spec = {"rescheduleTriggeredAt": triggered}
    assert read(spec, status={"lastScheduledTime": last}).fresh is fresh


def test_times_outside_of_protobufs_range_are_refused_by_field() -> None:
    message = binding_to_message(read({"rescheduleTriggeredAt": FIRST}))
    message.spec.reschedule_triggered_at.nanos = -1
    message.status.last_scheduled_time.seconds = 2**40
    with pytest.raises(InvalidRequest) as caught:
        binding_from_message(message)
    assert [each.field for each in caught.value.violations] == [
        "spec.rescheduleTriggeredAt",
        "status.lastScheduledTime",
    ]


def test_karmadas_defaults() -> None:
    assert read({}).placement.replica_scheduling.type is SchedulingType.DUPLICATED
    scheduling = read(divided(replicaDivisionPreference="Aggregated")).placement.replica_scheduling
    assert scheduling.type is SchedulingType.DIVIDED
    assert scheduling.preference is DivisionPreference.AGGREGATED
    assert read(placed(spreadConstraints=[{}])).placement.spread_constraints == (
        SpreadConstraint(by=SpreadField.CLUSTER, min_groups=1, max_groups=None),
    )


def test_a_required_affinity_without_terms_stays_one() -> None:
    claim = {"hardNodeAffinity": {"nodeSelectorTerms": [{}]}}
    requirements = read({"replicaRequirements": {"nodeClaim": claim}}).requirements
    assert requirements.node_claim is not None
    assert requirements.node_claim.required_terms == (NodeSelectorTerm(),)
    assert read({}).requirements == ReplicaRequirements()


FULL = {
    "resource": {
        "apiVersion": "apps/v1", "kind": "Deployment", "namespace": "a", "name": "web", "uid": "u",
    },
    "replicas": 7,
    "replicaRequirements": {
        "nodeClaim": {
            "nodeSelector": {"disk": "ssd"},
            "tolerations": [{"key": "k", "operator": "Exists", "effect": "NoExecute",
                             "tolerationSeconds": 0}],
            "hardNodeAffinity": {"nodeSelectorTerms": [{"matchFields": [
                {"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]},
        },
        "resourceRequest": {"cpu": "1.5", "memory": "1G", "nvidia.com/gpu": 1},
        "namespace": "a", "priorityClassName": "high",
    },
    "components": [{"name": "c", "replicas": 2,
                    "replicaRequirements": {"resourceRequest": {"cpu": 1}}}],
    "clusters": [{"name": "m1", "replicas": 0}, {"name": "m2", "replicas": 3}],
    "placement": {
        "clusterAffinities": [{
            "affinityName": "first",
            "labelSelector": {"matchLabels": {"a": "b"}, "matchExpressions": [
                {"key": "c", "operator": "DoesNotExist"}]},
            "fieldSelector": {"matchExpressions": [
                {"key": "zone", "operator": "NotIn", "values": ["z"]}]},
            "exclude": ["m9"],
            "overflowAffinities": [{"clusterNames": ["m3"]}],
        }],
        "clusterTolerations": [{"key": "t", "value": "v"}],
        "spreadConstraints": [{"spreadByField": "region", "minGroups": 2, "maxGroups": 3}],
        "replicaScheduling": {
            "replicaSchedulingType": "Divided", "replicaDivisionPreference": "Weighted",
            "weightPreference": {"dynamicWeight": "AvailableReplicas", "staticWeightList": [
                {"targetCluster": {"clusterNames": ["m1"]}, "weight": 2}]},
            "clusterLimits": [{"targetCluster": {"clusterNames": ["m1"]}, "min": 1, "max": 0 + 4},
                              {"min": 0}],
            "capacityBounded": True,
        },
        "workloadAffinity": {"affinity": {"groupByLabelKey": "a"},
                             "antiAffinity": {"groupByLabelKey": "b"}},
        "partial": True, "tieBreak": "karmada",
    },
    "schedulerName": "s", "schedulePriority": {"priority": -5},
    "rescheduleTriggeredAt": SECOND,
    "gracefulEvictionTasks": [{"fromCluster": "m4", "replicas": 2}],
    "suspension": {"scheduling": True}, "certificate": "strict", "leaseSeconds": 60,
    "preemptionPolicy": "PreemptLowerPriority", "minAvailable": 2,
    "preemptible": False,
    "gang": {"name": "train", "size": 4, "timeoutSeconds": 600},
}  # fmt: skip


def test_a_binding_with_everything_comes_back() -> None:
    metadata = {
        "name": "web", "namespace": "a", "uid": "x", "labels": {"l": "v"}, "annotations": {"n": ""},
        "generation": 3, "resourceVersion": "12",
    }  # fmt: skip
    binding = read(FULL, metadata=metadata, status={"lastScheduledTime": FIRST})
    assert binding.requirements.request == {"cpu": 1500, "memory": 10**9, "nvidia.com/gpu": 1}
    assert binding_from_message(binding_to_message(binding)) == binding
    assert binding.fresh


def test_a_replica_asks_for_so_many_kinds_of_resources_and_no_more() -> None:
    def asked(number: int) -> dict[str, Any]:
        names = {f"example.com/r{each}": "1" for each in range(number)}
        return {"replicaRequirements": {"resourceRequest": names}}

    assert len(read(asked(64)).requirements.request) == 64
    assert violations(asked(10_000)) == {
        "spec.replicaRequirements.resourceRequest": "must name at most 64 resources, not 10000"
    }
