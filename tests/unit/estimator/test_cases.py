from __future__ import annotations

import json
from typing import Any

import pytest

from estimator.cases import answers

NODE = {"name": "a", "allocatable": {"cpu": 4, "pods": "10"}}


def answer(**case: Any) -> dict[str, Any]:
    (found,) = answers([json.dumps({"id": 7, **case})])
    return found


def test_a_wrong_line_does_not_stop_the_next() -> None:
    good = json.dumps({"id": ["x"], "nodes": [NODE], "request": {"cpu": "1"}})
    found = list(answers(["not JSON\n", "\n", good]))
    assert found[0]["id"] is None
    assert found[0]["error"]["code"] == "INVALID_ARGUMENT"
    assert found[1] == {"id": ["x"], "replicas": 4}


def test_a_line_of_other_bytes_does_not_stop_the_next() -> None:
    good = json.dumps({"nodes": [NODE], "request": {"cpu": "1"}}).encode()
    bad = good.replace(b'"a"', b'"\xff"')
    wrong, right = answers([bad, good])
    assert wrong["error"]["code"] == "INVALID_ARGUMENT"
    assert right["replicas"] == 4


def test_no_request_takes_pod_slots() -> None:
    assert answer(nodes=[NODE], request=None) == {"id": 7, "replicas": 10}


def test_sets_are_whole() -> None:
    components = [
        {"replicas": 1, "request": {"cpu": "1"}},
        {"replicas": 2, "request": {"cpu": "500m"}},
    ]
    assert answer(nodes=[NODE], components=components) == {"id": 7, "sets": 2}


@pytest.mark.parametrize(
    ("case", "field"),
    [
        ({"nodes": [NODE], "request": {"cpu": "-1"}}, "request[cpu]"),
        (
            {"nodes": [NODE], "components": [{"request": {"cpu": "x"}}]},
            "components[0].request[cpu]",
        ),
        (
            {"nodes": [NODE], "assumed": [[{"request": {"cpu": "x"}}]]},
            "assumed[0][0].request[cpu]",
        ),
        ({"nodes": [NODE], "components": [{"replicas": -1}]}, "components[0].replicas"),
        ({"nodes": [{"name": "a", "allocatable": {"cpu": "x"}}]}, "nodes[a].allocatable[cpu]"),
        ({"nodes": [NODE], "node_order_seen": ["b"]}, "node_order_seen"),
    ],
)
def test_what_is_wrong_is_told_by_its_path(case: dict[str, Any], field: str) -> None:
    found = answer(**case)
    assert found["id"] == 7
    assert found["error"]["field"] == field
