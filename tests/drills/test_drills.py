"""The drills, briefly: nothing that callers were told is lost, and nothing is promised twice."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lab.drills import __main__ as drills
from lab.drills.failover import GOAL_SECONDS, WARNINGS, FailedOver, fail_over, go_back
from lab.drills.stack import run_stack


@pytest.fixture
def folder() -> Iterator[Path]:
    # A server's socket has a short path, and its data lies where root's servers have theirs.
    with tempfile.TemporaryDirectory(prefix="fedsched-drill-", dir="/var/tmp") as made:
        yield Path(made)


def test_nothing_is_lost_with_a_synchronous_standby(folder: Path) -> None:
    result = fail_over(folder, synchronous=True, seconds=0.5)
    assert result.before > 0
    # How long it takes is the command's matter: machines that run tests are busy.
    assert replace(result, back_seconds=0.0).broken() == []


def test_what_an_asynchronous_standby_may_lose_is_said(folder: Path) -> None:
    result = fail_over(folder, synchronous=False, seconds=0.5)
    assert result.before > 0
    assert replace(result, back_seconds=0.0).broken() == []


@pytest.mark.parametrize(
    ("change", "broken"),
    [
        ({}, 0),
        ({"lost": 1}, 1),
        ({"pending": 1}, 1),
        ({"back_seconds": GOAL_SECONDS + 0.1}, 1),
        ({"warned_by": frozenset(WARNINGS)}, 1),
        ({"synchronous": False}, 1),
        ({"synchronous": False, "warned_by": frozenset(["start"])}, 1),
        ({"synchronous": False, "warned_by": frozenset(WARNINGS), "lost": 1}, 0),
    ],
)
def test_a_promise_that_breaks_fails_the_drill(
    change: dict[str, Any], broken: int, monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    kept = FailedOver(
        acknowledged=9, before=5, failed=1, lost=0, pending=0, back_seconds=GOAL_SECONDS
    )
    result = replace(kept, **change)
    assert len(result.broken()) == broken
    monkeypatch.setattr(drills, "fail_over", lambda *_, **__: result)
    assert drills.failed_over(folder, 1.0, synchronous=result.synchronous) == bool(broken)


def test_nothing_is_promised_twice_after_a_restore(folder: Path) -> None:
    result = go_back(folder)
    assert result.after > 0
    assert (result.frozen, result.pending) == (0, 0)


def test_a_whole_stack_goes_through_every_feature(folder: Path) -> None:
    result = run_stack(folder, seconds=0.0)
    assert result.broken() == []
    assert result.rounds == 1
