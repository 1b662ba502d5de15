"""What holds more than anybody means is refused by name, before it is read."""

from __future__ import annotations

from federation.agents.messages import hello_from_message
from federation.codec.clusters import cluster_from_message
from federation.codec.estimates import components_from_message, shapes_from_message
from federation.codec.reports import report_from_message
from federation.rpc.bindings import read_binding
from federation.v1.agents_pb2 import Hello, Report
from federation.v1.estimates_pb2 import EstimateComponentSetsRequest, EstimateReplicasRequest
from federation.v1.resource_pb2 import (
    AllocatableModeling,
    ApiEnablement,
    Cluster,
    ResourceBinding,
    Toleration,
)
from tests.unit.codec.documents import violations


def binding() -> ResourceBinding:
    made = ResourceBinding()
    made.metadata.namespace, made.metadata.name = "shop", "web"
    made.spec.resource.api_version, made.spec.resource.kind = "apps/v1", "Deployment"
    return made


def test_each_list_has_its_limit() -> None:
    made = binding()
    made.spec.placement.cluster_tolerations.extend([Toleration(operator="Exists")] * 1001)
    claim = made.spec.replica_requirements.node_claim
    claim.tolerations.extend([Toleration(operator="Exists")] * 201)
    assert violations(read_binding, made) == {
        "spec.placement.clusterTolerations": "holds 1001: at most 1000 are looked at",
        "spec.replicaRequirements.nodeClaim.tolerations": "holds 201: at most 200 are looked at",
    }


def test_what_people_mean_passes() -> None:
    made = binding()
    made.spec.placement.cluster_tolerations.extend([Toleration(operator="Exists")] * 1000)
    made.spec.placement.cluster_affinity.cluster_names.extend(f"c{n}" for n in range(10_000))
    assert len(read_binding(made).placement.tolerations) == 1000


def test_all_lists_together_have_one_too() -> None:
    made = binding()
    weights = made.spec.placement.replica_scheduling.weight_preference.static_weight_list
    for _ in range(60):
        weights.add(weight=1).target_cluster.exclude.extend(["c"] * 1000)
    rule = "holds more than 50000 parts: no more are looked at"
    assert violations(read_binding, made) == {"": rule}


def test_clusters_have_limits_too_but_for_what_is_not_read() -> None:
    made = Cluster()
    made.metadata.name = "member1"
    made.metadata.labels.update({f"label{number}": "" for number in range(1001)})
    made.spec.zones.extend(f"zone{number}" for number in range(1001))
    assert violations(cluster_from_message, made) == {
        "metadata.labels": "holds 1001: at most 1000 are looked at",
        "spec.zones": "holds 1001: at most 1000 are looked at",
    }
    described = Cluster()
    described.metadata.name = "member1"
    summary = described.status.resource_summary
    summary.allocatable.update({f"example.com/r{number}": "1" for number in range(2000)})
    assert cluster_from_message(described).name == "member1"


def test_what_agents_send_has_limits_too() -> None:
    report = Report(epoch=1, sequence=1)
    report.allocated.update({f"example.com/r{number}": 1 for number in range(1001)})
    report.grade_counts.extend(AllocatableModeling(grade=number) for number in range(1001))
    assert violations(report_from_message, report) == {
        "allocated": "holds 1001: at most 1000 are looked at",
        "gradeCounts": "holds 1001: at most 1000 are looked at",
    }
    hello = Hello(epoch=1, placer="none")
    hello.api_enablements.extend(ApiEnablement(group_version=f"g{n}/v1") for n in range(1001))
    assert violations(hello_from_message, hello) == {
        "hello.apiEnablements": "holds 1001: at most 1000 are looked at"
    }


def test_estimates_of_many_resources_are_refused_before_they_are_read() -> None:
    asked = EstimateReplicasRequest()
    asked.shapes.add()
    for number in range(101):
        asked.shapes[0].resource_request[f"example.com/r{number}"] = "no quantity"
    assert list(violations(shapes_from_message, asked)) == ["shapes[0].resourceRequest"]


def test_estimates_of_many_components_are_refused() -> None:
    asked = EstimateComponentSetsRequest()
    for number in range(101):
        asked.components.add(name=f"part-{number}", replicas=1)
    assert list(violations(components_from_message, asked)) == ["components"]
