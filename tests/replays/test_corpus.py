"""Decisions that were recorded once replay equal, or the revision of the algorithm is raised."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from click.testing import CliRunner

from federation.cli.__main__ import fedctl
from lab.traces import corpus, write_trace


def test_every_recorded_decision_replays_equal_on_one_and_on_two_workers(tmp_path: Path) -> None:
    decisions, bodies = corpus()
    outcomes = Counter(each.outcome for each in decisions)
    assert outcomes.total() >= 200
    assert len(outcomes) == 4, outcomes
    assert min(outcomes.values()) >= 5, outcomes
    path = write_trace(tmp_path / "corpus.trace", decisions, bodies)
    answers = []
    for workers in ("1", "2"):
        command = ["replay", "--trace", str(path), "-o", "json", "--workers", workers]
        answer = CliRunner().invoke(fedctl, command)
        assert answer.exit_code == 0, answer.output
        answers.append(json.loads(answer.stdout))
    assert answers[0] == answers[1]
    assert answers[0]["equal"] == len(decisions), answers[0]["unequal"]
    assert answers[0]["revisions"] == [3]
    assert len(answers[0]["sha256"]) == 64
