"""Answers as they are shown: tables for people, documents and parts of them for programs.

Must not know what is shown, nor cut anything that is.
"""

from __future__ import annotations

import shutil
import sys
import time
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Self, TypeVar

import click

from federation.model import readable
from federation.model.printable import printable
from federation.runtime.terminal import json_text, say, say_lines, styled

# Between two columns.
GAP: Final = 2
# How narrow a column of sentences may get, and how narrow where that is not enough.
PROSE_COLUMNS: Final = 24
TIGHT_COLUMNS: Final = 12
# A cluster's name, and how many replicas it gets.
LONGEST_WORD: Final = 60


def width_of(text: str) -> int:
    """How many columns of a terminal a printable text takes."""
    if text.isascii():
        return len(text)
    return sum(map(_character_width, text))


def _character_width(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def padded(text: str, width: int, *, right: bool = False) -> str:
    blanks = " " * (width - width_of(text))
    return f"{blanks}{text}" if right else f"{text}{blanks}"


def wrapped(text: str, width: int) -> list[str]:
    """Lines of at most this width, broken at blanks, and within words only where one is wider."""
    if width_of(text) <= width:
        return [text]
    lines, line = [], ""
    for word in text.split(" "):
        joined = f"{line} {word}" if line else word
        if width_of(joined) <= width:
            line = joined
            continue
        if line:
            lines.append(line)
        *whole, line = _folded(word, width)
        lines += whole
    return [*lines, line]


def _folded(word: str, width: int) -> Iterator[str]:
    piece = ""
    for character in word:
        if piece and width_of(piece) + _character_width(character) > width:
            yield piece
            piece = ""
        piece += character
    yield piece


def narrowest(texts: Iterable[str], least: int = PROSE_COLUMNS) -> int:
    """How narrow a column of prose may get: names in it stay whole."""
    words = (width_of(word) for text in texts for word in text.split(" "))
    return max(least, min(max(words, default=0), LONGEST_WORD))


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Which columns are shown, how wide each is, and which hold numbers or are wrapped.

    A text that is wider than a column that is not ``wrapped`` runs over: names stay whole.
    """

    headings: Sequence[str]
    shown: Sequence[int]
    widths: Sequence[int]
    numeric: Sequence[bool]
    hidden: Sequence[str]
    wrapped: Sequence[bool]

    @classmethod
    def of(
        cls,
        headings: Sequence[str],
        cells: Sequence[Sequence[str]],
        numeric: Sequence[bool],
        room: int,
        *,
        least: Sequence[str] = (),
        last: Sequence[str] = (),
        prose: Sequence[str] = (),
    ) -> Self:
        """A layout for these rows.

        Where the terminal is too narrow, columns of ``least`` are left out, the first one first,
        and those of ``prose`` wrapped. Then columns of ``last`` are left out. The rest runs over:
        names stay whole, to be copied.
        """
        columns = [[row[position] for row in cells] for position in range(len(headings))]
        widths = {
            heading: max(map(width_of, (heading, *texts)))
            for heading, texts in zip(headings, columns, strict=True)
        }
        texts_of = dict(zip(headings, columns, strict=True))
        stages = [
            _floors(prose, widths, texts_of, PROSE_COLUMNS),
            _floors(prose, widths, texts_of, TIGHT_COLUMNS),
        ]
        hidden = _fit(widths, room, least, last, stages)
        shown = [at for at, heading in enumerate(headings) if heading not in hidden]
        return cls(
            headings=headings,
            shown=shown,
            widths=[widths[heading] for heading in headings],
            numeric=[
                holds and heading not in prose
                for holds, heading in zip(numeric, headings, strict=True)
            ],
            hidden=hidden,
            wrapped=[room < UNLIMITED_COLUMNS and heading in prose for heading in headings],
        )

    def heading(self) -> str:
        return next(self.lines(self.headings))

    def lines(self, row: Sequence[str]) -> Iterator[str]:
        """The lines of one row, without blanks at their ends."""
        texts = {
            at: wrapped(row[at], self.widths[at]) if self.wrapped[at] else [row[at]]
            for at in self.shown
        }
        for number in range(max(map(len, texts.values()), default=0)):
            parts = [
                padded(
                    lines[number] if number < len(lines) else "",
                    self.widths[at],
                    right=self.numeric[at],
                )
                for at, lines in texts.items()
            ]
            yield (" " * GAP).join(parts).rstrip()


def _floors(
    prose: Iterable[str], widths: Mapping[str, int], texts_of: Mapping[str, list[str]], least: int
) -> dict[str, int]:
    """How narrow columns of prose may get, by heading, with whole names."""
    return {
        heading: min(widths[heading], max(width_of(heading), narrowest(texts_of[heading], least)))
        for heading in prose
        if heading in widths
    }


def _fit(
    widths: dict[str, int],
    room: int,
    least: Sequence[str],
    last: Sequence[str],
    stages: Sequence[Mapping[str, int]],
) -> list[str]:
    """The columns to leave out; where that is not enough ``widths`` is made smaller, not below the
    floors of the first stage with which all of it fits.
    """
    hidden: list[str] = []

    def over(widths: Mapping[str, int]) -> int:
        """By how much all that is shown is wider than there is room."""
        taken = sum(width + GAP for name, width in widths.items() if name not in hidden)
        return taken - GAP - room

    for name in least:
        if over({**widths, **stages[0]}) <= 0:
            break
        if name in widths:
            hidden.append(name)
    for name in last:
        if over({**widths, **stages[-1]}) <= 0:
            break
        hidden.append(name)
    floors = next((stage for stage in stages if over({**widths, **stage}) <= 0), stages[0])
    wide = [name for name, floor in floors.items() if name not in hidden and widths[name] > floor]
    # The widest one first, until others are as wide.
    while wide and over(widths) > 0:
        widest = max(wide, key=lambda name: widths[name])
        widths[widest] -= 1
        wide = [name for name in wide if widths[name] > floors[name]]
    return hidden


# Piped output is for other programs: it is never cut to a width.
UNLIMITED_COLUMNS: Final = 100_000
# Cells that stand for a number which is not there.
NO_NUMBER: Final = ("", "unknown", "-")
# Where click keeps whether the verb that runs was asked for everything.
_WIDE: Final = "federation.cli.output.wide"
# The clock of the control plane that answered, as seconds ahead of the clock of this machine.
_AHEAD: Final = "federation.cli.output.ahead"
_JSON_PATH: Final = "jsonpath="
amount, age = readable.amount, readable.age

F = TypeVar("F", bound=Callable[..., Any])


class Format(StrEnum):
    """Values of ``-o``; ``table`` is the default."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"
    JSONPATH = "jsonpath"


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """A format, and of ``jsonpath`` the path."""

    format: Format = Format.TABLE
    path: str = ""

    @property
    def is_document(self) -> bool:
        """Whether it is for programs."""
        return self.format not in (Format.TABLE, Format.WIDE)

    @property
    def is_wide(self) -> bool:
        return self.format is Format.WIDE


class OutputType(click.ParamType[Output]):
    """Reads ``-o``."""

    name = "output"

    def __init__(self, formats: Sequence[Format]) -> None:
        self._formats = formats

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        del param, ctx
        return "|".join(self._words())

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Output:
        if isinstance(value, Output):
            return value
        if Format.JSONPATH in self._formats and value.startswith(_JSON_PATH):
            try:
                path = shown_path(value.removeprefix(_JSON_PATH))
            except ValueError as error:
                self.fail(f"{_JSON_PATH}: {error}", param, ctx)
            return Output(format=Format.JSONPATH, path=path)
        if value == Format.JSONPATH:
            self.fail("say which path: -o jsonpath={.metadata.name}", param, ctx)
        if value not in self._formats:
            self.fail(f"{value!r} is not one of {', '.join(self._words())}.", param, ctx)
        return Output(format=Format(value))

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[Any]:
        # A shell asks for completions alone.
        from click.shell_completion import CompletionItem  # noqa: PLC0415 - see above

        del ctx, param
        words = [_JSON_PATH if form is Format.JSONPATH else str(form) for form in self._formats]
        return [CompletionItem(form) for form in words if form.startswith(incomplete)]

    def _words(self) -> list[str]:
        return [f"{_JSON_PATH}PATH" if form is Format.JSONPATH else form for form in self._formats]


def output_option(function: F) -> F:
    """The option ``-o`` of what shows things that have a name, passed on as ``output``."""
    return _output_option(tuple(Format))(function)


def unnamed_output_option(function: F) -> F:
    """The same, of what shows things that have none."""
    return _output_option(tuple(form for form in Format if form is not Format.NAME))(function)


def _output_option(formats: Sequence[Format]) -> Callable[[F], F]:
    return click.option(
        "-o",
        "--output",
        type=OutputType(formats),
        default=Format.TABLE.value,
        show_default=True,
        callback=_heeded,
        help="How to show the answer.",
    )


def _heeded(context: click.Context, _: click.Parameter, value: Output) -> Output:
    context.meta[_WIDE] = value.is_wide
    return value


def print_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    least: Sequence[str] = (),
    last: Sequence[str] = (),
    prose: Sequence[str] = (),
    empty: str = "",
    has_headings: bool = True,
) -> Layout | None:
    """Print aligned columns, numbers to the right; headings are bold on a terminal.

    Nothing is ever cut: ``Layout.of`` says what a narrow terminal leaves out, unless everything is
    asked for. ``empty`` is said when there is no row.
    """
    listed = list(rows)
    if not listed and empty:
        say(empty, err=True)
        if is_terminal():
            return None
    cells = [_texts(row) for row in listed]
    layout = Layout.of(
        columns,
        cells,
        [bool(listed) and all(_is_number(row[at]) for row in listed) for at in range(len(columns))],
        terminal_columns(),
        least=() if _is_wide() else least,
        last=() if _is_wide() else last,
        prose=prose,
    )
    if has_headings:
        styled(_bold(layout.heading()))
    for row in cells:
        _print_row(layout, row)
    if layout.hidden:
        hidden = ", ".join(layout.hidden)
        say(f"too narrow for {hidden}: -o wide shows all, as a pipe does", err=True)
    return layout


def print_row(layout: Layout, row: Sequence[object]) -> None:
    """One more row of a table that was printed."""
    _print_row(layout, _texts(row))


def print_facts(facts: Iterable[tuple[str, object]]) -> None:
    """Name and value a line, values aligned; on a terminal long ones are wrapped, never cut."""
    rows = [(printable(f"{name}:"), printable(str(value))) for name, value in facts]
    names = max((width_of(name) for name, _ in rows), default=0)
    room = max(terminal_columns() - names - GAP, narrowest(value for _, value in rows))
    for name, value in rows:
        first, *further = wrapped(value, room)
        styled(f"{_bold(padded(name, names))}{' ' * GAP}{first}".rstrip())
        for line in further:
            styled(f"{' ' * (names + GAP)}{line}")


def print_document(value: Any, output: Output, names: Iterable[str] = ()) -> None:
    """A document, or several; the parts of it at a path, one a line; or only the ``names``."""
    match output.format:
        case Format.NAME:
            for name in names:
                say(name)
        case Format.JSONPATH:
            parts = found_by(output.path, value)
            for part in parts:
                say_lines(part if isinstance(part, str) else json_text(part))
            if not parts:
                say(f"nothing is at {output.path}", err=True)
        case Format.YAML:
            from federation.runtime.yaml_texts import yaml_text  # noqa: PLC0415 - for few

            say_lines(yaml_text(value).removesuffix("\n"))
        case _:
            say_lines(json_text(value, indent=2))


def print_heading(text: str) -> None:
    """A line that stands out on a terminal, with an empty one before it."""
    styled(f"\n{_bold(printable(text))}")


def follow_clock(ahead_seconds: float | None) -> None:
    """Count ages from a control plane's clock, which is so far ahead of the clock of this machine.

    None is an answer without its time, and changes nothing.
    """
    if ahead_seconds is not None:
        click.get_current_context().meta[_AHEAD] = ahead_seconds


def present_time() -> float:
    """The time to count ages from: by the clock of the control plane that answered last, if any."""
    context = click.get_current_context(silent=True)
    return time.time() + (context.meta.get(_AHEAD, 0.0) if context is not None else 0.0)


def _texts(row: Sequence[object]) -> list[str]:
    return [printable(str(cell)) for cell in row]


def _print_row(layout: Layout, row: Sequence[str]) -> None:
    for line in layout.lines(row):
        styled(line)


def _bold(text: str) -> str:
    return click.style(text, bold=True) if is_terminal() else text


def terminal_columns() -> int:
    """How wide what is shown may be: as wide as it is in a pipe."""
    return shutil.get_terminal_size().columns if is_terminal() else UNLIMITED_COLUMNS


def _is_number(cell: object) -> bool:
    return isinstance(cell, int | float) or cell in NO_NUMBER


def _is_wide() -> bool:
    """Whether the verb that runs was asked for everything."""
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.meta.get(_WIDE))


def is_terminal() -> bool:
    """Whether people read standard output."""
    return sys.stdout.isatty()


# As kubectl calls what is listed; here a list is a list.
_ITEMS: Final = "$.items"


def shown_path(text: str) -> str:
    """The path as RFC 9535 has it: ``$.metadata.name`` for ``{.metadata.name}``.

    Raises ValueError for what is none.
    """
    path = text.strip()
    if path.startswith("{") and path.endswith("}"):
        path = path[1:-1].strip()
    if "{" in path or "}" in path:
        raise ValueError("one path alone is taken, no template with text or range around paths")
    if not path:
        raise ValueError("is empty; all of it is $")
    if not path.startswith("$"):
        path = f"${path}" if path[0] in ".[" else f"$.{path}"
    _compiled(path)
    return path


def found_by(path: str, document: Any) -> list[Any]:
    """Values at a path, in order; ``$.items`` of a document that is a list is the list."""
    if isinstance(document, list) and path.startswith(_ITEMS):
        document = {"items": document}
    parts: list[Any] = _compiled(path).findall(document)
    return parts


def _compiled(path: str) -> Any:
    # Only who asks for a path waits for the library.
    from jsonpath import JSONPathError, compile  # noqa: A004, PLC0415 - see above

    try:
        return compile(path)
    except JSONPathError as error:
        raise ValueError(str(error).partition("\n")[0]) from error
