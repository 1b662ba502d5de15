"""Pictures of a fleet: what is left out changes no decision, and few are kept."""

from __future__ import annotations

from collections import Counter

import msgspec

from bridge.clusters import cluster_message
from bridge.karmada import RawCluster, cluster_from_raw
from bridge.pictures import (
    MAX_PICTURES,
    MAX_REQUEST_BYTES,
    MAX_ROWS,
    PICTURE_SECONDS,
    Backlog,
    ShadowFleet,
    clusters_for,
    parts,
    small,
)
from federation.codec.models import model_to_messages
from federation.model.grades import DEFAULT_MODEL
from federation.v1 import resource_pb2
from lab.karmadas import member


def message(*kinds: str) -> resource_pb2.Cluster:
    document = member("m1")
    resources = [{"name": kind.lower(), "kind": kind} for kind in kinds]
    document["status"]["apiEnablements"] = [{"groupVersion": "apps/v1", "resources": resources}]
    return cluster_message(cluster_from_raw(msgspec.convert(document, RawCluster)), Counter())


def asked(kind: str) -> resource_pb2.ResourceBinding:
    resource = resource_pb2.ObjectReference(api_version="apps/v1", kind=kind)
    return resource_pb2.ResourceBinding(spec=resource_pb2.ResourceBindingSpec(resource=resource))


def kinds_sent(*kinds: str) -> list[str]:
    """The kinds with which a cluster goes along with a Deployment."""
    (cluster,) = clusters_for((small(message(*kinds)),), [asked("Deployment")])
    enablements = cluster.status.api_enablements
    return [each.kind for enablement in enablements for each in enablement.resources]


def test_only_the_kinds_that_are_asked_for_travel() -> None:
    assert kinds_sent("StatefulSet", "Deployment", "DaemonSet") == ["Deployment"]
    # Without any it would count as a cluster that serves all.
    assert kinds_sent("StatefulSet", "DaemonSet") == ["StatefulSet"]
    assert kinds_sent() == []


def test_the_model_that_all_clusters_have_does_not_travel() -> None:
    cluster = message("Deployment")
    cluster.spec.resource_models.extend(model_to_messages(DEFAULT_MODEL))
    assert not resource_pb2.Cluster.FromString(small(cluster)).spec.resource_models
    other = message("Deployment")
    grade = other.spec.resource_models.add(grade=0)
    grade.ranges.add(name="cpu", min="0", max=str(2**63 - 1))
    assert resource_pb2.Cluster.FromString(small(other)).spec.resource_models


def test_parts_keep_to_the_bytes_of_a_call_and_the_rows_of_an_answer() -> None:
    assert list(parts([], 10, 100)) == []
    assert list(parts([100] * 5, 10, 100)) == [(0, 5)]
    third = (MAX_REQUEST_BYTES - 100) // 3
    assert list(parts([third] * 5, 10, 100)) == [(0, 3), (3, 5)]
    assert list(parts([1] * 5, MAX_ROWS // 2, 100)) == [(0, 2), (2, 4), (4, 5)]
    assert list(parts([1] * 2, 10 * MAX_ROWS, 100)) == [(0, 1), (1, 2)]
    assert list(parts([1] * 2, 10, MAX_REQUEST_BYTES)) == []


def test_few_pictures_are_kept_and_what_is_passed_over_is_counted() -> None:
    now = 0.0
    backlog: Backlog[int] = Backlog(100, lambda: now)
    looks: list[ShadowFleet] = []

    def look() -> ShadowFleet:
        looks.append((bytes([len(looks) % 256]),))
        return looks[-1]

    for number in range(3):
        backlog.add(number, look)
    # Of one second: one picture.
    assert len(looks) == 1
    for number in range(3, 3 + MAX_PICTURES):
        now += PICTURE_SECONDS
        backlog.add(number, look)
    assert backlog.passed_over == 3
    assert backlog.take() == (3, looks[1])
    assert len(backlog) == MAX_PICTURES - 1


def test_few_decisions_wait() -> None:
    backlog: Backlog[int] = Backlog(2, lambda: 0.0)
    for number in range(5):
        backlog.add(number, lambda: (b"",))
    assert backlog.passed_over == 3
    assert [backlog.take()[0] for _ in range(2)] == [3, 4]
