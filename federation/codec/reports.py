"""Agents' reports, from messages and back, and the hash that names their content.

Must not compare reports with each other: whether one is newer or contradicts itself is decided by
the service that accepts it.
"""

from __future__ import annotations

import hashlib
import json

from federation.codec import ranges
from federation.codec.echoes import MAX_ECHO_BYTES, put_echoes, read_echoes
from federation.codec.models import grade_count_messages, read_grade_counts
from federation.codec.pools import pools_to_message, read_pools
from federation.codec.rules import check_rules
from federation.codec.strict import refuse_nul
from federation.codec.timestamps import timestamp_from_seconds
from federation.codec.violations import Violations
from federation.model.cluster import CapacityReport, NodeSummary, ResourceSummary
from federation.v1 import agents_pb2


def report_from_message(message: agents_pb2.Report) -> CapacityReport:
    """The report; raises InvalidRequest with every broken rule."""
    found = Violations()
    check_rules(message, "", found)
    found.check()
    refuse_nul(message, "", found)
    report = CapacityReport(
        epoch=message.epoch,
        sequence=message.sequence,
        snapshot_time=ranges.seconds(message.snapshot_time, "snapshotTime", found),
        summary=ResourceSummary(
            allocatable=dict(message.allocatable),
            allocated=dict(message.allocated),
            allocating=dict(message.allocating),
        ),
        nodes=NodeSummary(
            total=message.total_nodes,
            ready=message.ready_nodes,
            graded=message.graded_nodes,
        ),
        grade_counts=read_grade_counts(message.grade_counts, "gradeCounts", found),
        model_hash=message.model_hash,
        content_hash=message.content_hash,
        pools=read_pools(message.pools, "pools", found) if message.HasField("pools") else None,
        interest_version=message.interest_version,
        echoes=read_echoes(message, MAX_ECHO_BYTES, found),
        picture_age_seconds=max(0.0, message.sight.picture_age_seconds),
        source=message.source,
    )
    found.check()
    return report


def report_to_message(report: CapacityReport) -> agents_pb2.Report:
    message = agents_pb2.Report(
        epoch=report.epoch,
        sequence=report.sequence,
        snapshot_time=timestamp_from_seconds(report.snapshot_time),
        allocatable=report.summary.allocatable,
        allocated=report.summary.allocated,
        allocating=report.summary.allocating,
        total_nodes=report.nodes.total,
        ready_nodes=report.nodes.ready,
        graded_nodes=report.nodes.graded,
        grade_counts=grade_count_messages(report.grade_counts),
        model_hash=report.model_hash,
        content_hash=report.content_hash or content_hash(report),
        pools=None if report.pools is None else pools_to_message(report.pools),
        interest_version=report.interest_version,
        source=report.source,
    )
    put_echoes(report.echoes, message)
    return message


def content_hash(report: CapacityReport) -> str:
    """SHA-256 in hex over what a report says, whenever and in whatever order it says it."""
    content = {
        "allocatable": dict(report.summary.allocatable),
        "allocated": dict(report.summary.allocated),
        "allocating": dict(report.summary.allocating),
        "nodes": [report.nodes.total, report.nodes.ready, report.nodes.graded],
        "gradeCounts": sorted(report.grade_counts.items()),
        "modelHash": report.model_hash,
    }
    if report.source:
        content["source"] = report.source
    spelled = json.dumps(content, sort_keys=True, separators=(",", ":"))
    digest = hashlib.sha256(spelled.encode())
    if report.pools is not None:
        digest.update(pools_to_message(report.pools).SerializeToString(deterministic=True))
    if report.interest_version or report.echoes:
        digest.update(_echoes_spelled(report))
    return digest.hexdigest()


def _echoes_spelled(report: CapacityReport) -> bytes:
    message = agents_pb2.Report(interest_version=report.interest_version)
    put_echoes(sorted(report.echoes, key=lambda echo: echo.key), message)
    return message.SerializeToString(deterministic=True)
