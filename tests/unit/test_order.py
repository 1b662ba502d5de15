"""In which order files of tests are begun."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import LONGEST, longest_first

TESTS = Path(__file__).parents[1]


def test_files_that_take_longest_are_begun_first(tmp_path: Path) -> None:
    folders = [TESTS / name for name in LONGEST]
    assert all(folder.is_dir() for folder in folders)
    assert sorted([TESTS / "unit", *reversed(folders)], key=longest_first) == [
        *folders,
        TESTS / "unit",
    ]
    assert longest_first(TESTS / "e2e" / "deeper") == longest_first(TESTS / "e2e")
    assert longest_first(tmp_path) == longest_first(TESTS / "unit")


def test_workers_keep_the_order(pytestconfig: pytest.Config) -> None:
    assert pytestconfig.getoption("loadscopereorder") is False
