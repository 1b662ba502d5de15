"""Databases of tests that were killed: found where pytest keeps folders, and only theirs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lab import servers


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has /proc")
@pytest.mark.parametrize("ours", ["pytest-4", "pytest-4/popen-gw0"])
def test_only_sessions_that_are_dead_are_cleaned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ours: str
) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    for name, lock in (
        ("pytest-1", None),
        ("pytest-2", os.getpid()),
        ("pytest-3", gone.pid),
        ("pytest-4", os.getpid()),
        ("pytest-5", "of another form"),
        ("somebodys", None),
    ):
        (tmp_path / name).mkdir()
        if lock is not None:
            (tmp_path / name / ".lock").write_text(str(lock))
    cleaned: list[str] = []
    monkeypatch.setattr(servers, "discard_databases", lambda each: cleaned.append(each.name))
    servers.discard_those_of_the_dead(tmp_path / ours)
    assert sorted(cleaned) == ["pytest-1", "pytest-3"]


def test_folders_that_were_asked_for_have_no_neighbours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pytest-1").mkdir()
    monkeypatch.setattr(servers, "discard_databases", pytest.fail)
    servers.discard_those_of_the_dead(tmp_path / "mine")
