"""A command, usually `make test`, on a machine that stands still for a while, or that is very busy.

Must not know what the command does: it stops and continues processes, and returns the exit code.
No test may fail then, because no test depends on how fast a machine is:

    .venv/bin/python -m lab.stalled_run --after 60 make test STRICT=1
    .venv/bin/python -m lab.stalled_run --loops 8 make test STRICT=1
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

from lab.programs import clean_up_when_ended, parser

# A process belongs to the command if it has this variable, or a parent that belongs to it:
# PostgreSQL runs without our variables, and programs that a test leaves behind without a parent.
MARK = "FEDSCHED_STALLED_RUN"
STOPPED_STATES = "TtZX"
ENDED_STATES = "ZX"
# Processes that start while others are being stopped are found by looking again.
MAX_LOOKS = 50
# Told to end, tests still remove what they have made; whoever has not ended by then is killed.
END_SECONDS, LOOK_SECONDS = 60.0, 0.05
BUSY = "while True: pass"


def say(text: str) -> None:
    print(f"stalled_run: {text}", file=sys.stderr, flush=True)


def processes() -> dict[int, tuple[int, str]]:
    """Return the parent and the state of each process of this machine."""
    seen = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with suppress(OSError):
                # The name of the program stands in brackets and may hold anything.
                fields = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()
                seen[int(folder.name)] = (int(fields[1]), fields[0])
    return seen


def is_marked(process: int, mark: str) -> bool:
    try:
        variables = Path(f"/proc/{process}/environ").read_bytes()
    except OSError:
        return False
    return f"{MARK}={mark}".encode() in variables.split(b"\0")


def members(mark: str, all_processes: Mapping[int, tuple[int, str]]) -> set[int]:
    """Return the processes that belong to the command."""
    ours = {process for process in all_processes if is_marked(process, mark)}
    size = -1
    while size != len(ours):
        size = len(ours)
        ours |= {process for process, (parent, _) in all_processes.items() if parent in ours}
    return ours


def stop_all(mark: str) -> int:
    """Stop all processes of the command, and return how many there are."""
    for _ in range(MAX_LOOKS):
        all_processes = processes()
        ours = members(mark, all_processes)
        running = {each for each in ours if all_processes[each][1] not in STOPPED_STATES}
        if not running:
            return len(ours)
        for process in running:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGSTOP)
    raise SystemExit("stalled_run: new processes start faster than they can be stopped")


def stand_still(mark: str, seconds: float) -> None:
    """Stop all processes of the command for a while; whatever ends that, all of them go on."""
    try:
        say(f"{stop_all(mark)} processes stand still for {seconds:g} s")
        time.sleep(seconds)
    finally:
        for process in members(mark, processes()):
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGCONT)


def end_all(mark: str) -> None:
    """Tell all processes of the command to end, and return when none of them is left."""
    # PostgreSQL is not to be told from others' processes once its parent has ended.
    ours: set[int] = set()
    for number in (signal.SIGTERM, signal.SIGKILL):
        deadline = time.monotonic() + END_SECONDS
        signalled: set[int] = set()
        while ours := still_running(mark, ours):
            for process in ours - signalled:
                with suppress(ProcessLookupError):
                    os.kill(process, number)
            signalled |= ours
            if time.monotonic() > deadline:
                break
            time.sleep(LOOK_SECONDS)


def still_running(mark: str, earlier: AbstractSet[int]) -> set[int]:
    """Return the processes of the command that run, and of `earlier` ones those that still do."""
    all_processes = processes()
    candidates = members(mark, all_processes) | (earlier & all_processes.keys())
    return {each for each in candidates if all_processes[each][1] not in ENDED_STATES}


@contextmanager
def busy_loops(count: int) -> Iterator[None]:
    loops = [subprocess.Popen([sys.executable, "-S", "-c", BUSY]) for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def waits(process: subprocess.Popen[bytes], seconds: float | None) -> bool:
    """Return whether the command still runs after some seconds, or after its end without them."""
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return True
    return False


def run(
    command: Sequence[str], *, after: float | None, every: float | None, seconds: float, loops: int
) -> int:
    mark = uuid4().hex
    with busy_loops(loops):
        process = subprocess.Popen(command, env={**os.environ, MARK: mark})
        try:
            pause = after
            while pause is not None and waits(process, pause):
                stand_still(mark, seconds)
                pause = every
            return process.wait()
        except BaseException:
            # Told to end, this program ends the command with all that it started.
            end_all(mark)
            raise


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser("stalled_run", __doc__)
    options.add_argument("--after", type=float, metavar="SECONDS", help="of work until all stops")
    options.add_argument("--every", type=float, metavar="SECONDS", help="of work, again and again")
    options.add_argument("--seconds", type=float, default=10.0, help="how long all stands still")
    options.add_argument("--loops", type=int, default=0, metavar="COUNT", help="of busy processes")
    options.add_argument("command", nargs="...")
    chosen = options.parse_args(arguments)
    if not chosen.command:
        options.error("name a command")
    after = chosen.every if chosen.after is None else chosen.after
    return run(
        chosen.command,
        after=after,
        every=chosen.every,
        seconds=chosen.seconds,
        loops=chosen.loops,
    )


if __name__ == "__main__":
    clean_up_when_ended()
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
