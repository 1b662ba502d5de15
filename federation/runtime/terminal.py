"""What the programs print: the one place where it leaves them, and where it is made printable.

Must not know what is printed. Names, reasons and errors come from agents, servers and files.
"""

from __future__ import annotations

import io
import json
import logging
import sys
import textwrap
import time
from collections.abc import Iterable, Iterator
from typing import Any, Final, TypeVar

import click

from federation.model.errors import FederationError, InvalidRequest
from federation.model.printable import printable, printable_json, printable_lines

T = TypeVar("T")
PROGRESS_SECONDS: Final = 0.1


def say(text: str, *, err: bool = False) -> None:
    """One line for a person, on standard output or standard error."""
    click.echo(printable(text), err=err)


def say_lines(text: str, *, err: bool = False) -> None:
    """A text that has lines of its own; its parts may hold none that we did not put there."""
    click.echo(printable_lines(text), err=err)


def overwrite(text: str) -> None:
    """On a terminal's standard error, in place of what this wrote before."""
    click.echo(f"\r\x1b[K{printable(text)}", nl=False, err=True)


def with_progress(items: Iterable[T], words: str, of: int = 0) -> Iterator[T]:
    """The same items; a terminal's standard error shows how many came, of so many if known."""
    if not sys.stderr.isatty():
        yield from items
        return
    shown_at = 0.0
    total = f" of {of}" if of else ""
    overwrite(f"{words}: 0{total}")
    try:
        for number, item in enumerate(items, start=1):
            yield item
            if time.monotonic() - shown_at >= PROGRESS_SECONDS:
                shown_at = time.monotonic()
                overwrite(f"{words}: {number}{total}")
    finally:
        overwrite("")


def error_lines(error: FederationError) -> list[str]:
    """One line for every rule that was broken, or for every line of another message."""
    if isinstance(error, InvalidRequest):
        return [printable(f"error: {each}") for each in error.violations]
    return [f"error: {line}" for line in printable_lines(error.message).split("\n")]


def styled(text: str) -> None:
    """Lines whose escape codes are ours: what is not has been made printable before."""
    click.echo(text)


def json_text(value: object, *, indent: int | None = None) -> str:
    """A value as JSON, readable beyond ASCII."""
    return printable_json(json.dumps(value, indent=indent, ensure_ascii=False))


class Program(click.Group):
    """A program, whose errors are printable: they repeat arguments, files and answers."""

    def main(self, *args: Any, **options: Any) -> Any:
        try:
            code = super().main(*args, **{**options, "standalone_mode": False})
        except click.ClickException as error:
            shown = io.StringIO()
            error.show(file=shown)
            say_lines(shown.getvalue().rstrip("\n"), err=True)
            sys.exit(error.exit_code)
        except click.Abort:
            say("aborted", err=True)
            sys.exit(1)
        sys.exit(code if isinstance(code, int) else 0)


class OneLineFormatter(logging.Formatter):
    """A log record on one line, and what was raised below it, indented."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the library's name
        return printable(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:  # noqa: N802 - the library's name
        return textwrap.indent(printable_lines(super().formatException(ei)), "  ")
