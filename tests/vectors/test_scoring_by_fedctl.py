"""Every recorded scoring line, run through ``fedctl score --cases`` as anybody would."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from federation.cli.__main__ import fedctl
from tests.vectors.loading import read_lines

HERE = Path(__file__).parent


def answers(name: str) -> list[dict[str, Any]]:
    """The lines that the program prints for a recorded file, with the ids of the recording."""
    result = CliRunner().invoke(fedctl, ["score", "--cases", str(HERE / f"{name}.jsonl")])
    assert result.exit_code == 0, result.output
    printed = [json.loads(line) for line in result.stdout.splitlines()]
    assert [line["id"] for line in printed] == [line["id"] for line in read_lines(name)]
    return printed


def test_fit_objects() -> None:
    expected = [
        [
            {key: node[key] for key in ("name", "score", "balanced", "insufficient")}
            for node in line["expect"]["nodes"]
        ]
        for line in read_lines("scoring-fit-objects")
    ]
    assert [line["nodes"] for line in answers("scoring-fit-objects")] == expected


def test_fit_raw() -> None:
    expected = [
        (
            "",
            line["expect_score"],
            None if line["expect_balanced_skip"] else line["expect_balanced"],
        )
        for line in read_lines("scoring-fit-raw")
    ]
    assert [
        (node["name"], node["score"], node["balanced"])
        for line in answers("scoring-fit-raw")
        for node in line["nodes"]
    ] == expected


def test_volcano() -> None:
    recorded = read_lines("scoring-volcano")
    printed = answers("scoring-volcano")
    assert [[node["name"] for node in line["nodes"]] for line in printed] == [
        [node["name"] for node in line["nodes"]] for line in recorded
    ]
    assert [node["score"] for line in printed for node in line["nodes"]] == pytest.approx(
        [node["expect_score"] for line in recorded for node in line["nodes"]], rel=1e-12
    )


def test_config_validation() -> None:
    for line, printed in zip(
        read_lines("scoring-config-validation"), answers("scoring-config-validation"), strict=True
    ):
        assert printed["stage"] == line["stage"]
        assert printed["valid"] is (line["stage"] == "ok")
        if line["stage"] in ("validate", "plugin"):
            assert [
                error["field"].removeprefix("profiles[0].pluginConfig[0].args.")
                for error in printed["errors"]
            ] == [
                error["field"].removeprefix("profiles[0].pluginConfig[0].args.")
                for error in line["errors"]
            ]
