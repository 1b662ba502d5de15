"""How answers are shown: aligned tables for people, JSON and YAML for programs.

Must not know what is shown.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from typing import Any, TypeVar

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from federation.model.printable import printable
from federation.model.resources import (
    CPU,
    EPHEMERAL_STORAGE,
    HUGEPAGES_PREFIX,
    MEMORY,
    STORAGE,
)
from federation.terminal import json_text, say_lines, styled, yaml_text

# Piped output is for other programs: it is never cut to a width.
UNLIMITED_COLUMNS = 100_000
IN_BYTES = frozenset({MEMORY, STORAGE, EPHEMERAL_STORAGE})

F = TypeVar("F", bound=Callable[..., Any])


class Format(StrEnum):
    """What ``-o`` takes; ``table`` when not given."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"

    @property
    def is_document(self) -> bool:
        return self in (Format.JSON, Format.YAML)


def output_option(function: F) -> F:
    """The option ``-o``, passed on as ``output``."""
    choice = click.Choice([each.value for each in Format])
    option = click.option(
        "-o",
        "--output",
        type=choice,
        default=Format.TABLE.value,
        show_default=True,
        callback=lambda _context, _parameter, value: Format(value),
        help="How to show the answer.",
    )
    return option(function)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Aligned columns; numbers to the right. Headings are bold on a terminal."""
    kept = [list(row) for row in rows]
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for position, column in enumerate(columns):
        numeric = bool(kept) and all(_is_number(row[position]) for row in kept)
        table.add_column(column, justify="right" if numeric else "left", no_wrap=not _is_terminal())
    for row in kept:
        table.add_row(*(Text(printable(str(cell))) for cell in row))
    _print(table)


def print_facts(facts: Iterable[tuple[str, object]]) -> None:
    """Name and value a line, values aligned."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=not _is_terminal())
    for name, value in facts:
        table.add_row(Text(printable(f"{name}:"), style="bold"), Text(printable(str(value))))
    _print(table)


def print_document(value: object, output: Format) -> None:
    """A document, or several, as JSON or YAML."""
    text = yaml_text(value) if output is Format.YAML else json_text(value, indent=2)
    say_lines(text.removesuffix("\n"))


def print_heading(text: str) -> None:
    """A line that stands out on a terminal, with an empty one before it."""
    console().print(Text(f"\n{printable(text)}", style="bold"))


def console() -> Console:
    """Standard output as it is now: colour and width only when it is a terminal."""
    width = None if _is_terminal() else UNLIMITED_COLUMNS
    return Console(file=sys.stdout, width=width, highlight=False, soft_wrap=not _is_terminal())


def amount(name: str, base_units: int) -> str:
    """An amount as people read it, never below 0: cpu in cores, bytes in Ki to Ti."""
    left = max(0, base_units)
    if name == CPU:
        return f"{left / 1000:.12g}"
    if name not in IN_BYTES and not name.startswith(HUGEPAGES_PREFIX):
        return str(left)
    scaled: float = left
    for unit in ("", "Ki", "Mi", "Gi"):
        if scaled < 1024:
            return f"{scaled:.4g}{unit}"
        scaled /= 1024
    return f"{scaled:.4g}Ti"


def age(seconds: float) -> str:
    """``0.4s``, ``12s``, ``5m``, ``3h``, ``2d``."""
    if seconds < 10:
        return f"{max(seconds, 0.0):.1f}s"
    for unit, size in (("s", 60), ("m", 60), ("h", 24)):
        if seconds < 2 * size:
            return f"{seconds:.0f}{unit}"
        seconds /= size
    return f"{seconds:.0f}d"


def _print(table: Table) -> None:
    """Without the blanks that pad the last column."""
    shown = console()
    with shown.capture() as capture:
        shown.print(table)
    for line in capture.get().splitlines():
        styled(line.rstrip())


def _is_number(cell: object) -> bool:
    return isinstance(cell, int | float) or cell in ("", "unknown", "-")


def _is_terminal() -> bool:
    return sys.stdout.isatty()
