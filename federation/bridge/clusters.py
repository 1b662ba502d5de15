"""Karmada's Cluster as the control plane's, and its status as a report.

Pure. Must not know whether an agent speaks for a cluster.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from federation.bridge.karmada import Document, KarmadaCluster
from federation.bridge.known_fields import known
from federation.bridge.requests import NO_EXECUTE, NO_SCHEDULE, without_eviction
from federation.codec.clusters import (
    CLUSTER_API_VERSION,
    cluster_from_message,
    cluster_state_from_message,
)
from federation.codec.reports import content_hash
from federation.codec.strict import message_from_document
from federation.model.cluster import UNREACHABLE_KEY, CapacityReport, Cluster, NodeSummary
from federation.model.shapes import Echo
from federation.v1 import resource_pb2

# Whose totals are reported.
SOURCE: Final = "karmada"
# By these Karmada keeps new replicas off clusters that it does not reach or that are not ready.
LOSS: Final = ("cluster.karmada.io/not-ready", "cluster.karmada.io/unreachable")
_SPEC: Final = ("provider", "region", "zone", "zones", "taints", "resourceModels")
_STATUS: Final = (
    "kubernetesVersion",
    "apiEnablements",
    "nodeSummary",
    "resourceSummary",
    "conditions",
)


def cluster_message(
    cluster: KarmadaCluster, unknown: Counter[str], *, failover: bool = False
) -> resource_pb2.Cluster:
    """The cluster with its status. Raises InvalidRequest.

    With ``failover`` its taints evict, and so do those by which Karmada says that it is lost.
    """
    spec = {key: cluster.spec[key] for key in _SPEC if key in cluster.spec}
    taints: list[Document] = list(spec.get("taints") or ())
    if failover:
        spec["taints"] = taints + [{**each, "effect": NO_EXECUTE} for each in _of_loss(taints)]
    else:
        spec["taints"] = list(map(without_eviction, taints))
    document: Document = {
        "apiVersion": CLUSTER_API_VERSION,
        "kind": "Cluster",
        "metadata": {"name": cluster.name, "labels": dict(cluster.labels)},
        "spec": spec,
        "status": {key: cluster.status[key] for key in _STATUS if key in cluster.status},
    }
    fields = known(document, resource_pb2.Cluster.DESCRIPTOR, "", unknown)
    return message_from_document(fields, resource_pb2.Cluster)


def is_lost(cluster: KarmadaCluster) -> bool:
    """Whether Karmada does not reach it, or it is not ready, for longer than a moment."""
    return bool(_of_loss(cluster.spec.get("taints") or ()))


def _of_loss(taints: Iterable[Document]) -> list[Document]:
    return [
        each for each in taints if each.get("key") in LOSS and each.get("effect") == NO_SCHEDULE
    ]


def says_the_same(wanted: resource_pb2.Cluster, stored: resource_pb2.Cluster) -> bool:
    """Whether the control plane has of a cluster what Karmada says. Raises InvalidRequest."""
    return _said(cluster_from_message(wanted)) == _said(cluster_from_message(stored))


def report_of(
    message: resource_pb2.Cluster,
    *,
    model_hash: str,
    interest_version: int,
    echoes: Iterable[Echo],
    now: float,
) -> CapacityReport | None:
    """A Cluster's status as a report without epoch and sequence; None where it has none yet.

    Grades are counted under the model that the Cluster names: under another one, by
    ``model_hash``, they are left out. Raises InvalidRequest.
    """
    status = message.status
    if not status.HasField("resource_summary"):
        return None
    if any(each.count < 0 for each in status.resource_summary.allocatable_modelings):
        # Karmada's own estimate falls back to the summary.
        message = _without_grades(message)
    report = cluster_state_from_message(message, now).report
    if report is None:
        return None
    counts = report.grade_counts if model_hash and report.model_hash == model_hash else {}
    nodes = report.nodes
    total, ready = max(nodes.total, nodes.ready), nodes.ready
    report = replace(
        report,
        grade_counts=counts,
        model_hash=model_hash if counts else "",
        nodes=NodeSummary(total=total, ready=ready, graded=sum(counts.values())),
        interest_version=interest_version,
        echoes=tuple(echoes),
        source=SOURCE,
    )
    return replace(report, content_hash=content_hash(report))


def _without_grades(message: resource_pb2.Cluster) -> resource_pb2.Cluster:
    kept = resource_pb2.Cluster()
    kept.CopyFrom(message)
    kept.status.resource_summary.ClearField("allocatable_modelings")
    return kept


def _said(cluster: Cluster) -> Cluster:
    """What Karmada says of it, in one spelling; taints of the control plane's own are not."""
    taints = sorted(
        (replace(each, time_added=None) for each in cluster.taints if each.key != UNREACHABLE_KEY),
        key=lambda taint: (taint.key, taint.value, taint.effect.value),
    )
    return Cluster(
        name=cluster.name,
        labels=dict(cluster.labels),
        provider=cluster.provider,
        region=cluster.region,
        zones=tuple(sorted(cluster.zones)),
        taints=tuple(taints),
        model=cluster.model,
    )
