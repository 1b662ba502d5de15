"""Real ``federation`` processes: started, watched through what they print, ended for sure.

Must not look into a process: what is known of it is its output, its ports and its exit code.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import Empty, Queue
from typing import Final

from federation.embedded_postgres.binaries import PostgresBinaries, find_binaries
from federation.embedded_postgres.errors import PostgresNotStarted
from federation.embedded_postgres.server import EmbeddedPostgres
from lab.patience import PATIENCE_SECONDS
from lab.program_logs import check_process

START_SECONDS = PATIENCE_SECONDS
STOP_SECONDS = PATIENCE_SECONDS
POLL_SECONDS = 0.05
ROOT = Path(__file__).resolve().parents[1]


def environment(extra: Mapping[str, str]) -> dict[str, str]:
    """Ours without any setting of the product, so that the machine's do not leak in."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("FEDERATION_")}
    # An embedded server for tests that run as the user of a CI machine may be elsewhere.
    binaries = os.environ.get("FEDERATION_POSTGRES_BIN")
    ours = {"FEDERATION_POSTGRES_BIN": binaries} if binaries else {}
    patience = {"FEDERATION_SIMULATION_SECONDS": str(PATIENCE_SECONDS)}
    return {**kept, **ours, **patience, **extra}


def embedded_of(data: Path) -> EmbeddedPostgres:
    """The database in the data directory of a server that runs no more."""
    return embedded_in(data / "postgres")


def embedded_in(directory: Path) -> EmbeddedPostgres:
    """What runs no more."""
    return EmbeddedPostgres(found_binaries(), directory)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
        return port


def found_binaries() -> PostgresBinaries:
    explicit = os.environ.get("FEDERATION_POSTGRES_BIN")
    return find_binaries(Path(explicit) if explicit else None, os.environ.get("PATH", ""))


def federation(
    *arguments: str, seconds: float = START_SECONDS, **extra: str
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return subprocess.run(
        [sys.executable, "-m", "federation", *arguments],
        cwd=ROOT,
        env=environment(extra),
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )


class Server:
    """A ``federation serve`` that has printed its banner."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.lines: list[str] = []
        self._printed: list[str] = []
        self._queue: Queue[str | None] = Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def output(self) -> str:
        return "\n".join(self.lines)

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self._printed.append(line)
            self._queue.put(line.rstrip("\n"))
        self._queue.put(None)

    def await_line(self, pattern: str, seconds: float = START_SECONDS) -> re.Match[str]:
        """The first line from here on that matches; fails with all output when there is none."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                line = self._queue.get(timeout=max(deadline - time.monotonic(), 0.0))
            except Empty:
                raise AssertionError(f"no {pattern!r} in:\n{self.output}") from None
            if line is None:
                raise AssertionError(f"ended without {pattern!r}:\n{self.output}")
            self.lines.append(line)
            if found := re.search(pattern, line):
                return found

    def newest_lines(self) -> list[str]:
        """What a server that runs has printed since lines were last asked for."""
        newest = [line for _ in range(self._queue.qsize()) if (line := self._queue.get())]
        self.lines += newest
        return newest

    def await_end(self) -> int:
        code = self.process.wait(STOP_SECONDS)
        self._reader.join(STOP_SECONDS)
        while (line := self._queue.get()) is not None:
            self.lines.append(line)
        return code

    def check_log(self) -> None:
        """Record the errors in all that it printed, once it has ended."""
        self._reader.join(STOP_SECONDS)
        check_process("federation serve", "".join(self._printed))

    def kill(self) -> None:
        """As a power cut would: no handler runs."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(STOP_SECONDS)

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.await_end()


def program(name: str, site: Path | None) -> tuple[list[str], Path, dict[str, str]]:
    """How one of our programs is started: its command, where, and variables for it.

    ``site``: a folder with an installed wheel; None: these sources.
    """
    if site is None:
        return [sys.executable, "-m", name], ROOT, {}
    # Without these sources, and without what is installed beside them.
    return [sys.executable, "-S", "-P", "-m", name], site, {"PYTHONPATH": str(site)}


@contextmanager
def started(*arguments: str, site: Path | None = None, **extra: str) -> Iterator[Server]:
    command, folder, variables = program("federation", site)
    process = subprocess.Popen(
        [*command, "serve", *arguments],
        cwd=folder,
        env=environment({**variables, **extra}),
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    server = Server(process)
    try:
        yield server
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        server.check_log()
        assert process.stderr is not None
        process.stderr.close()


def http_status(url: str) -> int:
    """The status of a page, 0 when nobody answers."""
    try:
        with urllib.request.urlopen(url, timeout=5.0) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


def await_status(url: str, status: int, seconds: float = START_SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while (found := http_status(url)) != status:
        assert time.monotonic() < deadline, f"{url} answers {found}, not {status}"
        time.sleep(POLL_SECONDS)


SESSION: Final = re.compile(r"pytest-\d+")


def discard_databases(folder: Path) -> None:
    """Those anywhere below it that nobody uses."""
    for lock in [*folder.rglob("postgres.lock")]:
        with suppress(PostgresNotStarted):
            embedded_in(lock.parent).discard()


def discard_those_of_the_dead(ours: Path) -> None:
    """Of tests that were killed: pytest keeps their folders beside ``ours`` for a while."""
    session = next((each for each in (ours, ours.parent) if SESSION.fullmatch(each.name)), None)
    for other in session.parent.iterdir() if session else ():
        if SESSION.fullmatch(other.name) and other != session and not _is_alive(other):
            discard_databases(other)


def _is_alive(session: Path) -> bool:
    """By pytest's own lock, which it removes when it ends."""
    try:
        pid = int((session / ".lock").read_text(encoding="ascii"))
    except FileNotFoundError:
        return False
    except (OSError, ValueError):
        return True
    return Path(f"/proc/{pid}").exists()
