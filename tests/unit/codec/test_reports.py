"""Agents' reports on the wire, and the hash that names their content."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federation.codec.echoes import MAX_ECHO_BYTES, echo_bytes, fitting, put_echoes
from federation.codec.reports import content_hash, report_from_message, report_to_message
from federation.model.cluster import CapacityReport, NodeSummary, ResourceSummary
from federation.model.shapes import Echo, request_shape
from federation.v1 import agents_pb2
from tests.unit.codec.documents import violations

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
    ("field", "wrong"),
    [
        ("epoch", {"epoch": 0}),
        ("sequence", {"sequence": -1}),
        ("allocatable[cpu]", {"allocatable": {"cpu": -1}}),
        ("allocated[]", {"allocated": {"": 1}}),
        ("gradeCounts[0].count", {"grade_counts": [{"count": -1}]}),
        ("totalNodes", {"total_nodes": -1}),
        ("modelHash", {"model_hash": "a\0"}),
        ("source", {"source": "a\nb"}),
        ("snapshotTime", {"snapshot_time": {"seconds": 10**15}}),
    ],
)
def test_broken_rules_are_told_by_field(field: str, wrong: dict[str, Any]) -> None:
    message = agents_pb2.Report(**{"epoch": 1, "sequence": 1, **wrong})
    assert list(violations(report_from_message, message)) == [field]


WEB, GPU = request_shape({"cpu": 250, "memory": 1 << 30}), request_shape({"nvidia.com/gpu": 1})
ECHOES = (
    Echo(binding="shop/web", shape=WEB, bound=2, unbound=1),
    Echo(binding="shop/train", component="worker", shape=GPU, finished=3),
    Echo(binding="shop/db", shape=WEB, bound=1),
)
ECHOING = replace(REPORT, interest_version=7, echoes=ECHOES)


def test_echoes_come_back_and_each_shape_travels_once() -> None:
    message = report_to_message(ECHOING)
    assert len(message.echo_shapes) == 2
    read = report_from_message(message)
    assert (read.interest_version, read.echoes) == (7, ECHOES)


def test_the_hash_covers_echoes_in_any_order() -> None:
    again = replace(ECHOING, echoes=ECHOES[::-1])
    assert content_hash(again) == content_hash(ECHOING)
    one_more = (replace(ECHOES[0], bound=3), *ECHOES[1:])
    different = {
        content_hash(each)
        for each in (
            REPORT,
            ECHOING,
            replace(ECHOING, interest_version=8),
            replace(ECHOING, echoes=one_more),
        )
    }
    assert len(different) == 4


BAD: dict[str, dict[str, Any]] = {
    "interestVersion": {"interest_version": -1},
    "echoShapes[0].request[no name]": {"echo_shapes": [{"request": {"no name": 1}}]},
    "echoShapes[0].request[cpu]": {"echo_shapes": [{"request": {"cpu": -1}}]},
    "echoes[0].binding": {"echo_shapes": [{}], "echoes": [{}]},
    "echoes[0].shape": {"echoes": [{"binding": "b"}]},
    "echoes[1].shape": {
        "echo_shapes": [{}],
        "echoes": [{"binding": "b"}, {"binding": "c", "shape": -1}],
    },
    "echoes[0].bound": {"echo_shapes": [{}], "echoes": [{"binding": "b", "bound": -1}]},
    "echoes[0].unbound": {"echo_shapes": [{}], "echoes": [{"binding": "b", "unbound": 2**31}]},
    "echoes[0].finished": {"echo_shapes": [{}], "echoes": [{"binding": "b", "finished": -1}]},
    "echoes": {"echo_shapes": [{}], "echoes": [{"binding": "b"}, {"binding": "b"}]},
}


@pytest.mark.parametrize("field", BAD)
def test_broken_rules_of_echoes_are_told_by_field(field: str) -> None:
    message = agents_pb2.Report(epoch=1, sequence=1, **BAD[field])
    assert list(violations(report_from_message, message)) == [field]


def test_a_thousand_wrong_echoes_are_not_told_one_by_one() -> None:
    message = agents_pb2.Report(epoch=1, sequence=1, echoes=[agents_pb2.Echo()] * 1000)
    assert len(violations(report_from_message, message)) < 20


@given(
    st.lists(
        st.tuples(st.text("abc€", max_size=12), st.text("xy", max_size=6), st.integers(0, 3)),
        unique=True,
        max_size=20,
    )
)
def test_what_fits_by_its_texts_fits_on_the_wire(keys: list[tuple[str, str, int]]) -> None:
    echoes = [
        Echo(
            binding=f"n/{name}" * 10_000,
            component=component,
            shape=request_shape({f"example.com/{kind}": 2**62, "cpu": 2**62}),
            bound=2**31 - 1,
            unbound=2**31 - 1,
            finished=2**31 - 1,
        )
        for name, component, kind in keys
    ]
    kept = fitting(echoes)
    message = agents_pb2.Report()
    put_echoes(kept, message)
    assert echo_bytes(message) <= MAX_ECHO_BYTES
    assert {echo.key for echo in kept} <= {echo.key for echo in echoes}
    if len(kept) == len(echoes):
        return
    put_echoes(echoes, rest := agents_pb2.Report())
    assert echo_bytes(rest) > MAX_ECHO_BYTES * 0.9


def test_many_small_echoes_are_cut_to_what_a_report_holds() -> None:
    echoes = [
        Echo(binding=f"shop/workload-{number:06}", shape=WEB, bound=1) for number in range(60_000)
    ]
    kept = fitting(echoes)
    message = agents_pb2.Report()
    put_echoes(kept, message)
    assert 20_000 < len(kept) < 60_000
    assert echo_bytes(message) <= MAX_ECHO_BYTES
