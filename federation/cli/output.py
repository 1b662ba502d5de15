"""Answers as they are shown: tables for people, documents and parts of them for programs.

Must not know what is shown, nor cut anything that is.
"""

from __future__ import annotations

import re
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, TypeVar

import click

from federation.cli.layouts import (
    GAP,
    UNLIMITED_COLUMNS,
    Layout,
    narrowest,
    padded,
    width_of,
    wrapped,
)
from federation.model import readable
from federation.model.printable import printable
from federation.runtime.terminal import json_text, say, say_lines, styled

# Cells that stand for a number which is not there.
NO_NUMBER: Final = ("", "unknown", "-")
# Where click keeps whether the verb that runs was asked for everything.
_WIDE: Final = "federation.cli.output.wide"
# The clock of the control plane that answered, as seconds ahead of the clock of this machine.
_AHEAD: Final = "federation.cli.output.ahead"
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
    CUSTOM_COLUMNS = "custom-columns"


# Formats that take parts after an equals sign, with an example.
_PARTS: Final = {
    Format.JSONPATH: "{.metadata.name}",
    Format.CUSTOM_COLUMNS: "NAME:.metadata.name,REGION:.spec.region",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """A format, of ``jsonpath`` the path, and of ``custom-columns`` headings with their paths."""

    format: Format = Format.TABLE
    path: str = ""
    columns: Sequence[tuple[str, str]] = ()

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
        name, _, parts = value.partition("=")
        if name not in self._formats or (parts and name not in _PARTS):
            self.fail(f"{value!r} is not one of {', '.join(self._words())}.", param, ctx)
        if name not in _PARTS:
            return Output(format=Format(name))
        if not parts:
            self.fail(f"say which parts: -o {name}={_PARTS[Format(name)]}", param, ctx)
        try:
            if name == Format.JSONPATH:
                return Output(format=Format.JSONPATH, path=shown_path(parts))
            return Output(format=Format.CUSTOM_COLUMNS, columns=columns_of(parts))
        except ValueError as error:
            self.fail(f"{name}=: {error}", param, ctx)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[Any]:
        # A shell asks for completions alone.
        from click.shell_completion import CompletionItem  # noqa: PLC0415 - see above

        del ctx, param
        words = [f"{form}=" if form in _PARTS else str(form) for form in self._formats]
        return [CompletionItem(form) for form in words if form.startswith(incomplete)]

    def _words(self) -> list[str]:
        names = {Format.JSONPATH: "PATH", Format.CUSTOM_COLUMNS: "NAME:PATH,..."}
        return [f"{form}={names[form]}" if form in names else form for form in self._formats]


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


def print_document(
    value: Any, output: Output, names: Iterable[str] = (), *, has_headings: bool = True
) -> None:
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
        case Format.CUSTOM_COLUMNS:
            rows = [
                [_joined(found_by(path, document)) for _, path in output.columns]
                for document in (value if isinstance(value, list) else [value])
            ]
            print_table([name for name, _ in output.columns], rows, has_headings=has_headings)
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


def columns_of(text: str) -> list[tuple[str, str]]:
    """``NAME:.metadata.name,REGION:.spec.region`` as headings and paths. Raises ValueError."""
    columns = []
    for part in re.split(r",(?![^\[]*\])", text):
        heading, colon, path = part.partition(":")
        if not (colon and heading.strip()):
            raise ValueError(f"{part!r} is not NAME:PATH")
        columns.append((heading.strip(), shown_path(path)))
    return columns


def _joined(parts: Sequence[Any]) -> str:
    texts = [part if isinstance(part, str) else json_text(part) for part in parts]
    return ",".join(texts) or "<none>"


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
