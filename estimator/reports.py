"""A cluster's report as a document: printed by ``estimator report``, read by ``--report``.

Must not compute it: ``estimator.estimation.capacity`` does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from estimator.estimation.capacity import Capacity
from federation.codec.documents import read_json
from federation.codec.models import grade_count_messages, read_grade_counts
from federation.codec.pools import pools_to_message, read_pools
from federation.codec.rules import check_rules
from federation.codec.strict import message_from_document
from federation.codec.summaries import read_summary, summary_to_message
from federation.codec.violations import Violations
from federation.codec.written import document_from_message
from federation.model.cluster import NodeSummary
from federation.model.errors import InvalidRequest
from federation.v1 import agents_pb2, resource_pb2


def document_of(capacity: Capacity) -> dict[str, Any]:
    """The part of a Cluster's status that an agent reports, and the pools of its nodes."""
    summary = summary_to_message(capacity.summary)
    summary.allocatable_modelings.extend(grade_count_messages(capacity.grade_counts))
    nodes = resource_pb2.NodeSummary(
        total_num=capacity.nodes.total,
        ready_num=capacity.nodes.ready,
        graded_num=capacity.nodes.graded,
    )
    status = resource_pb2.ClusterStatus(node_summary=nodes, resource_summary=summary)
    document = document_from_message(status)
    if capacity.pools is not None:
        document["pools"] = document_from_message(pools_to_message(capacity.pools))
    return document


def read_script(text: str, *, source: str) -> tuple[Capacity, ...]:
    """One such document, or a list of them in the order they are to be sent.

    Raises InvalidRequest with paths such as ``[2].nodeSummary.readyNum``.
    """
    content = read_json(text, source=source)
    if not isinstance(content, list):
        return (_capacity(content, ""),)
    if not content:
        raise InvalidRequest.of(source, "holds an empty list: at least one report is needed")
    return tuple(_capacity(document, f"[{position}]") for position, document in enumerate(content))


def _capacity(document: object, path: str) -> Capacity:
    prefix = f"{path}." if path else ""
    violations = Violations()
    pools = None
    if isinstance(document, Mapping) and "pools" in document:
        message = message_from_document(document["pools"], agents_pb2.NodePools, f"{prefix}pools")
        pools = read_pools(message, f"{prefix}pools", violations)
        document = {name: part for name, part in document.items() if name != "pools"}
    status = message_from_document(document, resource_pb2.ClusterStatus, path)
    check_rules(status, path, violations)
    capacity = Capacity(
        summary=read_summary(status.resource_summary, f"{prefix}resourceSummary", violations),
        nodes=NodeSummary(
            total=status.node_summary.total_num,
            ready=status.node_summary.ready_num,
            graded=status.node_summary.graded_num,
        ),
        grade_counts=read_grade_counts(
            status.resource_summary.allocatable_modelings,
            f"{prefix}resourceSummary.allocatableModelings",
            violations,
        ),
        pools=pools,
    )
    violations.check()
    if status.node_summary.graded_num or not capacity.grade_counts:
        return capacity
    # Karmada's own summaries have no such count.
    graded = sum(capacity.grade_counts.values())
    return replace(capacity, nodes=replace(capacity.nodes, graded=graded))
