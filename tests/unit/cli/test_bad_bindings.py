"""The same rules offline: in files under the binding's name, in cases under its place."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from federation.cli.__main__ import fedctl
from tests.bad_bindings import BAD, bad_binding

CLUSTERS = [{"kind": "Cluster", "metadata": {"name": name}} for name in ("m1", "m2")]


@pytest.mark.parametrize("what", list(BAD))
def test_a_file_is_refused_by_the_field(what: str, tmp_path: Path) -> None:
    spec, field, rule = BAD[what]
    file = tmp_path / "all.yaml"
    file.write_text(yaml.safe_dump_all([*CLUSTERS, bad_binding(spec)]), encoding="utf-8")
    result = CliRunner().invoke(fedctl, ["simulate", "-f", str(file)])
    assert result.exit_code == 1
    assert result.stderr == f"error: ResourceBinding/web.{field}: {rule}\n"


def test_a_line_of_cases_is_refused_by_the_field(tmp_path: Path) -> None:
    file = tmp_path / "cases.jsonl"
    lines = [
        json.dumps({"id": what, "clusters": CLUSTERS, "bindings": [bad_binding(BAD[what][0])]})
        for what in BAD
    ]
    file.write_text("\n".join(lines), encoding="utf-8")
    result = CliRunner().invoke(fedctl, ["simulate", "--cases", str(file)])
    assert result.exit_code == 0
    answers = {
        answer["id"]: answer["error"] for answer in map(json.loads, result.stdout.splitlines())
    }
    for what, (_, field, rule) in BAD.items():
        assert answers[what]["code"] == "INVALID_ARGUMENT"
        assert answers[what]["field"] == f"bindings[0].{field}"
        assert answers[what]["message"] == f"bindings[0].{field}: {rule}"


def test_sums_beyond_an_int32_just_work(tmp_path: Path) -> None:
    most = 2**31 - 1
    case = {"id": 1, "clusters": CLUSTERS, "bindings": [bad_binding({"replicas": most})]}
    file = tmp_path / "cases.jsonl"
    file.write_text(json.dumps(case), encoding="utf-8")
    result = CliRunner().invoke(fedctl, ["simulate", "--cases", str(file)])
    (decision,) = json.loads(result.stdout)["decisions"]
    assert decision["clusters"] == [
        {"name": "m1", "replicas": most},
        {"name": "m2", "replicas": most},
    ]
