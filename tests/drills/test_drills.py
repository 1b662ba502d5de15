"""The drills, briefly: nothing that callers were told is lost, and nothing is promised twice."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.drills.failover import fail_over
from tests.drills.restore import go_back


@pytest.fixture
def folder() -> Iterator[Path]:
    # A server's socket has a short path, and its data lies where root's servers have theirs.
    with tempfile.TemporaryDirectory(prefix="fedsched-drill-", dir="/var/tmp") as made:
        yield Path(made)


def test_nothing_is_lost_with_a_synchronous_standby(folder: Path) -> None:
    result = fail_over(folder, synchronous=True, seconds=0.5)
    assert result.before > 0
    assert (result.lost, result.pending) == (0, 0)


def test_nothing_is_promised_twice_after_a_restore(folder: Path) -> None:
    result = go_back(folder)
    assert result.after > 0
    assert (result.frozen, result.pending) == (0, 0)
