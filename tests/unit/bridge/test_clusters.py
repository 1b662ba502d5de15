"""Karmada's Cluster as the control plane's, its status as a report, and what is ready there."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec

from bridge.clusters import cluster_message, is_lost, report_of, says_the_same
from bridge.karmada import KarmadaCluster, RawCluster, ReadyReplicas, cluster_from_raw
from federation.model.cluster import UNREACHABLE_KEY
from federation.model.grades import DEFAULT_MODEL, model_hash
from federation.v1 import resource_pb2
from lab.karmadas import member
from tests.unit.bridge.bindings import read, stored

GRADES = [{"grade": 0, "count": 1}, {"grade": 3, "count": 3}]
HASH = model_hash(DEFAULT_MODEL)


def cluster(**spec: Any) -> KarmadaCluster:
    document = member("m1", **spec)
    document["status"]["resourceSummary"]["allocatableModelings"] = GRADES
    document["metadata"]["labels"] = {"tier": "gold"}
    return cluster_from_raw(msgspec.convert(document, RawCluster))


def message(**spec: Any) -> resource_pb2.Cluster:
    return cluster_message(cluster(**spec), Counter())


def test_a_cluster_is_told_as_it_is_described() -> None:
    taint = {"key": "maintenance", "effect": "NoExecute", "timeAdded": "2026-03-01T12:00:00Z"}
    told = message(region="r1", zones=["b", "a"], provider="p", taints=[taint])
    assert told.spec.region == "r1"
    assert dict(told.metadata.labels) == {"tier": "gold"}
    # Nothing that runs there is moved because of it: that is Karmada's own to do.
    assert [each.effect for each in told.spec.taints] == ["NoSchedule"]
    assert [each.group_version for each in told.status.api_enablements] == ["apps/v1"]


def test_with_failover_taints_evict_and_so_does_that_a_cluster_is_lost() -> None:
    taints = [
        {"key": "maintenance", "effect": "NoExecute"},
        {"key": "cluster.karmada.io/unreachable", "effect": "NoSchedule"},
        {"key": "other", "effect": "NoSchedule"},
    ]
    told = cluster_message(cluster(taints=taints), Counter(), failover=True).spec.taints
    assert [(each.key, each.effect) for each in told] == [
        ("maintenance", "NoExecute"),
        ("cluster.karmada.io/unreachable", "NoSchedule"),
        ("other", "NoSchedule"),
        ("cluster.karmada.io/unreachable", "NoExecute"),
    ]
    assert is_lost(cluster(taints=taints))
    assert not is_lost(cluster(taints=taints[:1]))


def test_what_is_stored_already_is_not_updated() -> None:
    ours = resource_pb2.Taint(key=UNREACHABLE_KEY, effect="NoExecute")
    told, known = message(zones=["b", "a"]), message(zones=["a", "b"])
    known.spec.taints.append(ours)
    known.metadata.annotations["team"] = "shop"
    assert says_the_same(told, known)
    assert not says_the_same(told, message(zones=["a"]))


def test_the_status_is_a_report_with_totals_and_grades() -> None:
    report = report_of(message(), model_hash=HASH, interest_version=3, echoes=(), now=5.0)
    assert report is not None
    assert report.summary.allocatable["cpu"] == 10_000
    assert report.grade_counts == {0: 1, 3: 3}
    assert (report.nodes.graded, report.nodes.total) == (4, 4)
    assert report.pools is None
    other_model = report_of(message(), model_hash="x", interest_version=0, echoes=(), now=5.0)
    assert other_model is not None
    assert other_model.grade_counts == {}


def test_a_cluster_without_totals_is_unknown() -> None:
    bare = message()
    bare.status.ClearField("resource_summary")
    assert report_of(bare, model_hash=HASH, interest_version=0, echoes=(), now=5.0) is None


def test_grades_that_cannot_be_are_left_out() -> None:
    wrong = message()
    wrong.status.resource_summary.allocatable_modelings[0].count = -1
    report = report_of(wrong, model_hash=HASH, interest_version=0, echoes=(), now=5.0)
    assert report is not None
    assert report.grade_counts == {}


def test_only_evidence_of_the_newest_spec_counts_as_ready() -> None:
    """Not health: it may be of an older assignment, and a Job is always healthy."""

    def ready(status: dict[str, Any] | None, *, applied: bool = True) -> dict[str, ReadyReplicas]:
        item = {"clusterName": "m1", "applied": applied, "health": "Healthy", "status": status}
        elsewhere = {"clusterName": "m9", "applied": True, "status": {"readyReplicas": 5}}
        told = stored(
            clusters=[{"name": "m1", "replicas": 3}],
            status={"aggregatedStatus": [item, elsewhere]},
        )
        return dict(told.ready)

    current = {"readyReplicas": 2, "generation": 4, "observedGeneration": 4}
    assert ready(current) == {"m1": ReadyReplicas(2)}
    assert ready({"readyReplicas": 9}) == {"m1": ReadyReplicas(3)}
    assert ready({"replicas": 3}) == {"m1": ReadyReplicas()}
    assert ready({**current, "generation": 5}) == {"m1": ReadyReplicas()}
    assert ready({"active": 2}) == {"m1": ReadyReplicas(2)}
    assert ready({"active": 1, "succeeded": 5}) == {"m1": ReadyReplicas(1, 3)}
    assert ready({"readyReplicas": 2}, applied=False) == {}
    assert ready(None) == {}
    assert read({"metadata": {"name": "web"}, "spec": {}}).ready == {}
