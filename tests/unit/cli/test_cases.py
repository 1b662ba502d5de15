"""Files of cases: wrong lines harm only themselves, ids come back unchanged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from federation.cli.__main__ import fedctl
from federation.codec.documents import MAX_DOCUMENT_BYTES

CLUSTER = {
    "metadata": {"name": "m1"},
    "status": {"resourceSummary": {"allocatable": {"cpu": "4", "pods": "10"}}},
}
GOOD = {"clusters": [CLUSTER], "request": {"cpu": "500m"}}
BINDING = {"metadata": {"name": "web"}, "spec": {"replicas": 2, "placement": {}}}


def answers(verb: str, *lines: bytes | dict[str, Any], tmp_path: Path) -> list[dict[str, Any]]:
    file = tmp_path / "cases.jsonl"
    file.write_bytes(
        b"\n".join(line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines)
    )
    result = CliRunner().invoke(fedctl, [verb, "--cases", str(file)])
    assert result.exit_code == 0
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_an_estimate_case(tmp_path: Path) -> None:
    case = {**GOOD, "id": 1, "nodeClaim": {"nodeSelector": {"a": "b"}}, "ignored": []}
    assert answers("estimate", case, tmp_path=tmp_path) == [
        {
            "id": 1,
            "estimates": [{"cluster": "m1", "replicas": 8, "source": "summary", "bound": "none"}],
        }
    ]


def graded(name: str, grade: int, nodes: int) -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "status": {
            "resourceSummary": {
                "allocatable": {"cpu": "80", "memory": "640Gi", "pods": "1000"},
                "allocatableModelings": [{"grade": grade, "count": nodes}],
            }
        },
    }


def test_a_replica_goes_where_grades_surely_hold_it(tmp_path: Path) -> None:
    # Of ten nodes with 8 to 16 cores nobody knows whether one has 12; both nodes of b have 16.
    spec = {
        "replicas": 1,
        "placement": {
            "replicaScheduling": {
                "replicaSchedulingType": "Divided",
                "replicaDivisionPreference": "Aggregated",
            }
        },
        "replicaRequirements": {"resourceRequest": {"cpu": "12", "memory": "12Gi"}},
    }
    binding = {"metadata": {"namespace": "shop", "name": "w"}, "spec": spec}
    case = {"clusters": [graded("a", 4, 10), graded("b", 5, 2)], "bindings": [binding]}
    (answer,) = answers("simulate", case, tmp_path=tmp_path)
    (decision,) = answer["decisions"]
    assert decision["clusters"] == [{"name": "b", "replicas": 1}]


def test_a_cluster_that_never_reported_is_unknown(tmp_path: Path) -> None:
    case = {"clusters": [{"metadata": {"name": "m1"}}], "request": {}}
    (answer,) = answers("estimate", case, tmp_path=tmp_path)
    assert answer["estimates"] == [
        {"cluster": "m1", "replicas": None, "source": "unknown", "bound": "none"}
    ]


def test_the_order_of_the_clusters_is_kept(tmp_path: Path) -> None:
    clusters = [{**CLUSTER, "metadata": {"name": name}} for name in ("b", "c", "a")]
    (answer,) = answers("estimate", {"clusters": clusters}, tmp_path=tmp_path)
    assert [each["cluster"] for each in answer["estimates"]] == ["b", "c", "a"]
    assert [each["replicas"] for each in answer["estimates"]] == [10, 10, 10]


@pytest.mark.parametrize("case_id", [None, "a", 1.5, [1, {"b": None}], {"x": "\u00e9"}])
def test_any_id_comes_back(case_id: Any, tmp_path: Path) -> None:
    lines = [{**GOOD, "id": case_id}, {"id": case_id}]
    assert [each["id"] for each in answers("estimate", *lines, tmp_path=tmp_path)] == [case_id] * 2


def test_blank_lines_are_passed_over(tmp_path: Path) -> None:
    assert len(answers("estimate", b"", GOOD, b"  ", GOOD, b"", tmp_path=tmp_path)) == 2


@pytest.mark.parametrize(
    ("line", "field", "said"),
    [
        (b"{", "line 1", "is not JSON"),
        (b"[1]", "line 1", "must be a JSON object"),
        (b"\xff\xfe", "line 1", "is not UTF-8"),
        (b'{"id": NaN}', "line 1", "is not JSON"),
        (b"[" * 100_000, "line 1", "nested too deeply"),
        (b" " * (MAX_DOCUMENT_BYTES + 10) + b"{}", "line 1", "16 MiB"),
        ({}, "clusters", "is required"),
        ({"clusters": {}}, "clusters", "a list"),
        ({**GOOD, "options": []}, "options", "must be an object"),
        ({**GOOD, "options": {"modelRule": "best"}}, "options.modelRule", "documented"),
        ({**GOOD, "options": {"merge": 1}}, "options.merge", "must be text"),
        ({**GOOD, "options": {"source": "none"}}, "options.source", "summary"),
        ({**GOOD, "request": {"cpu": "1 Gi"}}, "request[cpu]", "is not a quantity"),
        ({**GOOD, "request": ["cpu"]}, "request", "must be an object"),
        ({**GOOD, "nodeClaim": {"selector": {}}}, "nodeClaim.selector", "no such field"),
        ({**GOOD, "clusters": [1]}, "clusters[0]", "must be an object"),
        ({**GOOD, "clusters": [CLUSTER, CLUSTER]}, "clusters[1].metadata.name", "already"),
        (
            {**GOOD, "clusters": [{**CLUSTER, "kind": "Node"}]},
            "clusters[0].kind",
            "must be Cluster",
        ),
    ],
)
def test_a_wrong_line_says_why_and_the_next_goes_on(
    line: bytes | dict[str, Any], field: str, said: str, tmp_path: Path
) -> None:
    wrong, right = answers("estimate", line, GOOD, tmp_path=tmp_path)
    assert wrong["error"]["code"] == "INVALID_ARGUMENT"
    assert wrong["error"]["field"] == field
    assert said in wrong["error"]["message"]
    assert "estimates" in right


@pytest.mark.parametrize(
    ("case", "field", "said"),
    [
        ({"clusters": [CLUSTER]}, "bindings", "is required"),
        (
            {"clusters": [CLUSTER], "bindings": [{"metadata": {"name": "a"}}]},
            "bindings[0].spec.placement",
            "is required",
        ),
        (
            {"clusters": [CLUSTER], "bindings": [BINDING, BINDING]},
            "bindings[1].metadata.name",
            "already",
        ),
        (
            {"clusters": [CLUSTER], "bindings": [{"spec": {"replicas": "many"}}]},
            "bindings[0].spec.replicas",
            "whole number",
        ),
        (
            {"clusters": [CLUSTER], "bindings": [], "options": {"tieBreak": "coin"}},
            "options.tieBreak",
            "hash or karmada",
        ),
        (
            {"clusters": [CLUSTER], "bindings": [], "options": {"reserve": "yes"}},
            "options.reserve",
            "true or false",
        ),
        (
            {"clusters": [CLUSTER], "bindings": [], "options": {"availableReplicas": {"m9": 1}}},
            "options.availableReplicas[m9]",
            "names no cluster",
        ),
        (
            {"clusters": [CLUSTER], "bindings": [], "options": {"availableReplicas": {"m1": -1}}},
            "options.availableReplicas[m1]",
            "from 0",
        ),
        (
            {"clusters": [CLUSTER], "bindings": [], "options": {"availableReplicas": {"m1": "x"}}},
            "options.availableReplicas[m1]",
            "whole number",
        ),
        (
            {"clusters": [CLUSTER], "bindings": [], "options": {"availableReplicas": [1]}},
            "options.availableReplicas",
            "must be an object",
        ),
    ],
)
def test_wrong_simulations_say_why(
    case: dict[str, Any], field: str, said: str, tmp_path: Path
) -> None:
    (answer,) = answers("simulate", {"id": 3, **case}, tmp_path=tmp_path)
    assert answer["id"] == 3
    assert answer["error"]["field"] == field
    assert said in answer["error"]["message"]


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    result = CliRunner().invoke(fedctl, ["simulate", "--cases", str(tmp_path / "none")])
    assert result.exit_code == 1
    assert "cannot be read" in result.stderr


def test_cases_from_standard_input() -> None:
    result = CliRunner().invoke(fedctl, ["estimate", "--cases", "-"], input=json.dumps(GOOD))
    assert json.loads(result.stdout)["estimates"][0]["replicas"] == 8


def test_sets_are_estimated_beside_assumed_workloads(tmp_path: Path) -> None:
    summary = {"allocatable": {"cpu": "10", "pods": "20"}}
    case = {
        "id": 1,
        "clusters": [{"metadata": {"name": "a"}, "status": {"resourceSummary": summary}}],
        "components": [
            {"name": "manager", "request": {"cpu": "1"}},
            {"name": "worker", "replicas": 2, "request": {"cpu": "500m"}},
        ],
        "assumed": [[{"replicas": 3, "request": {"cpu": "1"}}]],
    }
    wrong = {**case, "id": 2, "components": [{"replicas": -1}]}
    bad_request = {**case, "id": 3, "assumed": [[{"request": {"cpu": "x"}}]]}
    good, *refused = answers("estimate", case, wrong, bad_request, tmp_path=tmp_path)
    assert good["estimates"] == [{"cluster": "a", "sets": 3, "source": "summary", "bound": "none"}]
    assert [each["error"]["field"] for each in refused] == [
        "components[0].replicas",
        "assumed[0][0].request[cpu]",
    ]
