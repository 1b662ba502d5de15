"""How answers are shown: aligned tables for people, documents and parts of them for programs.

Must not know what is shown.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, TypeVar

import click

from federation.cli.columns import GAP, Layout, narrowest, padded, width_of, wrapped
from federation.model import readable
from federation.model.printable import printable
from federation.runtime.terminal import json_text, overwrite, say, say_lines, styled

# Piped output is for other programs: it is never cut to a width.
UNLIMITED_COLUMNS: Final = 100_000
PROGRESS_SECONDS: Final = 0.1
# Cells that stand for a number which is not there.
NO_NUMBER: Final = ("", "unknown", "-")
# Where click keeps whether the verb that runs was asked for everything.
_WIDE: Final = "federation.cli.output.wide"
# The clock of the control plane that answered, as seconds ahead of the clock of this machine.
_AHEAD: Final = "federation.cli.output.ahead"
_JSON_PATH: Final = "jsonpath="
amount, age = readable.amount, readable.age

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


class Format(StrEnum):
    """What ``-o`` takes; ``table`` when not given."""

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
        words = [_JSON_PATH if each is Format.JSONPATH else str(each) for each in self._formats]
        return [CompletionItem(each) for each in words if each.startswith(incomplete)]

    def _words(self) -> list[str]:
        return [f"{_JSON_PATH}PATH" if each is Format.JSONPATH else each for each in self._formats]


def output_option(function: F) -> F:
    """The option ``-o`` of what shows things that have a name, passed on as ``output``."""
    return _output_option(tuple(Format))(function)


def unnamed_output_option(function: F) -> F:
    """The same, of what shows things that have none."""
    return _output_option(tuple(each for each in Format if each is not Format.NAME))(function)


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
    """Aligned columns; numbers to the right. Headings are bold on a terminal.

    Nothing is ever cut. On a terminal that is too narrow the columns named in ``least`` are left
    out, the first one first, unless everything is asked for, and those of ``prose`` wrapped; then
    those of ``last`` are left out, and what still does not fit runs over. ``empty`` is what is
    said when there is no row.
    """
    kept = list(rows)
    if not kept and empty:
        say(empty, err=True)
        if _is_terminal():
            return None
    cells = [_texts(row) for row in kept]
    layout = Layout.of(
        columns,
        cells,
        [bool(kept) and all(_is_number(row[at]) for row in kept) for at in range(len(columns))],
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
        first, *others = wrapped(value, room)
        styled(f"{_bold(padded(name, names))}{' ' * GAP}{first}".rstrip())
        for line in others:
            styled(f"{' ' * (names + GAP)}{line}")


def print_document(value: Any, output: Output, names: Iterable[str] = ()) -> None:
    """A document, or several; the parts of it at a path, one a line; or only the ``names``."""
    match output.format:
        case Format.NAME:
            for name in names:
                say(name)
        case Format.JSONPATH:
            found = found_by(output.path, value)
            for each in found:
                say_lines(each if isinstance(each, str) else json_text(each))
            if not found:
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
    return click.style(text, bold=True) if _is_terminal() else text


def terminal_columns() -> int:
    """How wide what is shown may be: as wide as it is in a pipe."""
    return shutil.get_terminal_size().columns if _is_terminal() else UNLIMITED_COLUMNS


def _is_number(cell: object) -> bool:
    return isinstance(cell, int | float) or cell in NO_NUMBER


def _is_wide() -> bool:
    """Whether the verb that runs was asked for everything."""
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.meta.get(_WIDE))


def is_terminal() -> bool:
    """Whether people read standard output."""
    return _is_terminal()


def _is_terminal() -> bool:
    return sys.stdout.isatty()


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
    """What is there, in order; ``$.items`` is a list itself, where the document is one."""
    if isinstance(document, list) and path.startswith(_ITEMS):
        document = {"items": document}
    found: list[Any] = _compiled(path).findall(document)
    return found


def _compiled(path: str) -> Any:
    # Only who asks for a path waits for the library.
    from jsonpath import JSONPathError, compile  # noqa: A004, PLC0415 - see above

    try:
        return compile(path)
    except JSONPathError as error:
        raise ValueError(str(error).partition("\n")[0]) from error
