"""What a run of the tests says when something fails, and when somebody has seen enough."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FAILING = "def test_it_fails():\n    assert 1 == 2\n"
# What ends is interrupted again and again, as by somebody in a hurry.
WAITING = """
import os, pytest, signal, time
@pytest.fixture(scope="session")
def hurried():
    yield
    for _ in range(3):
        os.killpg(os.getpgrp(), signal.SIGINT)
def test_it_fails(hurried):
    assert 1 == 2
def test_it_waits():
    time.sleep(600)
"""


def start(folder: Path, text: str, *options: str) -> subprocess.Popen[str]:
    (folder / "test_it.py").write_text(text)
    own = ("-c", str(ROOT / "pyproject.toml"), "-p", "tests.conftest", "-p", "no:cacheprovider")
    return subprocess.Popen(
        [sys.executable, "-m", "pytest", *own, f"--rootdir={folder}", *options, str(folder)],
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if not name.startswith("PYTEST")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def test_a_failure_is_named_when_it_happens(tmp_path: Path) -> None:
    process = start(tmp_path, FAILING, "-q", "--workers=2")
    printed, _ = process.communicate()
    at_once, _, summary = printed.partition("= FAILURES =")
    assert "FAILED test_it.py::test_it_fails\n" in at_once
    assert "1 failed" in summary


def test_an_error_is_named_when_it_happens(tmp_path: Path) -> None:
    text = "import pytest\n@pytest.fixture\ndef bad():\n    1 / 0\ndef test_it(bad):\n    pass\n"
    printed, _ = start(tmp_path, text, "-q").communicate()
    assert "ERROR test_it.py::test_it\n" in printed.partition("= ERRORS =")[0]


def test_an_interruption_leaves_the_summary(tmp_path: Path) -> None:
    process = start(tmp_path, WAITING, "-q", "--workers=2")
    assert process.stdout is not None
    for line in process.stdout:
        if line == "FAILED test_it.py::test_it_fails\n":
            os.killpg(process.pid, signal.SIGINT)
            break
    printed, _ = process.communicate()
    assert process.returncode == pytest.ExitCode.INTERRUPTED, printed
    assert "1 failed" in printed
