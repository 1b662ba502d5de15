"""The agents of a study's members: processes, to be killed and started again.

Must not look into them: what they log is kept in files.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Self

from federation.runtime.log_errors import errors_in
from lab.agents import ROOT
from lab.patience import PATIENCE_SECONDS


class AgentProcess:
    """An ``estimator run``, as long as the block lasts; ``kills`` counts how often it died."""

    def __init__(self, arguments: tuple[str, ...], log: Path) -> None:
        self.kills = 0
        self._arguments = arguments
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end(signal.SIGTERM)

    def start(self) -> None:
        environment = {k: v for k, v in os.environ.items() if not k.startswith("ESTIMATOR_")}
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "estimator", "run", *self._arguments],
                cwd=ROOT,
                env=environment,
                stdout=subprocess.DEVNULL,
                stderr=log,
            )

    def restart(self) -> None:
        """As after ``kill -9``."""
        self.kills += 1
        self._end(signal.SIGKILL)
        self.start()

    def unexpected(self) -> str:
        """Return the errors in its log."""
        return "\n".join(errors_in(self._log.read_text(encoding="utf-8", errors="replace")))

    def _end(self, number: signal.Signals) -> None:
        if self._process is None:
            return
        self._process.send_signal(number)
        try:
            self._process.wait(PATIENCE_SECONDS)
        finally:
            self._process.kill()
            self._process.wait()
            self._process = None


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
        return port
