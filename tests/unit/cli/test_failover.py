"""Ages of ``fedctl failover status``, beside a clock that differs from the control plane's."""

from __future__ import annotations

import time

import pytest

from federation.cli.failover import _show
from federation.cli.output import Output
from federation.v1 import failover_pb2
from tests.unit.cli import canned


@pytest.mark.parametrize("ahead_seconds", [-3600, 3600])
def test_ages_are_by_the_clock_of_the_control_plane(
    ahead_seconds: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    moment = canned.FAILOVER.time.seconds + ahead_seconds
    monkeypatch.setattr(time, "time", lambda: float(moment))
    _show(canned.FAILOVER, Output())
    assert ["member3", "2m", "stale,", "lost", "in", "3m"] in _rows(capsys)


def test_no_age_is_claimed_where_the_control_plane_does_not_say_its_time(
    capsys: pytest.CaptureFixture[str],
) -> None:
    older = failover_pb2.FailoverStatus()
    older.CopyFrom(canned.FAILOVER)
    older.ClearField("time")
    freeze = older.freeze
    freeze.by, freeze.reason = "ops", "network change"
    freeze.since.CopyFrom(older.silent[0].since)
    _show(older, Output())
    rows = _rows(capsys)
    stale = ["stale,", "lost", "at", "2027-01-15T08:03:00Z", "unless", "frozen"]
    assert ["member3", "2027-01-15T07:58:00Z", *stale] in rows
    assert ["Frozen", "by:", "ops,", "2027-01-15T07:58:00Z"] in rows


def _rows(capsys: pytest.CaptureFixture[str]) -> list[list[str]]:
    return [line.split() for line in capsys.readouterr().out.splitlines()]
