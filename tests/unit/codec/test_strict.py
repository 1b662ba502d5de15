"""Documents to messages: every field of Karmada's types is known, anything else is refused."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.message import Message

from federation.codec.strict import message_from_document, refuse_nul
from federation.codec.violations import Violations
from federation.codec.written import document_from_message
from federation.v1 import access_pb2, resource_pb2, scheduling_pb2
from tests.unit.codec.documents import violations


def broken(document: object, message_class: type[Message]) -> dict[str, str]:
    return violations(message_from_document, document, message_class)


def binding(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "web"}, "spec": spec}


KARMADA_ONLY = {
    resource_pb2.Cluster: {
        "metadata": {
            "generateName": "m",
            "finalizers": ["karmada.io/x"],
            "managedFields": [{"manager": "kubectl", "fieldsV1": {"f:spec": {"f:taints": {}}}}],
            "ownerReferences": [{"kind": "X", "blockOwnerDeletion": True}],
            "creationTimestamp": None,
        },
        "spec": {
            "id": "x", "syncMode": "Push", "apiEndpoint": "https://a", "proxyURL": "socks5://b",
            "secretRef": {"namespace": "a", "name": "b"}, "insecureSkipTLSVerification": True,
            "impersonatorSecretRef": {"namespace": "a", "name": "b"}, "proxyHeader": {"a": "b"},
        },
        "status": {"remedyActions": ["TrafficControl"]},
    },
    resource_pb2.ResourceBinding: {
        "spec": {
            "propagateDeps": True,
            "requiredBy": [{"name": "a", "clusters": [{"name": "m1", "replicas": 1}]}],
            "failover": {
                "application": {
                    "decisionConditions": {"tolerationSeconds": 300},
                    "statePreservation": {"rules": [{"aliasLabelName": "a", "jsonPath": "{.x}"}]},
                },
                "cluster": {"purgeMode": "Directly"},
            },
            "conflictResolution": "Abort", "preserveResourcesOnDeletion": True,
            "workloadAffinityGroups": {"affinityGroup": "a"},
            "schedulePriority": {"priority": 3, "priorityClassName": "x"},
            "gracefulEvictionTasks": [{
                "fromCluster": "m1", "purgeMode": "Graciously", "gracePeriodSeconds": 10,
                "suppressDeletion": False, "preservedLabelState": {"a": "b"},
                "clustersBeforeFailover": ["m1"], "creationTimestamp": "2026-03-01T00:00:00Z",
            }],
        },
        "status": {
            "schedulerObservedGeneration": 1, "schedulerObservingAffinityName": "a",
            "aggregatedStatus": [{"clusterName": "m1", "status": {"any": 1}, "health": "Healthy"}],
        },
    },
    resource_pb2.PropagationPolicy: {
        "spec": {
            "association": True, "propagateDeps": True, "preemption": "Never",
            "dependentOverrides": ["a"], "failover": {"cluster": {}}, "conflictResolution": "Abort",
            "activationPreference": "Lazy", "preserveResourcesOnDeletion": False,
            "schedulePriority": {"priorityClassSource": "KubePriorityClass"},
        },
    },
}  # fmt: skip


@pytest.mark.parametrize("message_class", KARMADA_ONLY)
def test_fields_that_only_karmada_has_are_read_over(message_class: type[Message]) -> None:
    message_from_document(KARMADA_ONLY[message_class], message_class)


@pytest.mark.parametrize(
    ("document", "field"),
    [
        ({"spce": {}}, "spce"),
        (binding(replica=3), "spec.replica"),
        (
            binding(placement={"clusterAffinity": {"names": []}}),
            "spec.placement.clusterAffinity.names",
        ),
        (binding(requiredBy=[{"nmae": "a"}]), "spec.requiredBy[0].nmae"),
        (binding(failover={"cluster": {"x": 1}}), "spec.failover.cluster.x"),
        (binding(requiredBy=[{"clusters": [{"x": 1}]}]), "spec.requiredBy[0].clusters[0].x"),
        (
            binding(components=[{"replicaRequirements": {"namespace": "a"}}]),
            "spec.components[0].replicaRequirements.namespace",
        ),
        ({"metadata": {"managedFields": [{"fields": {}}]}}, "metadata.managedFields[0].fields"),
    ],
)
def test_unknown_fields_are_refused_with_their_path(document: object, field: str) -> None:
    assert list(broken(document, resource_pb2.ResourceBinding)) == [field]


def test_a_near_miss_gets_a_hint() -> None:
    found = broken(binding(replica=3), resource_pb2.ResourceBinding)
    assert "did you mean replicas?" in found["spec.replica"]


@pytest.mark.parametrize(
    ("spec", "field", "said"),
    [
        ({"replicas": "many"}, "spec.replicas", "a whole number, not 'many'"),
        ({"replicas": 3.0}, "spec.replicas", "a whole number"),
        ({"replicas": True}, "spec.replicas", "a whole number, not true"),
        ({"replicas": 10**30}, "spec.replicas", "from -9223372036854775808"),
        ({"clusters": {}}, "spec.clusters", "a list, not an object"),
        ({"clusters": ["m1"]}, "spec.clusters[0]", "an object, not 'm1'"),
        ({"clusters": [{"name": 1}]}, "spec.clusters[0].name", "text, not 1"),
        ({"placement": []}, "spec.placement", "an object, not a list"),
        ({"placement": {"partial": "yes"}}, "spec.placement.partial", "true or false, not 'yes'"),
        (
            {"replicaRequirements": {"resourceRequest": {"cpu": True}}},
            "spec.replicaRequirements.resourceRequest[cpu]",
            "a quantity such as",
        ),
        (
            {"replicaRequirements": {"resourceRequest": {"cpu": None}}},
            "spec.replicaRequirements.resourceRequest[cpu]",
            "not null",
        ),
        ({"rescheduleTriggeredAt": "yesterday"}, "spec.rescheduleTriggeredAt", "RFC 3339"),
        ({"rescheduleTriggeredAt": "2026-02-30T00:00:00Z"}, "spec.rescheduleTriggeredAt", "RFC"),
        ({"schedulerName": "a\0b"}, "spec.schedulerName", "NUL"),
        ({"schedulerName": "\ud800"}, "spec.schedulerName", "UTF-8"),
    ],
)
def test_wrong_types_are_refused_with_path_and_rule(
    spec: dict[str, Any], field: str, said: str
) -> None:
    assert said in broken(binding(**spec), resource_pb2.ResourceBinding)[field]


def test_every_violation_is_told_at_once() -> None:
    document = {"metadata": {"name": 1}, "spec": {"replicas": "x", "bogus": 1}, "extra": {}}
    assert set(broken(document, resource_pb2.ResourceBinding)) == {
        "metadata.name", "spec.replicas", "spec.bogus", "extra",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("document", "message_class", "field"),
    [
        ({"apiVersion": "v1", "kind": "Cluster"}, resource_pb2.Cluster, "apiVersion"),
        ({"kind": "Deployment"}, resource_pb2.ResourceBinding, "kind"),
    ],
)
def test_api_version_and_kind_are_checked_where_present(
    document: object, message_class: type[Message], field: str
) -> None:
    assert list(broken(document, message_class)) == [field]


def test_quantities_may_be_numbers() -> None:
    message = message_from_document(
        binding(replicaRequirements={"resourceRequest": {"cpu": 1, "memory": 0.5, "pods": "3"}}),
        resource_pb2.ResourceBinding,
    )
    assert dict(message.spec.replica_requirements.resource_request) == {
        "cpu": "1", "memory": "0.5", "pods": "3",
    }  # fmt: skip


def test_an_empty_object_is_there_and_null_is_not() -> None:
    there = message_from_document(binding(placement={}), resource_pb2.ResourceBinding)
    absent = message_from_document(binding(placement=None), resource_pb2.ResourceBinding)
    assert there.spec.HasField("placement")
    assert not absent.spec.HasField("placement")


def test_documents_come_back_as_they_were() -> None:
    document = {
        "apiVersion": "work.karmada.io/v1alpha2",
        "kind": "ResourceBinding",
        "metadata": {"name": "web", "labels": {"a": "1", "b": ""}, "generation": 4},
        "spec": {
            "replicas": 0,
            "replicaRequirements": {
                "nodeClaim": {
                    "hardNodeAffinity": {
                        "nodeSelectorTerms": [
                            {"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["3"]}]}
                        ]
                    }
                },
                "resourceRequest": {"cpu": "500m"},
            },
            "clusters": [{"name": "m1", "replicas": 0}],
            "placement": {
                "clusterTolerations": [{"operator": "Exists", "tolerationSeconds": 0}],
                "replicaScheduling": {"clusterLimits": [{"min": 0, "max": 0}]},
            },
            "rescheduleTriggeredAt": "2026-03-01T12:00:00Z",
        },
    }
    message = message_from_document(document, resource_pb2.ResourceBinding)
    assert document_from_message(message) == document


def test_enumerations_are_written_as_words() -> None:
    decision = scheduling_pb2.Decision(
        outcome=scheduling_pb2.OUTCOME_NO_FIT,
        trace=scheduling_pb2.Trace(clusters=[scheduling_pb2.ClusterTrace(source=2, bound=1)]),
    )
    document = document_from_message(decision)
    assert document["outcome"] == "NO_FIT"
    assert document["clusters"] == []
    assert document["trace"]["clusters"][0]["source"] == "models"
    assert document["trace"]["clusters"][0]["bound"] == "none"


def test_nul_characters_are_told_wherever_they_are() -> None:
    affinity = resource_pb2.ClusterAffinity(
        cluster_names=["m1", "m\0"],
        label_selector=resource_pb2.LabelSelector(match_labels={"a": "", "b": "\0", "\0": "c"}),
    )
    terms = [resource_pb2.TargetCluster(name="m1"), resource_pb2.TargetCluster(name="m\0")]
    message = resource_pb2.ResourceBinding(
        metadata=resource_pb2.ObjectMeta(name="a\0b", uid="c"),
        spec=resource_pb2.ResourceBindingSpec(
            clusters=terms,
            placement=resource_pb2.Placement(cluster_affinity=affinity),
            lease_seconds=0,
        ),
    )
    found = Violations()
    refuse_nul(message, "items[3]", found)
    told = violations(found.check)
    assert set(told.values()) == {"must not hold a NUL character"}
    here = "items[3].spec.placement.clusterAffinity"
    assert sorted(told) == sorted(
        [
            "items[3].metadata.name",
            "items[3].spec.clusters[1].name",
            f"{here}.clusterNames[1]",
            f"{here}.labelSelector.matchLabels[b]",
            f"{here}.labelSelector.matchLabels[\0]",
        ]
    )


def test_bytes_of_nothing_are_no_nul_characters() -> None:
    message = resource_pb2.ResourceBinding(
        metadata=resource_pb2.ObjectMeta(labels={"a": ""}),
        spec=resource_pb2.ResourceBindingSpec(resource=resource_pb2.ObjectReference()),
    )
    assert b"\0" in message.SerializeToString()
    found = Violations()
    refuse_nul(message, "", found)
    found.check()


def test_bytes_are_written_as_people_compare_them() -> None:
    head = access_pb2.AuditHead(seal=7, hash=b"\x00\xff")
    assert document_from_message(head) == {"seal": 7, "hash": "00ff"}
