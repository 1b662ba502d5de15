"""The demo's child processes: started in order, each with its own log, ended together.

Must not outlive the demo: whatever ends it, ``stop`` runs.
"""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from time import monotonic, sleep
from typing import Self
from urllib.error import URLError
from urllib.request import urlopen

from federation.model.errors import FederationError
from federation.runtime.interruptions import Interruptions
from federation.runtime.log_errors import errors_in

LOOPBACK = "127.0.0.1"
STOP_SECONDS = 30.0
LOG_LINES_SHOWN = 15


class DemoFailed(FederationError):
    """A step of the demo failed."""

    reason = "DEMO_FAILED"


class ProgramEnded(DemoFailed):
    """A program that was to run on has ended; the message has its last words."""


class LoggedError(DemoFailed):
    """A program has logged an error, which the message shows."""


class Programs:
    """``with Programs(folder) as programs: programs.start("agent", "-m", "estimator", …)``."""

    def __init__(
        self, folder: Path, environment: Mapping[str, str], interruptions: Interruptions
    ) -> None:
        self._folder = folder
        self._interruptions = interruptions
        self._environment = dict(environment)
        self._running: list[tuple[str, subprocess.Popen[bytes]]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self, name: str, *arguments: str) -> None:
        """Starts Python with the arguments; its output goes to ``name.log``."""
        # Interrupted halfway, a process would run that nobody knows of.
        with self._log(name).open("ab") as log, self._interruptions.held():
            process = subprocess.Popen(
                [sys.executable, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._environment,
                # Ctrl-C reaches the demo alone, which then ends everything in order.
                start_new_session=True,
            )
            self._running.append((name, process))

    def run(self, *command: str) -> int:
        """Runs a command to its end, in the foreground; its exit status."""
        process: subprocess.Popen[bytes] | None = None
        try:
            with self._interruptions.held():
                process = subprocess.Popen(command, env=self._environment, start_new_session=True)
            return process.wait()
        finally:
            if process is not None and process.poll() is None:
                process.kill()
                process.wait()

    def kill(self, name: str) -> None:
        """Ends a program as a power failure does; it may be started again."""
        process = dict(self._running)[name]
        process.kill()
        process.wait()
        self._running.remove((name, process))

    def require_running(self) -> None:
        """Raises ProgramEnded with a program's last words when one has ended."""
        for name, process in self._running:
            if process.poll() is not None:
                words = last_words(self._log(name))
                raise ProgramEnded(f"{name} ended with exit code {process.returncode}:{words}")

    def require_clean_logs(self) -> None:
        """Raise LoggedError with the first error that a program has logged, if one has."""
        for log in sorted(self._folder.glob("*.log")):
            if errors := errors_in(log.read_text(errors="replace")):
                shown = "".join(f"\n  {line}" for line in errors[0].splitlines())
                raise LoggedError(f"{log.stem} logged an error:{shown}")

    def await_words(self, name: str, words: str, deadline_seconds: float) -> None:
        """Wait until a program of ours has written the words into its log."""
        log = self._log(name)
        deadline = monotonic() + deadline_seconds
        while words not in log.read_text(errors="replace"):
            self.require_running()
            if monotonic() > deadline:
                raise DemoFailed(f"{name} did not start within {deadline_seconds:g} s")
            sleep(0.05)

    def await_answer(self, url: str, deadline_seconds: float) -> None:
        """Waits until ``url`` answers 200."""
        deadline = monotonic() + deadline_seconds
        while True:
            self.require_running()
            with suppress(URLError, OSError), urlopen(url, timeout=2) as answer:  # noqa: S310 - our own http URL
                if answer.status == 200:
                    return
            if monotonic() > deadline:
                raise DemoFailed(f"{url} did not answer within {deadline_seconds:g} s")
            sleep(0.05)

    def stop(self) -> None:
        """Ends every program at once, and waits; kills what does not listen."""
        for _, process in self._running:
            process.send_signal(signal.SIGTERM)
        deadline = monotonic() + STOP_SECONDS
        while self._running:
            _, process = self._running.pop()
            try:
                process.wait(max(0.0, deadline - monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _log(self, name: str) -> Path:
        return self._folder / f"{name}.log"


def last_words(log: Path) -> str:
    """The end of a log, each line on an indented line of its own."""
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    return "".join(f"\n  {line}" for line in lines[-LOG_LINES_SHOWN:])


def keep_logs(folder: Path) -> Path:
    """Copies every log below the folder to one that stays."""
    kept = Path(tempfile.mkdtemp(prefix="fedsched-demo-logs-"))
    for log in folder.rglob("*.log"):
        shutil.copy(log, kept)
    return kept


@contextmanager
def claimed_port(preferred: int) -> Iterator[int]:
    """``preferred`` when nobody has it, else any free port of the loopback interface.

    Until a program listens there, another demo could choose it too. UDP has the same numbers, and
    nobody needs them here: who has bound one has claimed the port of that number.
    """
    with ExitStack() as stack:
        for port in (preferred, 0, 0, 0):
            with suppress(OSError), socket.socket() as probe:
                probe.bind((LOOPBACK, port))
                bound: int = probe.getsockname()[1]
                claim = socket.socket(type=socket.SOCK_DGRAM)
                stack.enter_context(claim)
                claim.bind((LOOPBACK, bound))
                break
        else:
            raise DemoFailed("no free port on the loopback interface")
        yield bound
