"""What fails beside others is tried alone, once, and named.

Must not run our own tests: a folder of its own has the few it takes.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tools.run_tests import MOST_UNSTEADY, all_pass

UNSTEADY = """
from pathlib import Path
def test_passes_the_second_time():
    tried = Path(__file__).with_name("tried")
    was_tried = tried.exists()
    tried.touch()
    assert was_tried
"""
BROKEN = "def test_never_passes():\n    assert False\n"
GOOD = "def test_passes():\n    assert True\n"
MANY = "import pytest\n@pytest.mark.parametrize('n', range({count}))\ndef test_many(n): assert 0\n"


def passes(folder: Path, **files: str) -> tuple[bool, str]:
    (folder / "pytest.ini").write_text("[pytest]\n")
    for name, text in files.items():
        (folder / f"test_{name}.py").write_text(text)
    lines: list[str] = []
    is_good = all_pass(sys.executable, workers=2, folder=folder, show=lines.append)
    return is_good, "".join(lines)


def test_an_unsteady_one_passes_and_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    is_good, said = passes(tmp_path, unsteady=UNSTEADY, good=GOOD)
    assert is_good
    assert "1 failed, 1 passed" in said
    told = capsys.readouterr().out
    assert "UNSTEADY" in told
    assert "test_unsteady.py::test_passes_the_second_time" in told


def test_one_that_fails_alone_too_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    is_good, said = passes(tmp_path, unsteady=UNSTEADY, broken=BROKEN)
    assert not is_good
    assert "1 failed, 1 passed" in said
    assert "UNSTEADY" not in capsys.readouterr().out


def test_many_are_not_tried_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    count = MOST_UNSTEADY + 1
    is_good, said = passes(tmp_path, many=MANY.format(count=count))
    assert not is_good
    assert f"{count} failed" in said
    assert "once more" not in capsys.readouterr().out


def test_no_test_at_all_is_no_success(tmp_path: Path) -> None:
    assert not passes(tmp_path)[0]


def test_what_an_earlier_run_left_is_forgotten(tmp_path: Path) -> None:
    assert not passes(tmp_path, broken=BROKEN)[0]
    assert passes(tmp_path, broken=GOOD)[0]
