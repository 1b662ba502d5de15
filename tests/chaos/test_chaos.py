"""A short run of what ``make chaos`` does for two minutes."""

from __future__ import annotations

from pathlib import Path

from lab.chaos.havoc import Plan, wreak


def test_whatever_is_killed_no_promise_is_broken_and_no_answer_is_lost(tmp_path: Path) -> None:
    result = wreak(tmp_path, Plan(seconds=12.0, planes=2, callers=4, seed=7))
    assert result.violations == []
    counts = result.counts
    # It would prove nothing if nothing had happened.
    for name in ("control planes killed", "PostgreSQL killed", "agents restarted"):
        assert counts[name] != 0
    for name in ("placed", "promises checked", "reports with echoes", "refused calls"):
        assert counts[name] != 0
    for name in ("placed by the queue", "most that waited", "equal wants that waited"):
        assert counts[name] != 0
