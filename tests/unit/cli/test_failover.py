"""Ages of ``fedctl failover status``, beside a clock that differs from the control plane's."""

from __future__ import annotations

import time
from typing import Any

import pytest
from click.testing import CliRunner

from federation.cli.__main__ import fedctl
from federation.v1 import failover_pb2
from tests.unit.cli.canned import FAILOVER, answer_with


def shown_rows(monkeypatch: pytest.MonkeyPatch, moment: float, **answers: Any) -> list[list[str]]:
    """Return the words of each line that fedctl prints at a moment of its own clock."""
    answer_with(monkeypatch, **answers)
    monkeypatch.setattr(time, "time", lambda: moment)
    result = CliRunner().invoke(fedctl, ["failover", "status"])
    assert result.exit_code == 0, result.output
    return [line.split() for line in result.stdout.splitlines()]


def test_ages_are_by_the_clock_of_the_control_plane_or_none_is_claimed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for ahead_seconds in (-3600.0, 3600.0):
        rows = shown_rows(monkeypatch, FAILOVER.time.seconds + ahead_seconds)
        assert ["member3", "2m", "stale,", "lost", "in", "3m"] in rows
    older = failover_pb2.FailoverStatus()
    older.CopyFrom(FAILOVER)
    older.ClearField("time")
    older.freeze.MergeFrom(
        type(older.freeze)(by="ops", reason="network change", since=older.silent[0].since)
    )
    rows = shown_rows(monkeypatch, 0.0, get_failover=older)
    stale = ["stale,", "lost", "at", "2027-01-15T08:03:00Z", "unless", "frozen"]
    assert ["member3", "2027-01-15T07:58:00Z", *stale] in rows
    assert ["Frozen", "by:", "ops,", "2027-01-15T07:58:00Z"] in rows
