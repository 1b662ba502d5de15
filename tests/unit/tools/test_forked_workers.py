"""Tests run in workers that are forked once all are collected.

Must not run our own tests: a folder of its own has the few it takes.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

from lab.patience import PATIENCE_SECONDS
from tools.run_tests import ROOT

SHARED = """
import os
from pathlib import Path
import pytest
@pytest.fixture(scope="session", autouse=True)
def of_the_session(tmp_path_factory):
    yield
    Path("ended").open("a").write(f"session {os.getpid()} {tmp_path_factory.getbasetemp()}\\n")
@pytest.fixture(scope="module")
def of_the_module(request):
    yield
    Path("ended").open("a").write(f"{request.node.name} {os.getpid()}\\n")
print("collected by", os.getpid(), file=Path("collected").open("a"))
"""
# Each waits until the other one runs, too.
MEETING = """
import os
def test_meets(of_the_module):
    os.close(os.open("meeting", os.{mode}))
"""
TWO = "def test_one(of_the_module): pass\ndef test_two(of_the_module): pass\n"
DYING = """
import os
def test_before(): print("output of test_before")
def test_dies(): os._exit(3)
def test_after(): assert 0
"""
THREAD = """
import threading
threading.Thread(target=threading.Event().wait, daemon=True).start()
def test_passes(): pass
"""
WAITING = """
import os, time
def test_waits(capfd):
    with capfd.disabled():
        os.write(2, b"waiting\\n")
    time.sleep(600)
"""


def command(workers: int, *options: str) -> list[str]:
    return [
        *(sys.executable, "-m", "pytest", "-p", "tests.forked_workers", "-p", "no:cacheprovider"),
        *("-v", f"--workers={workers}", f"--basetemp={Path('base')}", *options),
    ]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(ROOT)}


def run(folder: Path, *options: str, workers: int = 2, **files: str) -> tuple[int, str]:
    """Return the exit code and what was printed of the tests in these files."""
    (folder / "pytest.ini").write_text("[pytest]\n")
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    done = subprocess.run(
        command(workers, *options),
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_SECONDS,
    )
    return done.returncode, done.stdout + done.stderr


def test_each_file_is_run_by_one_worker_and_what_it_shared_ends_with_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "meeting")
    meeting = [MEETING.format(mode=mode) for mode in ("O_RDONLY", "O_WRONLY")]
    code, printed = run(tmp_path, conftest=SHARED, test_a=meeting[0], test_b=meeting[1], test_c=TWO)
    assert (code, "4 passed" in printed) == (0, True)
    ended = [line.split() for line in (tmp_path / "ended").read_text().splitlines()]
    modules = [name for name, *_ in ended if name != "session"]
    assert sorted(modules) == ["test_a.py", "test_b.py", "test_c.py"]
    sessions = {process: folder for name, process, *folder in ended if name == "session"}
    assert len(sessions) == 2
    assert {process for _, process, *_ in ended} == set(sessions)
    assert len({folder for (folder,) in sessions.values()}) == 2


def test_files_are_begun_in_the_order_in_which_they_were_collected(tmp_path: Path) -> None:
    backwards = "def pytest_collection_modifyitems(items): items.reverse()\n"
    _, printed = run(
        tmp_path, workers=1, conftest=f"{SHARED}{backwards}", test_a=TWO, test_b=TWO, test_c=TWO
    )
    files = re.findall(r"^(\w+)\.py::\w+ PASSED", printed, re.MULTILINE)
    assert files == ["test_c", "test_c", "test_b", "test_b", "test_a", "test_a"]


def test_all_is_imported_once(tmp_path: Path) -> None:
    run(tmp_path, conftest=SHARED, test_a=TWO, test_b=TWO)
    assert len((tmp_path / "collected").read_text().splitlines()) == 1


def test_one_that_ends_its_worker_has_failed_and_the_others_run(tmp_path: Path) -> None:
    code, printed = run(tmp_path, test_a=DYING, test_b="def test_good(): pass")
    assert code == 1
    assert "its worker has ended with 3" in printed
    assert "2 failed, 2 passed" in printed


def test_what_a_worker_prints_is_shown_where_its_test_fails(tmp_path: Path) -> None:
    failing = "def test_fails():\n    print('said by it')\n    assert 0\n"
    code, printed = run(tmp_path, test_a=failing, test_b=DYING)
    assert code == 1
    assert "said by it" in printed
    assert "output of test_before" not in printed


def test_a_worker_that_cannot_end_what_is_shared_fails_the_run(tmp_path: Path) -> None:
    dying = "import os, pytest\n@pytest.fixture(scope='session', autouse=True)\ndef f():\n"
    code, printed = run(tmp_path, conftest=f"{dying}    yield\n    os._exit(4)\n", test_a=TWO[:0])
    assert code == 5
    good = "def test_good(): pass"
    code, printed = run(tmp_path, test_a=good)
    assert code == 3
    assert "a worker has ended with 4 after its last test" in printed


def test_the_first_failure_ends_the_run_where_that_is_asked_for(tmp_path: Path) -> None:
    many = "import pytest\n@pytest.mark.parametrize('n', range(9))\ndef test_n(n): assert 0\n"
    code, printed = run(tmp_path, "-x", workers=1, test_a=many)
    assert code == 1
    assert "1 failed" in printed


def test_files_that_cannot_be_imported_end_the_run(tmp_path: Path) -> None:
    code, printed = run(tmp_path, test_a="import nothing_of_that_name", test_b=TWO)
    assert code == 2
    assert "nothing_of_that_name" in printed


def test_no_worker_is_forked_from_a_process_with_threads(tmp_path: Path) -> None:
    code, printed = run(tmp_path, test_a=THREAD)
    assert code == 4
    assert "what tests import has started threads" in printed


def test_an_interrupted_run_ends_its_workers_and_what_they_share(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "conftest.py").write_text(SHARED)
    (tmp_path / "test_a.py").write_text(WAITING)
    (tmp_path / "test_b.py").write_text(WAITING)
    with subprocess.Popen(
        command(2), cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout
        assert process.stderr
        for _ in range(2):
            assert process.stderr.readline() == b"waiting\n"
        process.send_signal(signal.SIGINT)
        printed = process.stdout.read().decode()
        assert process.wait(PATIENCE_SECONDS) == 2
    assert "KeyboardInterrupt" in printed
    ended = (tmp_path / "ended").read_text()
    assert len(re.findall("^session", ended, re.MULTILINE)) == 2
