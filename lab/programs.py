"""What programs of lab/ share: options, a folder, an end in order, and the module that runs beside.

Must not know what a program does.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
import threading
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType


def parser(program: str, description: str | None) -> ArgumentParser:
    """The options of ``python -m lab.PROGRAM``; its description is a module's docstring."""
    return ArgumentParser(
        prog=f"python -m lab.{program}",
        description=description,
        formatter_class=RawDescriptionHelpFormatter,
    )


@contextmanager
def own_folder(program: str) -> Iterator[Path]:
    """A folder on the disk, where servers of root find their data; gone at the end."""
    with tempfile.TemporaryDirectory(prefix=f"fedsched-{program}-", dir="/var/tmp") as name:
        yield Path(name)


def clean_up_when_ended() -> None:
    """Also on SIGTERM and SIGHUP, of which a process ends without a word else."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _end)


def _end(number: int, frame: FrameType | None) -> None:
    del frame
    sys.exit(128 + number)


class Beside:
    """A program that runs meanwhile. Each line that it prints is a complaint."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self._complaints = Counter[str]()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def forget(self) -> None:
        """What it complained of until now."""
        self._complaints = Counter()

    def complaints(self) -> Counter[str]:
        """Since it was told to forget; that it runs no more is one."""
        ended = Counter[str]()
        if (code := self.process.poll()) is not None:
            self.join()
            program = " ".join(map(str, self.process.args[2:]))  # type: ignore[index] # a list
            ended[f"{program} ended early, with {code}"] = 1
        return self._complaints + ended

    def join(self) -> None:
        """Once it has ended."""
        self._reader.join()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._complaints[line.strip()] += 1


@contextmanager
def beside(*program: str, given: object) -> Iterator[Beside]:
    """A module with its arguments runs meanwhile, and reads as JSON what it is given."""
    command = [sys.executable, "-m", *program]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdin is not None
        print(json.dumps(given), file=process.stdin)
        process.stdin.close()
        running = Beside(process)
        try:
            yield running
        finally:
            process.terminate()
            process.wait()
            running.join()
