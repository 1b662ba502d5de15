from __future__ import annotations

import json

import pytest

from estimator.estimation.capacity import Capacity
from estimator.reports import document_of, read_script
from federation.model.cluster import NodeSummary, ResourceSummary
from federation.model.errors import InvalidRequest
from federation.model.resources import CPU, MEMORY, PODS

CAPACITY = Capacity(
    summary=ResourceSummary(
        allocatable={CPU: 4500, MEMORY: 16 << 30, PODS: 110},
        allocated={CPU: 950, PODS: 10},
        allocating={},
    ),
    nodes=NodeSummary(total=2, ready=1, graded=1),
    grade_counts={0: 0, 1: 1},
)


def test_a_printed_report_can_be_sent_as_a_script() -> None:
    document = document_of(CAPACITY)
    assert document["resourceSummary"]["allocatable"][CPU] == "4500m"
    assert read_script(json.dumps(document), source="f") == (CAPACITY,)
    assert read_script(json.dumps([document, document]), source="f") == (CAPACITY, CAPACITY)


def test_a_summary_without_our_count_of_graded_nodes_gets_it() -> None:
    document = document_of(CAPACITY)
    del document["nodeSummary"]["gradedNum"]
    (read,) = read_script(json.dumps(document), source="f")
    assert read.nodes.graded == 1


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("[]", "script.json"),
        ("nothing", "script.json"),
        ('[{}, {"nodeSummary": {"redyNum": 1}}]', r"[1].nodeSummary.redyNum"),
        ('{"resourceSummary": {"allocatable": {"cpu": "x"}}}', "resourceSummary.allocatable[cpu]"),
        (
            '{"resourceSummary": {"allocatableModelings": [{"grade": 1, "count": -1}]}}',
            "resourceSummary.allocatableModelings[0].count",
        ),
    ],
)
def test_what_is_no_report_is_refused_by_its_path(text: str, path: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        read_script(text, source="script.json")
    assert refused.value.violations[0].field.startswith(path)
