"""A failure whose traceback cannot be made is a failure, and no end of the run.

Must not run our own tests: a folder of its own has the two it takes.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests import conftest

TESTS = """
import pytest

def cannot_parse(*_, **__):
    raise SystemError("AST constructor recursion depth mismatch")

def test_fails():
    pytest.MonkeyPatch().setattr("_pytest._code.code.getstatementrange_ast", cannot_parse)
    assert False, "the reason"

def test_passes():
    pass
"""


def test_a_traceback_that_cannot_be_shown_ends_nothing(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    hook = "from tests.conftest import pytest_runtest_makereport as pytest_runtest_makereport\n"
    (tmp_path / "conftest.py").write_text(hook)
    (tmp_path / "test_two.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-q", "-rf", "-p", "no:cacheprovider", tmp_path]
    root = Path(conftest.__file__).parent.parent
    ended = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={"PYTHONPATH": str(root)},
    )
    assert "1 failed, 1 passed" in ended.stdout, ended.stdout + ended.stderr
    assert "the reason" in ended.stdout
    assert "cannot be shown: SystemError('AST constructor recursion depth" in ended.stdout
