"""What silences a tool gives a reason, and the check that it does can fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.check_sources import suppressions

# Put together here, so that they silence nothing in this file.
NOQA = "# no" + "qa"
IGNORE = "# type" + ": ignore"


@pytest.mark.parametrize(
    "comment",
    [
        f"{NOQA}: S311 - jitter, no secret",
        f"{NOQA}: A002, S311 - its name",
        f"{IGNORE}[override]  # the stub knows no writers",
        f"{IGNORE}[misc]  {NOQA}: N802 - grpc's name",
        f"# ruff: {NOQA[2:]}: E402 - the path is set first",
        "# nothing is silenced here",
        f"+ ' {NOQA}'",
    ],
)
def test_reason_is_found(comment: str) -> None:
    assert list(suppressions(Path("a.py"), f"x = 'y'  {comment}\n")) == []


@pytest.mark.parametrize(
    "comment",
    [
        NOQA,
        f"{NOQA}: S311",
        f"{NOQA}: A002, S311",
        f"{NOQA}:S311 -",
        IGNORE,
        f"{IGNORE}[override]",
        f"{IGNORE}[override]  {NOQA}: N802",
        f"# ruff: {NOQA[2:]}: T201",
        "# pragma" + ": no cover",
    ],
)
def test_silence_without_a_reason_is_refused(comment: str) -> None:
    assert list(suppressions(Path("a.py"), f"x = 1\ny = 2  {comment}\n")) == [
        f"a.py:2: {comment} gives no reason"
    ]
