"""Bindings from messages and back: what is refused by path, defaults, and nothing lost."""

from __future__ import annotations

from typing import Any

import pytest

from federation.codec.bindings import binding_from_message, binding_to_message
from federation.codec.strict import message_from_document
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
from tests.unit.codec.documents import at, violations

FIRST, SECOND = "2026-03-01T12:00:00Z", "2026-03-01T12:00:01Z"


def read(spec: dict[str, Any], **rest: Any) -> Binding:
    document = {"metadata": {"name": "web"}, "spec": {"placement": {}, **spec}, **rest}
    return binding_from_message(message_from_document(document, resource_pb2.ResourceBinding))


def test_no_placement_is_refused_and_an_empty_one_means_every_cluster() -> None:
    assert "is required" in violations(read, {"placement": None})["spec.placement"]
    assert read({}).placement == Placement()


LABELS = "placement.clusterAffinity.labelSelector.matchExpressions[0]"
SPREAD = "placement.spreadConstraints"
SCHEDULING = "placement.replicaScheduling"
TOLERATION = "placement.clusterTolerations[0]"
EXISTS = {"key": "a", "operator": "Exists"}


# Where something stands, what, the rule that it breaks, and at what field if not there. Further
# rules, told by every way in: tests/bad_bindings.py.
@pytest.mark.parametrize(
    ("path", "value", "said", "field"),
    [
        ("resource.kind", "Deploy\x1b[2Jment", "printable", ""),
        ("resource.kind", "k" * 254, "at most 253", ""),
        ("components", [{"replicas": 1}], "is required", "components[0].name"),
        ("components", [{"name": "a"}] * 2, "already", "components[1].name"),
        ("clusters", [{"name": "a"}] * 2, "already", "clusters[1].name"),
        ("clusters", [{"name": "a", "replicas": -2}], "not -2", "clusters[0].replicas"),
        ("clusters", [{"replicas": 2}], "is required", "clusters[0].name"),
        ("certificate", "golden", "planned, careful or strict", ""),
        ("leaseSeconds", 0, "from 1", ""),
        ("leaseSeconds", 315_360_001, "to 315360000", ""),
        ("minAvailable", 0, "from 1 to 2147483647, not 0", ""),
        ("minAvailable", 2**31, "not 2147483648", ""),
        ("preemptionPolicy", "Always", "PreemptLowerPriority", ""),
        ("onClusterLoss", "panic", "replace or wait", ""),
        (
            "gracefulEvictionTasks[0]",
            {"fromCluster": "a", "purgeMode": "Now"},
            "Directly, Immediately or Never",
            "gracefulEvictionTasks[0].purgeMode",
        ),
        ("schedulePriority.priority", 2**31, "2147483647", ""),
        ("placement.tieBreak", "coin", "hash or karmada", ""),
        (SPREAD, [{}, {"spreadByField": "cluster"}], "already", f"{SPREAD}[1].spreadByField"),
        # What is not supported is not compared with the others.
        (
            SPREAD,
            [{"spreadByLabel": "a"}, {"spreadByField": "cluster"}],
            "not supported",
            f"{SPREAD}[0].spreadByLabel",
        ),
        (f"{SCHEDULING}.replicaSchedulingType", "Split", "Duplicated or Divided", ""),
        (f"{SCHEDULING}.weightPreference.dynamicWeight", "Luck", "AvailableReplicas", ""),
        (
            f"{SCHEDULING}.clusterLimits[0]",
            {"min": 3, "max": 0},
            "at least min",
            f"{SCHEDULING}.clusterLimits[0].max",
        ),
        (
            LABELS,
            {"key": "a", "operator": "Gt", "values": ["1"]},
            "In, NotIn, Exists, DoesNotExist",
            f"{LABELS}.operator",
        ),
        (LABELS, {"key": "a", "operator": "In"}, "at least one value", f"{LABELS}.values"),
        (TOLERATION, {**EXISTS, "value": "b"}, "must be empty", f"{TOLERATION}.value"),
        (TOLERATION, {"value": "b"}, "must be Exists", f"{TOLERATION}.operator"),
    ],
)
def test_broken_rules_are_told_by_path(path: str, value: object, said: str, field: str) -> None:
    found = violations(read, at(path, value))
    assert list(found) == [f"spec.{field or path}"]
    assert said in found[f"spec.{field or path}"]


def test_names_times_and_numbers_of_resources_are_checked() -> None:
    metadata = {"name": "Web", "namespace": "a.b", "resourceVersion": "x"}
    assert set(violations(lambda: read({}, metadata=metadata))) == {
        "metadata.name", "metadata.namespace", "metadata.resourceVersion",
    }  # fmt: skip
    message = binding_to_message(read({"rescheduleTriggeredAt": FIRST}))
    message.spec.reschedule_triggered_at.nanos = -1
    message.status.last_scheduled_time.seconds = 2**40
    times = ["spec.rescheduleTriggeredAt", "status.lastScheduledTime"]
    assert list(violations(binding_from_message, message)) == times

    def asked(number: int) -> dict[str, Any]:
        names = {f"example.com/r{each}": "1" for each in range(number)}
        return at("replicaRequirements.resourceRequest", names)

    assert len(read(asked(64)).requirements.request) == 64
    assert violations(read, asked(10_000)) == {
        "spec.replicaRequirements.resourceRequest": "holds 10000: at most 64 are looked at"
    }


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


def test_karmadas_defaults_and_an_affinity_without_terms() -> None:
    assert read({}).placement.replica_scheduling.type is SchedulingType.DUPLICATED
    aggregated = at(f"{SCHEDULING}.replicaDivisionPreference", "Aggregated")
    scheduling = read(aggregated).placement.replica_scheduling
    assert scheduling.type is SchedulingType.DIVIDED
    assert scheduling.preference is DivisionPreference.AGGREGATED
    assert read(at(f"{SPREAD}[0]", {})).placement.spread_constraints == (
        SpreadConstraint(by=SpreadField.CLUSTER, min_groups=1, max_groups=None),
    )
    terms = "replicaRequirements.nodeClaim.hardNodeAffinity.nodeSelectorTerms[0]"
    claim = read(at(terms, {})).requirements.node_claim
    assert claim is not None
    assert claim.required_terms == (NodeSelectorTerm(),)
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
            "clusterLimits": [{"targetCluster": {"clusterNames": ["m1"]}, "min": 1, "max": 4},
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
    "preemptible": False, "onClusterLoss": "wait", "onClusterReturn": "best",
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
    spec = binding_to_message(read({})).spec
    assert (spec.on_cluster_loss, spec.on_cluster_return) == ("", "")


def test_what_is_read_again_is_one_value_and_what_is_wrong_is_told_each_time() -> None:
    """In whatever order maps are written."""
    labels = {f"label-{number}": str(number) for number in range(20)}

    def spec(written: dict[str, str], cpu: str) -> dict[str, Any]:
        affinity = at("placement.clusterAffinity.labelSelector.matchLabels", written)
        claim = {"nodeSelector": written}
        asked = {"resourceRequest": {"cpu": cpu, "memory": "1Gi"}, "nodeClaim": claim}
        return {**affinity, "replicaRequirements": asked}

    one, other, larger = (
        read(spec(written, cpu))
        for written, cpu in ((labels, "1"), (dict(reversed(labels.items())), "1"), (labels, "2"))
    )
    assert one.placement is other.placement is larger.placement
    assert one.requirements is other.requirements
    assert one.placement.affinity is not None
    assert one.placement.affinity.match_labels == labels
    asked = [each.requirements.request["cpu"] for each in (one, larger)]
    assert asked == [1000, 2000]
    wrong = at("placement.tieBreak", "coin")
    assert [list(violations(read, wrong)) for _ in range(2)] == [["spec.placement.tieBreak"]] * 2
    # Only so many values are kept.
    for number in range(4100):
        read(at("placement.clusterAffinity.clusterNames", [f"c{number}"]))
    assert read(spec(labels, "1")).placement is not one.placement
