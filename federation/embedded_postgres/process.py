"""PostgreSQL's programs as child processes that end with us, and their postmaster.pid.

Must not decide when to start or stop one: ``federation.embedded_postgres.server`` does.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import IO

from federation.embedded_postgres.home import RunAs

LAUNCH = Path(__file__).with_name("launch")
ON_LINUX = sys.platform == "linux"  # The kernel can end a process with its parent, and has /proc.


@dataclass(frozen=True, slots=True, kw_only=True)
class Postmaster:
    """What a running server writes of itself: process id, and whether it takes connections."""

    pid: int
    ready: bool


def launch(
    command: Sequence[str],
    *,
    run_as: RunAs,
    output: IO[bytes],
    watch: bool = not ON_LINUX,
) -> subprocess.Popen[bytes]:
    """Start a program of PostgreSQL; it is ended with SIGQUIT when this process ends.

    The kernel takes the end of the *thread* that forked for the end of the parent. So a thread of
    its own forks, and waits for the child: the thread cannot end first, whoever calls this.
    """
    user = [str(run_as.uid), str(run_as.gid)] if run_as.switch else ["-", "-"]
    mode = "watch" if watch else "exec"
    arguments = [sys.executable, "-I", "-S", str(LAUNCH), mode, str(os.getpid()), *user, *command]
    started: Future[subprocess.Popen[bytes]] = Future()

    def fork_and_wait() -> None:
        try:
            process = subprocess.Popen(
                arguments,
                stdin=subprocess.PIPE if watch else subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd="/",  # The other user may not be able to enter ours.
                # Ours may hold PGDATA, PGPORT and the like. The last one lets the server, a
                # grandchild when watched, take our process id in its lock file for a stale one.
                env={
                    "PATH": "/usr/bin:/bin",
                    "LC_ALL": "C",
                    "TZ": "UTC",  # Else initdb compares every time zone there is with ours.
                    "PG_GRANDPARENT_PID": str(os.getpid()),
                },
                # Ctrl-C at the terminal is for us; the database has to outlast our last writes.
                start_new_session=True,
            )
        except BaseException as error:  # noqa: BLE001 - raised again by result() below
            started.set_exception(error)
            return
        started.set_result(process)
        process.wait()

    Thread(target=fork_and_wait, name="embedded-postgres", daemon=True).start()
    return started.result()


def read_postmaster(data: Path) -> Postmaster | None:
    """The server that a data directory's postmaster.pid names, None without one.

    Lines: process id, directory, start time, port, socket directory, address, shared memory, state.
    """
    try:
        lines = (data / "postmaster.pid").read_text(encoding="ascii", errors="replace").split("\n")
        return Postmaster(pid=int(lines[0]), ready=len(lines) > 7 and lines[7].strip() == "ready")
    except (FileNotFoundError, ValueError):
        return None


def serves(pid: int, data: Path) -> bool:
    """Whether a living process is the server of this data directory, and not merely its number."""
    if ON_LINUX:
        try:
            # A postmaster's working directory is its data directory.
            return Path(f"/proc/{pid}/cwd").readlink() == data.resolve()
        except OSError:
            return False
    listing = subprocess.run(
        ["/bin/ps", "-o", "args=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    return "postgres" in listing.stdout and str(data) in listing.stdout


def disown_postmaster_file(data: Path, run_as: RunAs) -> None:
    """Make the server treat a left-over postmaster.pid as stale, whoever has its number by now.

    After a restart of a container the number is likely taken again, and the server would refuse to
    start. It calls a file stale that names its own parent. The file is not removed: its shared
    memory line is how the server notices children of the dead one that still run.
    """
    path = data / "postmaster.pid"
    try:
        _, _, rest = path.read_bytes().partition(b"\n")
    except FileNotFoundError:
        return
    replacement = path.with_suffix(".stale")
    replacement.unlink(missing_ok=True)
    descriptor = os.open(replacement, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(b"%d\n%s" % (os.getpid(), rest))
        if run_as.switch:
            os.fchown(descriptor, run_as.uid, run_as.gid)
    replacement.replace(path)
