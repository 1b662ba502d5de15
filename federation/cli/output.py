"""How answers are shown: aligned tables for people, JSON and YAML for programs.

Must not know what is shown.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any, TypeVar

import click
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from federation.model import readable
from federation.model.printable import printable
from federation.runtime.terminal import json_text, say, say_lines, styled, yaml_text

# Piped output is for other programs: it is never cut to a width.
UNLIMITED_COLUMNS = 100_000
# Of no consequence to tables.
LINES = 25
# Between two columns.
GAP = 2
# How narrow a column of sentences may get.
PROSE_COLUMNS = 24
# A cluster's name, and how many replicas it gets.
LONGEST_WORD = 60
amount, age = readable.amount, readable.age

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


def print_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    least: Sequence[str] = (),
    prose: Sequence[str] = (),
    empty: str = "",
) -> None:
    """Aligned columns; numbers to the right. Headings are bold on a terminal.

    Nothing is ever cut. On a terminal that is too narrow the columns named in ``least`` are left
    out, the first one first, unless everything is asked for, and those of ``prose`` wrapped; what
    still does not fit runs over.
    ``empty`` is what is said when there is no row.
    """
    kept = list(rows)
    cells = [[printable(str(cell)) for cell in row] for row in kept]
    if not cells and empty:
        say(empty, err=True)
        if _is_terminal():
            return
    widths = {
        column: max(cell_len(text) for text in (column, *(row[position] for row in cells)))
        for position, column in enumerate(columns)
    }
    room = shutil.get_terminal_size().columns if _is_terminal() else UNLIMITED_COLUMNS
    narrow = {
        column: _narrowest(row[position] for row in cells)
        for position, column in enumerate(columns)
        if column in prose
    }
    hidden = _fit(widths, room, () if _is_wide() else least, narrow)
    table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="bold")
    shown = [position for position, column in enumerate(columns) if column not in hidden]
    for position in shown:
        numbers = all(_is_number(row[position]) for row in kept)
        numeric = bool(kept) and numbers and columns[position] not in prose
        table.add_column(
            columns[position],
            justify="right" if numeric else "left",
            width=widths[columns[position]],
            overflow="fold",
        )
    for row in cells:
        table.add_row(*(Text(row[position]) for position in shown))
    _print(table, sum(widths[columns[position]] + GAP for position in shown))
    if hidden:
        say(f"too narrow for {', '.join(hidden)}: -o wide shows all, as a pipe does", err=True)


def _narrowest(texts: Iterable[str]) -> int:
    """How narrow a column of prose may get: names in it stay whole."""
    words = (cell_len(word) for text in texts for word in text.split(" "))
    return max(PROSE_COLUMNS, min(max(words, default=0), LONGEST_WORD))


def _fit(
    widths: dict[str, int], room: int, least: Sequence[str], narrow: Mapping[str, int]
) -> list[str]:
    """The columns to leave out; where that helps ``widths`` is made as small as ``narrow``."""
    narrow = {name: min(widths[name], width) for name, width in narrow.items()}
    hidden: list[str] = []

    def needed() -> int:
        return sum(
            narrow.get(name, width) + GAP for name, width in widths.items() if name not in hidden
        )

    for name in least:
        if needed() - GAP <= room:
            break
        if name in widths:
            hidden.append(name)
    over = sum(width + GAP for name, width in widths.items() if name not in hidden) - GAP - room
    for name in sorted(narrow, key=lambda name: -widths[name]):
        if over > 0 and name not in hidden:
            less = min(over, widths[name] - narrow[name])
            widths[name] -= less
            over -= less
    return hidden


def print_facts(facts: Iterable[tuple[str, object]]) -> None:
    """Name and value a line, values aligned; on a terminal long ones are wrapped, never cut."""
    rows = [(printable(f"{name}:"), printable(str(value))) for name, value in facts]
    room = shutil.get_terminal_size().columns if _is_terminal() else UNLIMITED_COLUMNS
    names = max((cell_len(name) for name, _ in rows), default=0)
    table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), show_header=False)
    table.add_column(width=names)
    values = max((cell_len(value) for _, value in rows), default=0)
    values = min(values, max(room - names - GAP, _narrowest(value for _, value in rows)))
    table.add_column(width=values, overflow="fold")
    for name, value in rows:
        table.add_row(Text(name, style="bold"), Text(value))
    _print(table, names + values + 2 * GAP)


def print_document(value: object, output: Format) -> None:
    """A document, or several, as JSON or YAML."""
    text = yaml_text(value) if output is Format.YAML else json_text(value, indent=2)
    say_lines(text.removesuffix("\n"))


def print_heading(text: str) -> None:
    """A line that stands out on a terminal, with an empty one before it."""
    console().print(Text(f"\n{printable(text)}", style="bold"), soft_wrap=True)


def console(width: int | None = None) -> Console:
    """Standard output as it is now: colour only when it is a terminal."""
    # Without a height a dumb terminal's width is taken for 80, whatever is said here.
    height = None if width is None else LINES
    return Console(file=sys.stdout, width=width, height=height, highlight=False)


def _print(table: Table, width: int) -> None:
    """As wide as it is, without the blanks that pad the last column."""
    shown = console(width)
    with shown.capture() as capture:
        shown.print(table)
    for line in capture.get().splitlines():
        styled(line.rstrip())


def _is_number(cell: object) -> bool:
    return isinstance(cell, int | float) or cell in ("", "unknown", "-")


def _is_wide() -> bool:
    """Whether the verb that runs was asked for everything."""
    context = click.get_current_context(silent=True)
    return context is not None and context.params.get("output") is Format.WIDE


def _is_terminal() -> bool:
    return sys.stdout.isatty()
