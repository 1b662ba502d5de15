"""Run a program whose output nobody has to read, and show all the time that it is alive.

Runs before anything is installed: standard library only.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from federation.runtime.interruptions import Interruptions

LINES_SHOWN = 15
COLUMNS_SHOWN = 60
# How often a terminal's line is written anew, and how often a log gets a line.
TERMINAL_SECONDS, LOG_SECONDS = 0.2, 5.0
# What an interrupted program may take to remove what it has begun.
END_SECONDS = 1.0


class Failed(Exception):
    """A program failed; the message is the end of what it said."""


def say(message: str) -> None:
    print(f"fedsched: {message}", flush=True)


def run(
    command: Sequence[str | os.PathLike[str]],
    *,
    log: Path,
    interruptions: Interruptions,
    environment: Mapping[str, str] | None = None,
    progress: Callable[[], str] = str,
) -> None:
    """Runs the command with its output in ``log``; raises Failed, or KeyboardInterrupt."""
    started = time.monotonic()
    on_terminal = sys.stdout.isatty()
    interval_seconds = TERMINAL_SECONDS if on_terminal else LOG_SECONDS
    process: subprocess.Popen[bytes] | None = None
    try:
        # Interrupted halfway, a process would run that nobody knows of.
        with interruptions.held():
            process = _start(command, log, environment)
        while (status := _status_within(interval_seconds, process)) is None:
            parts = (f"{time.monotonic() - started:3.0f} s", progress(), _last_line(log))
            line = ", ".join(part for part in parts if part)
            if on_terminal:
                print(f"\r\033[K  {line}", end="", flush=True)
            else:
                say(f"  {line}")
    finally:
        if on_terminal:
            print("\r\033[K", end="", flush=True)
        if process is not None:
            _end(process)
    if status != 0:
        raise Failed("\n".join(_lines(log)[-LINES_SHOWN:]))


def _start(
    command: Sequence[str | os.PathLike[str]], log: Path, environment: Mapping[str, str] | None
) -> subprocess.Popen[bytes]:
    """In a session of its own: Ctrl-C reaches us alone, who end it in order."""
    with log.open("wb") as output:
        try:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )
        except OSError as error:
            raise Failed(str(error)) from error


def _status_within(seconds: float, process: subprocess.Popen[bytes]) -> int | None:
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        return None


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends the program and whatever it started, if it still runs."""
    if process.poll() is not None:
        return
    os.killpg(process.pid, signal.SIGINT)
    try:
        process.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _lines(log: Path) -> list[str]:
    text = log.read_text(encoding="utf-8", errors="replace")
    shown = "".join(letter if letter.isprintable() or letter == "\n" else " " for letter in text)
    return [line.strip() for line in shown.split("\n") if line.strip()]


def _last_line(log: Path) -> str:
    return "".join(_lines(log)[-1:])[:COLUMNS_SHOWN]
