"""All processes of a command stand still at one time, and all go on."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path
from time import sleep

import pytest

from lab import stalled_run
from lab.patience import PATIENCE_SECONDS

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has /proc")

# Two children: one without our variables in a session of its own, as PostgreSQL, and one whose
# parent has ended. Both end when a file is there.
PROGRAM = """
import os, subprocess, sys
await_file = "import os, sys, time\\nwhile not os.path.exists(sys.argv[1]): time.sleep(0.01)"
wait = [sys.executable, "-S", "-c", await_file, sys.argv[1]]
apart = subprocess.Popen(wait, env={}, start_new_session=True)
lone = subprocess.run(["sh", "-c", '"$@" >/dev/null & echo $!', "sh", *wait],
                      stdout=subprocess.PIPE, text=True, check=True).stdout
with open(sys.argv[2] + ".new", "w") as file:
    print(apart.pid, lone.strip(), os.getpid(), file=file)
os.rename(sys.argv[2] + ".new", sys.argv[2])
apart.wait()
sys.exit(7)
"""


ROOT = Path(__file__).resolve().parents[2]
POLL_SECONDS = 0.05


def written(note: Path) -> str:
    """Return what a file holds, once it is there."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not note.exists():
        assert time.monotonic() < deadline
        sleep(POLL_SECONDS)
    return note.read_text()


def states_of(started: list[int]) -> str:
    seen = stalled_run.processes()
    return "".join(seen[process][1] for process in started if process in seen)


def test_all_processes_of_a_command_stop_and_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    end, note = tmp_path / "end", tmp_path / "started"
    started: list[int] = []
    states: list[str] = []

    def waits(process: subprocess.Popen[bytes], _: float | None) -> bool:
        """Return whether to stop it: once, when all its processes have started."""
        if not started:
            started.extend(map(int, written(note).split()))
            return True
        states.append(states_of(started))
        end.touch()
        process.wait()
        return False

    monkeypatch.setattr(stalled_run, "waits", waits)
    monkeypatch.setattr(stalled_run.time, "sleep", lambda _: states.append(states_of(started)))
    command = [sys.executable, "-S", "-c", PROGRAM, str(end), str(note)]
    assert stalled_run.run(command, after=1.0, every=1.0, seconds=1.0, loops=0) == 7
    stopped, continued = states
    assert stopped == "TTT"
    assert len(continued) == 3
    assert "T" not in continued


def test_a_command_is_ended_with_the_program_even_while_all_stand_still(tmp_path: Path) -> None:
    end, note = tmp_path / "end", tmp_path / "started"
    program = [sys.executable, "-m", "lab.stalled_run", "--every", "2", "--seconds", "180"]
    command = [sys.executable, "-S", "-c", PROGRAM, str(end), str(note)]
    with subprocess.Popen([*program, *command], cwd=ROOT) as running:
        deadline = time.monotonic() + PATIENCE_SECONDS
        try:
            started = [*map(int, written(note).split())]
            while states_of(started) != "TTT":
                assert time.monotonic() < deadline
                sleep(POLL_SECONDS)
            running.terminate()
            assert running.wait(PATIENCE_SECONDS) == 128 + signal.SIGTERM
            assert set(states_of(started)) <= set(stalled_run.ENDED_STATES)
        finally:
            running.kill()
            end.touch()


def test_a_command_that_ends_before_is_left_alone() -> None:
    command = [sys.executable, "-S", "-c", "raise SystemExit(3)"]
    assert stalled_run.main(["--after", "180", "--loops", "1", *command]) == 3
