"""Agents' reports on the wire, and the hash that names their content."""

from __future__ import annotations

from dataclasses import replace

import pytest

from federation.codec.reports import content_hash, report_from_message, report_to_message
from federation.model.cluster import CapacityReport, NodeSummary, ResourceSummary
from federation.model.errors import InvalidRequest
from federation.v1 import agents_pb2

REPORT = CapacityReport(
    epoch=1,
    sequence=2,
    snapshot_time=1_700_000_000.25,
    summary=ResourceSummary(
        allocatable={"cpu": 4000, "memory": 8 << 30, "pods": 110},
        allocated={"cpu": 100, "pods": 3},
        allocating={"pods": 1},
    ),
    nodes=NodeSummary(total=3, ready=2, graded=2),
    grade_counts={0: 1, 2: 1},
    model_hash="abc",
)


def test_a_report_comes_back_with_its_hash() -> None:
    for report in (REPORT, replace(REPORT, source="karmada")):
        read = report_from_message(report_to_message(report))
        assert read == replace(report, content_hash=content_hash(report))


def test_the_hash_names_the_content_alone() -> None:
    again = replace(
        REPORT,
        sequence=9,
        snapshot_time=0.0,
        grade_counts={2: 1, 0: 1},
        summary=replace(REPORT.summary, allocatable={"pods": 110, "memory": 8 << 30, "cpu": 4000}),
    )
    assert content_hash(again) == content_hash(REPORT)
    assert content_hash(replace(REPORT, model_hash="x")) != content_hash(REPORT)
    assert content_hash(replace(REPORT, grade_counts={0: 2})) != content_hash(REPORT)
    assert content_hash(replace(REPORT, source="karmada")) != content_hash(REPORT)


@pytest.mark.parametrize(
    ("field", "message"),
    [
        ("epoch", agents_pb2.Report(sequence=1)),
        ("sequence", agents_pb2.Report(epoch=1, sequence=-1)),
        ("allocatable[cpu]", agents_pb2.Report(epoch=1, sequence=1, allocatable={"cpu": -1})),
        ("allocated[]", agents_pb2.Report(epoch=1, sequence=1, allocated={"": 1})),
        (
            "gradeCounts[0].count",
            agents_pb2.Report(epoch=1, sequence=1, grade_counts=[{"count": -1}]),
        ),
        ("totalNodes", agents_pb2.Report(epoch=1, sequence=1, total_nodes=-1)),
        ("modelHash", agents_pb2.Report(epoch=1, sequence=1, model_hash="a\0")),
        ("source", agents_pb2.Report(epoch=1, sequence=1, source="a\nb")),
        ("snapshotTime", agents_pb2.Report(epoch=1, sequence=1, snapshot_time={"seconds": 10**15})),
    ],
)  # fmt: skip
def test_broken_rules_are_told_by_field(field: str, message: agents_pb2.Report) -> None:
    with pytest.raises(InvalidRequest) as caught:
        report_from_message(message)
    assert [each.field for each in caught.value.violations] == [field]
