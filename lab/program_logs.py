"""Errors in the logs of our programs: a test fails on each one that it does not expect.

Must not know which errors a test expects: the test names them, by `expected_errors`.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from federation.runtime.log_errors import errors_in
from federation.runtime.logs import PROGRAMS

MARKER: Final = "expected_errors"
# gRPC has one wake-up for all event loops of a process, and tests run several: a loop that another
# one was faster than finds nothing to read (BlockingIOError). No program of ours has two.
NOISE: Final = (r"PollerCompletionQueue\._handle_events",)
# Libraries that report a fault of ours by a record of their own.
LIBRARIES: Final = ("asyncio", "grpc", "uvicorn", "aiohttp", "sqlalchemy")


class ErrorRecords(logging.Handler):
    """Errors that programs logged within this process, and those of processes that ended."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self._errors: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        stack = ""
        if record.exc_info:
            stack = "\n" + logging.Formatter().formatException(record.exc_info)
        fields: Mapping[str, object] = getattr(record, "fields", {})
        said = "".join(f" {key}={value}" for key, value in fields.items())
        self._errors.append(f"{record.name}: {record.getMessage()}{said}{stack}")

    def add(self, program: str, text: str) -> None:
        """Take the errors in what a process printed."""
        self._errors += [f"{program}: {error}" for error in errors_in(text)]

    def take(self, expected: Iterable[str]) -> list[str]:
        """Return the errors since the last call that match none of `expected`, and forget all."""
        patterns = [re.compile(pattern) for pattern in (*expected, *NOISE)]
        errors, self._errors = self._errors, []
        return [error for error in errors if not any(pattern.search(error) for pattern in patterns)]


RECORDS: Final = ErrorRecords()


def begin_recording() -> None:
    """Record the errors of all programs that run within this process from now on."""
    for name in (*PROGRAMS, *LIBRARIES):
        logger = logging.getLogger(name)
        if RECORDS not in logger.handlers:
            logger.addHandler(RECORDS)


def check_process(program: str, text: str) -> None:
    """Record the errors in the output of a process that has ended."""
    RECORDS.add(program, text)


@contextmanager
def checked_file(program: str, log: Path) -> Iterator[Path]:
    """Record the errors that processes write into a file from here on, at the end of the block."""
    begin = log.stat().st_size if log.exists() else 0
    try:
        yield log
    finally:
        if log.exists():
            check_process(program, log.read_bytes()[begin:].decode("utf-8", "replace"))


def expected_by(node: pytest.Item | pytest.Collector) -> list[str]:
    """Return the patterns of the errors that a test, its class and its module expect."""
    return [pattern for mark in node.iter_markers(MARKER) for pattern in mark.args]


def fail_on(errors: list[str]) -> None:
    """Fail the test where a program logged an error that it did not expect."""
    if errors:
        pytest.fail("a program logged an unexpected error:\n" + "\n\n".join(errors), pytrace=False)
