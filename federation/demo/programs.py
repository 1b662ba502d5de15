"""The demo's child processes: started in order, each with its own log, ended in reverse.

Must not outlive the demo: whatever ends it, ``stop`` runs.
"""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep
from typing import Self
from urllib.error import URLError
from urllib.request import urlopen

from federation.interruptions import Interruptions
from federation.model.errors import FederationError

STOP_SECONDS = 30.0
LOG_LINES_SHOWN = 15


class DemoFailed(FederationError):
    """A step of the demo failed."""

    reason = "DEMO_FAILED"


class Programs:
    """``with Programs(folder) as programs: programs.start("control-plane", "federation", …)``."""

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

    def start(self, name: str, module: str, *arguments: str) -> None:
        """Starts ``python -m module arguments``; its output goes to ``name.log``."""
        # Interrupted halfway, a process would run that nobody knows of.
        with self._log(name).open("ab") as log, self._interruptions.held():
            process = subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._environment,
                # Ctrl-C reaches the demo alone, which then ends everything in order.
                start_new_session=True,
            )
            self._running.append((name, process))

    def require_running(self) -> None:
        """Raises DemoFailed with a program's last words when one has ended."""
        for name, process in self._running:
            if process.poll() is not None:
                words = self._log(name).read_text(errors="replace").splitlines()
                shown = "\n  ".join(words[-LOG_LINES_SHOWN:])
                raise DemoFailed(f"{name} ended with exit code {process.returncode}:\n  {shown}")

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
        """Ends every program, the newest first, and waits; kills what does not listen."""
        while self._running:
            _, process = self._running.pop()
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _log(self, name: str) -> Path:
        return self._folder / f"{name}.log"


def free_port(preferred: int) -> int:
    """``preferred`` when nobody listens there, else any free port of the loopback interface."""
    for port in (preferred, 0):
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            bound: int = probe.getsockname()[1]
            return bound
    raise DemoFailed("no free port on the loopback interface")
