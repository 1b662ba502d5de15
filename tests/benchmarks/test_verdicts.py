"""Figures are printed beside their goals, and written as JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lab.verdicts import RESULTS_VARIABLE, Verdicts, at_least, at_most, figure


def test_a_row_says_whether_its_goal_is_kept() -> None:
    lines: list[str] = []
    verdicts = Verdicts("bench", say=lines.append)
    verdicts.section("one fleet")
    verdicts.row("decided", 480.4, "/s", goal=at_least(300), detail="p50 3 ms")
    verdicts.row("took", 12.34, "ms", goal=at_most(10))
    verdicts.row("bytes", 1536)
    assert [" ".join(line.split()) for line in lines] == [
        "one fleet",
        "decided 480 /s goal >= 300 /s: kept (p50 3 ms)",
        "took 12.3 ms goal <= 10 ms: MISSED",
        "bytes 1,536",
    ]
    assert verdicts.missed == 1


def test_a_goal_that_is_just_reached_is_kept() -> None:
    assert at_most(10).is_kept_by(10)
    assert at_least(10).is_kept_by(10)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_no_number_keeps_no_limit(value: float) -> None:
    assert not at_most(10).is_kept_by(value)


def test_each_row_is_a_line_of_json_where_a_file_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "figures.jsonl"
    monkeypatch.setenv(RESULTS_VARIABLE, str(path))
    for program in ("one", "other"):
        verdicts = Verdicts(program, say=lambda _: None)
        verdicts.section("one fleet")
        verdicts.row("took", 12.34, "ms", goal=at_most(10))
    first, second = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    assert first.pop("commit") == second.pop("commit")
    assert first == {
        "program": "one",
        "section": "one fleet",
        "name": "took",
        "value": 12.34,
        "unit": "ms",
        "goal": "<= 10",
        "limit": 10,
        "kept": False,
    }
    assert second["program"] == "other"


def test_figures_have_about_three_digits() -> None:
    assert [figure(value) for value in (0, 0.00123, 0.1412, 3.14159, 48.61, 1234.5)] == [
        "0",
        "0.00123",
        "0.14",
        "3.14",
        "48.6",
        "1,234",
    ]
