"""Ages of ``fedctl failover status``, beside a clock that differs from the control plane's."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from federation.cli import failover
from federation.cli.__main__ import fedctl
from federation.v1 import failover_pb2
from tests.unit.cli import canned


@pytest.mark.parametrize("ahead_seconds", [-3600, 3600])
def test_ages_are_by_the_clock_of_the_control_plane(
    ahead_seconds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    moment = canned.FAILOVER.time.seconds + ahead_seconds
    monkeypatch.setattr(time, "time", lambda: float(moment))
    rows = shown_rows(canned.FAILOVER, monkeypatch)
    assert ["member3", "2m", "stale,", "lost", "in", "3m"] in rows


def test_no_age_is_claimed_where_the_control_plane_does_not_say_its_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    older = failover_pb2.FailoverStatus()
    older.CopyFrom(canned.FAILOVER)
    older.ClearField("time")
    freeze = older.freeze
    freeze.by, freeze.reason = "ops", "network change"
    freeze.since.CopyFrom(older.silent[0].since)
    rows = shown_rows(older, monkeypatch)
    stale = ["stale,", "lost", "at", "2027-01-15T08:03:00Z", "unless", "frozen"]
    assert ["member3", "2027-01-15T07:58:00Z", *stale] in rows
    assert ["Frozen", "by:", "ops,", "2027-01-15T07:58:00Z"] in rows


def shown_rows(
    status: failover_pb2.FailoverStatus, monkeypatch: pytest.MonkeyPatch
) -> list[list[str]]:
    """Return the words of each line that fedctl prints when a control plane answers `status`."""
    connection = SimpleNamespace(call=lambda _: status)
    monkeypatch.setattr(failover, "connection", lambda: connection)
    result = CliRunner().invoke(fedctl, ["failover", "status"])
    assert result.exit_code == 0, result.output
    return [line.split() for line in result.stdout.splitlines()]
