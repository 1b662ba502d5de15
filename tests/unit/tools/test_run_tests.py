"""What fails beside others is tried alone, once, and named.

Must not run our own tests: a folder of its own has the few it takes.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import examples
from tools.run_tests import (
    BRIEF_EXAMPLES,
    FILES_OF_PROGRAMS,
    FILES_OF_REST,
    FOLDERS_OF_REST,
    MAX_UNSTEADY,
    ROOT,
    all_pass,
    part_of_tests,
)

UNSTEADY = """
from pathlib import Path
def test_passes_the_second_time():
    tried = Path(__file__).with_name("tried")
    was_tried = tried.exists()
    tried.touch()
    assert was_tried
"""
BROKEN = "def test_never_passes():\n    assert False\n"
# Those of ours take most of the time that pytest needs to start.
FEW_PLUGINS = {
    "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    "PYTEST_PLUGINS": "tests.forked_workers",
    "PYTHONPATH": str(ROOT),
}
GOOD = "def test_passes():\n    assert True\n"
MANY = "import pytest\n@pytest.mark.parametrize('n', range({count}))\ndef test_many(n): assert 0\n"


def passes(
    folder: Path, *, strict: bool = False, workers: int = 0, **files: str
) -> tuple[bool, str]:
    """Return whether all tests of these files pass, and what was printed; 0: without workers."""
    (folder / "pytest.ini").write_text("[pytest]\n")
    for name, text in files.items():
        (folder / f"test_{name}.py").write_text(text)
    lines: list[str] = []
    is_good = all_pass(
        sys.executable,
        workers=workers,
        strict=strict,
        folder=folder,
        variables=FEW_PLUGINS,
        show=lines.append,
    )
    return is_good, "".join(lines)


def test_an_unsteady_one_passes_and_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    is_good, said = passes(tmp_path, workers=2, unsteady=UNSTEADY, good=GOOD)
    assert is_good
    assert "1 failed, 1 passed" in said
    assert "slowest 25 durations" in said
    told = capsys.readouterr().out
    assert "UNSTEADY" in told
    assert "test_unsteady.py::test_passes_the_second_time" in told


def test_one_that_fails_alone_too_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    is_good, said = passes(tmp_path, unsteady=UNSTEADY, broken=BROKEN)
    assert not is_good
    assert "1 failed, 1 passed" in said
    assert "UNSTEADY" not in capsys.readouterr().out


def test_many_are_not_tried_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    count = MAX_UNSTEADY + 1
    is_good, said = passes(tmp_path, many=MANY.format(count=count))
    assert not is_good
    assert f"{count} failed" in said
    assert "once more" not in capsys.readouterr().out


def test_in_ci_an_unsteady_one_has_failed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    is_good, said = passes(tmp_path, strict=True, unsteady=UNSTEADY, good=GOOD)
    assert not is_good
    assert "1 failed, 1 passed" in said
    assert "once more" not in capsys.readouterr().out


def test_the_ci_runs_both_parts_once() -> None:
    script = (ROOT / ".ci" / "run").read_text()
    (command,) = (line for line in script.splitlines() if line.startswith("make test"))
    printed = commands_of(*command.split())
    runs = [line for line in printed.splitlines() if "tools.run_tests" in line]
    assert ["--rest" in line for line in runs] == [False, True]
    assert "tools/other_pythons.sh" in printed


def test_strict_runs_let_no_test_try_twice() -> None:
    printed = commands_of("make", "test-all", "STRICT=1")
    runs = [line for line in printed.splitlines() if "tools.run_tests" in line]
    assert all("--strict" in line for line in runs)
    assert "tools/other_pythons.sh --strict" in printed


def commands_of(*make: str) -> str:
    """Return the commands that make would run."""
    printing = [*make, "--just-print"]
    return subprocess.run(printing, cwd=ROOT, capture_output=True, text=True, check=True).stdout


def collected(folder: Path, arguments: list[str]) -> list[str]:
    command = [sys.executable, "-m", "pytest", "-qq", "--collect-only", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, **FEW_PLUGINS},
    )
    return [line.partition(":")[0] for line in done.stdout.splitlines() if line]


def test_each_test_is_in_one_of_both_parts(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --import-mode=importlib\n")
    program = FILES_OF_PROGRAMS[0]
    files = [program, "tests/unit/test_a.py", "tests/unit/deep/test_b.py", "tests/new/test_c.py"]
    rest = [*FILES_OF_REST, *(f"{folder}/test_rest.py" for folder in FOLDERS_OF_REST)]
    for file in (*files, *rest):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(GOOD)
    (tmp_path / "tests" / "helper.py").touch()
    assert sorted(collected(tmp_path, part_of_tests(rest=False, root=tmp_path))) == sorted(files)
    assert sorted(collected(tmp_path, part_of_tests(rest=True, root=tmp_path))) == sorted(rest)


def test_the_parts_name_what_is_there() -> None:
    named = [*FILES_OF_PROGRAMS, *FILES_OF_REST, *FOLDERS_OF_REST]
    assert [path for path in named if not (ROOT / path).exists()] == []
    assert all(str(Path(file).parent) in FOLDERS_OF_REST for file in FILES_OF_PROGRAMS)
    assert set(BRIEF_EXAMPLES.values()) == {examples.BRIEF}


def test_no_test_at_all_is_no_success(tmp_path: Path) -> None:
    assert not passes(tmp_path)[0]


def test_what_an_earlier_run_left_is_forgotten(tmp_path: Path) -> None:
    assert not passes(tmp_path, broken=BROKEN)[0]
    assert passes(tmp_path, broken=GOOD)[0]
