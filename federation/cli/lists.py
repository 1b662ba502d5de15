"""Lists: the columns of a kind, which rows are selected, their order, and how they are shown.

Must not know any kind, nor ask anybody for rows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, Final, Generic, TypeVar

import click

from federation.cli import output as show
from federation.cli.layouts import Layout
from federation.cli.output import NO_NUMBER, Format, Output, output_option, present_time
from federation.codec.written import document_from_message
from federation.model.errors import InvalidRequest, NotFound
from federation.runtime.terminal import say

R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class ListColumn(Generic[R]):
    """A column: its cell of a row at a time in Unix seconds.

    ``order`` is the value to sort by where the cell is a text for people. Only ``-o wide`` shows a
    ``wide`` column. A ``rare`` one is shown where some row has something in it, and with ``-w``.
    """

    heading: str
    cell: Callable[[R, float], object]
    order: Callable[[R], Any] | None = field(default=None, kw_only=True)
    wide: bool = field(default=False, kw_only=True)
    rare: bool = field(default=False, kw_only=True)

    @property
    def word(self) -> str:
        """The name of the column in ``--sort-by``."""
        return self.heading.lower().replace(" ", "-")


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedKind(Generic[R]):
    """The rows of one list: their columns, names, labels and documents.

    ``least``, ``last`` and ``prose`` are headings, as tables take them. Rows of ``is_record`` never
    end: a row that is no longer fetched is an old one. ``news`` is what ``-w`` says
    of a row beside its document.
    """

    word: str
    columns: Sequence[ListColumn[R]]
    named: Callable[[R], str]
    empty: str
    least: Sequence[str] = ()
    last: Sequence[str] = ()
    prose: Sequence[str] = ()
    labels: Callable[[R], Mapping[str, str]] | None = None
    document: Callable[[Any], Any] = document_from_message
    can_change: bool = True
    is_record: bool = False
    news: Callable[[R], Mapping[str, Any]] | None = None

    def name(self, row: R) -> str:
        """``cluster/member1``."""
        return f"{self.word}/{self.named(row)}" if self.word else self.named(row)

    def only(self, rows: Iterable[R], names: Collection[str]) -> list[R]:
        """All rows, or those that are named. Raises NotFound."""
        if not names:
            return list(rows)
        row_by_name = {self.named(row): row for row in rows}
        for name in names:
            if name not in row_by_name:
                raise NotFound(f"There is no {self.word} {name!r} in this list.")
        return [row_by_name[name] for name in names]


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """The options of a list."""

    output: Output
    sort_by: str = ""
    labels: Sequence[Term] = ()
    fields: Sequence[Term] = ()
    watch: bool = False
    has_headings: bool = True
    shows_labels: bool = False


def listing_options(kind: ListedKind[Any]) -> Callable[[F], F]:
    """The options of lists, passed on together as ``listing``.

    Kinds without labels have no ``-l``, and kinds that do not change no ``-w``.
    """

    def decorated(function: F) -> F:
        @wraps(function)
        def gathered(
            *args: Any,
            output: Output,
            sort_by: str,
            field_selector: str,
            no_headers: bool,
            selector: str = "",
            watch: bool = False,
            show_labels: bool = False,
            **options: Any,
        ) -> Any:
            listing = Listing(
                output=output,
                sort_by=sort_by,
                labels=label_terms(selector),
                fields=field_terms(field_selector),
                watch=watch,
                has_headings=not no_headers,
                shows_labels=show_labels,
            )
            return function(*args, listing=listing, **options)

        command: Any = output_option(gathered)
        for option in _options(kind):
            command = option(command)
        return command  # type: ignore[no-any-return]  # click's decorators return what they take

    return decorated


def _options(kind: ListedKind[Any]) -> Iterator[Callable[[Any], Any]]:
    words = ", ".join(column.word for column in kind.columns if column.word)
    if kind.can_change:
        yield click.option(
            "-w", "--watch", is_flag=True, help="Go on: a row for each that changes."
        )
    yield click.option("--no-headers", is_flag=True, help="A table without its headings.")
    yield click.option(
        "--field-selector",
        default="",
        metavar="FIELD=VALUE,...",
        help="Only those whose field of -o json is, or with != is not, that.",
    )
    if kind.labels is not None:
        yield click.option("--show-labels", is_flag=True, help="The labels as a column, too.")
        yield click.option(
            "-l", "--selector", default="", help="Only those with these labels, as in kubectl."
        )
    yield click.option(
        "--sort-by",
        default="",
        metavar="COLUMN",
        shell_complete=lambda _context, _parameter, incomplete: [
            word for word in words.split(", ") if word.startswith(incomplete)
        ],
        help=f"By {words}, or a field: .metadata.name. A - before it turns the order round.",
    )


_KEY: Final = r"[A-Za-z0-9]([A-Za-z0-9._/-]*[A-Za-z0-9])?"
_TERMS: Final = re.compile(r",(?![^(]*\))")
_SET: Final = re.compile(rf"({_KEY})\s+(in|notin)\s*\(([^()]*)\)")
_PAIR: Final = re.compile(rf"({_KEY})\s*(==|=|!=)\s*([^=!(),]*)")
_PRESENCE: Final = re.compile(rf"(!?)\s*({_KEY})")
_FIELD: Final = re.compile(r"[\s.]*([^=!]+?)\s*(==|=|!=)\s*(.*?)\s*")
# Parts between commas that no backslash stands before.
_PARTS: Final = re.compile(r"(?:[^,\\]|\\.|\\$)+")
_ESCAPED: Final = re.compile(r"\\(.)")
# A field that its document leaves out is one of these.
_LEFT_OUT: Final = frozenset({"", "false", "0"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """A key with one of these values, or none of them; without values: the key exists."""

    key: str
    values: frozenset[str] | None
    is_wanted: bool

    def holds(self, labels: Mapping[str, str]) -> bool:
        value = labels.get(self.key)
        if self.values is None:
            return (value is not None) is self.is_wanted
        return (value is not None and value in self.values) is self.is_wanted

    def holds_in(self, document: Mapping[str, Any]) -> bool:
        """The same of the field with the key as its path: ``status.agent.connected``."""
        values = self.values or frozenset()
        texts = field_texts(document, self.key.split("."))
        return (bool(values & texts) if texts else bool(values & _LEFT_OUT)) is self.is_wanted


def label_terms(text: str) -> list[Term]:
    """``tier=web,zone!=a,env in (dev,test),!legacy``, as in kubectl. Raises InvalidRequest."""
    return [_label_term(part.strip()) for part in _TERMS.split(text)] if text else []


def _label_term(text: str) -> Term:
    if match := _SET.fullmatch(text):
        values = frozenset(value.strip() for value in match[4].split(","))
        return Term(key=match[1], values=values, is_wanted=match[3] == "in")
    if match := _PAIR.fullmatch(text):
        return Term(key=match[1], values=frozenset({match[4].strip()}), is_wanted=match[3] != "!=")
    if match := _PRESENCE.fullmatch(text):
        return Term(key=match[2], values=None, is_wanted=not match[1])
    rule = f"{text!r} is none of key=value, key!=value, key in (a,b), key notin (a,b), key, !key"
    raise InvalidRequest.of("--selector", rule)


def field_terms(text: str) -> list[Term]:
    """``spec.region=eu,status.agent.connected!=true``, by the fields of ``-o json``.

    As in kubectl, a backslash before a comma, or another character, makes it a part of the value.
    Raises InvalidRequest.
    """
    return [_field_term(part) for part in filter(None, _PARTS.findall(text))]


def _field_term(text: str) -> Term:
    match = _FIELD.fullmatch(text)
    if match is None:
        rule = (
            f"{text!r} is neither field=value nor field!=value "
            r"(a comma in a value is written as \,)"
        )
        raise InvalidRequest.of("--field-selector", rule)
    value = _ESCAPED.sub(r"\1", match[3])
    return Term(key=match[1], values=frozenset({value}), is_wanted=match[2] != "!=")


def field_texts(value: Any, path: Sequence[str]) -> frozenset[str]:
    """Texts at a path, as JSON writes them; of a list the texts of all of its items."""
    if isinstance(value, list):
        return frozenset().union(*(field_texts(item, path) for item in value))
    if not path:
        if isinstance(value, bool):
            return frozenset({str(value).lower()})
        return frozenset({str(value)}) if isinstance(value, str | int | float) else frozenset()
    if not isinstance(value, Mapping):
        return frozenset()
    # Keys of labels hold dots themselves.
    for end in range(len(path), 0, -1):
        if (key := ".".join(path[:end])) in value:
            return field_texts(value[key], path[end:])
    return frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownTable(Generic[R]):
    """A printed table, to which rows may be added."""

    columns: Sequence[ListColumn[R]]
    layout: Layout

    def add(self, row: R, now: float) -> None:
        show.print_row(self.layout, [column.cell(row, now) for column in self.columns])


def print_list(
    kind: ListedKind[R], listing: Listing, rows: Sequence[R], *, alone: bool = False
) -> None:
    """The rows that are selected, in their order. ``alone``: the document is no list, but one."""
    chosen = chosen_rows(kind, listing, rows)
    if not listing.output.is_document:
        print_rows(kind, listing, chosen, of=len(rows))
        return
    # Names need no documents.
    is_named = listing.output.format is Format.NAME
    documents = [] if is_named else [kind.document(row) for row in chosen]
    document = documents[0] if alone and documents else documents
    names = map(kind.name, chosen)
    show.print_document(document, listing.output, names, has_headings=listing.has_headings)


def print_rows(
    kind: ListedKind[R], listing: Listing, chosen: Sequence[R], *, of: int
) -> ShownTable[R] | None:
    """The table of what was chosen among so many; None where nothing was shown of it."""
    now = present_time()
    columns = [column for column in kind.columns if _is_shown(column, listing, chosen, now)]
    if listing.shows_labels and kind.labels is not None:
        columns.append(_labels_column(kind.labels))
    layout = show.print_table(
        [column.heading for column in columns],
        [[column.cell(row, now) for column in columns] for row in chosen],
        least=kind.least,
        last=kind.last,
        prose=kind.prose,
        empty=f"None of {of} is selected." if of else kind.empty,
        has_headings=listing.has_headings,
    )
    return None if layout is None else ShownTable(columns=columns, layout=layout)


def _labels_column(labels: Callable[[R], Mapping[str, str]]) -> ListColumn[R]:
    """A column of labels as kubectl shows them: ``tier=gold,zone=a``."""

    def cell(row: R, _: float) -> str:
        return ",".join(f"{key}={value}" for key, value in sorted(labels(row).items())) or "<none>"

    return ListColumn("LABELS", cell)


def chosen_rows(kind: ListedKind[R], listing: Listing, rows: Sequence[R]) -> list[R]:
    """Rows that are selected, in the order of ``--sort-by``."""
    return _sorted(kind, listing, selected(kind, listing, rows))


def _is_shown(column: ListColumn[R], listing: Listing, rows: Iterable[R], now: float) -> bool:
    if column.rare and not (listing.output.is_wide or listing.watch):
        return any(column.cell(row, now) not in NO_NUMBER for row in rows)
    return listing.output.is_wide or not column.wide


def selected(kind: ListedKind[R], listing: Listing, rows: Sequence[R]) -> list[R]:
    chosen = list(rows)
    if kind.labels is not None and listing.labels:
        labels = kind.labels
        chosen = [row for row in chosen if all(term.holds(labels(row)) for term in listing.labels)]
    if not listing.fields:
        return chosen
    documents = [kind.document(row) for row in chosen]
    for term in listing.fields:
        path = term.key.split(".")
        if documents and not any(field_texts(document, path) for document in documents):
            say(f"--field-selector: no {kind.word} here has a field {term.key}", err=True)
    return [
        row
        for row, document in zip(chosen, documents, strict=True)
        if all(term.holds_in(document) for term in listing.fields)
    ]


def _sorted(kind: ListedKind[R], listing: Listing, rows: list[R]) -> list[R]:
    """Equal ones stay as they came. Raises InvalidRequest."""
    if not listing.sort_by:
        return rows
    by = listing.sort_by.removeprefix("-")
    key = _key_of(kind, by)
    keyed = [(key(row), row) for row in rows]
    present = [pair for pair in keyed if pair[0] is not None]
    present.sort(key=lambda pair: _ranked(pair[0]), reverse=by != listing.sort_by)
    return [row for _, row in present] + [row for value, row in keyed if value is None]


def _key_of(kind: ListedKind[R], by: str) -> Callable[[R], Any]:
    """The value to sort a row by; None where it has none."""
    if by[:1] in (".", "$", "{"):
        path = by.strip("{}$.").split(".")
        return lambda row: _first(field_texts(kind.document(row), path))
    column = next((listed for listed in kind.columns if listed.word == by.lower()), None)
    if column is None:
        words = ", ".join(listed.word for listed in kind.columns if listed.word)
        rule = f"must be a field such as .metadata.name, or one of {words}; not {by!r}"
        raise InvalidRequest.of("--sort-by", rule)
    if column.order is not None:
        return column.order
    cell, now = column.cell, present_time()
    return lambda row: None if (value := cell(row, now)) in NO_NUMBER else value


def _first(texts: Iterable[str]) -> str | float | None:
    """A number where it is one."""
    text = min(texts, default=None)
    try:
        return None if text is None else float(text)
    except ValueError:
        return text


def _ranked(value: Any) -> tuple[bool, float, str]:
    """Numbers by their size, and before texts."""
    is_number = isinstance(value, int | float)
    return not is_number, value if is_number else 0.0, "" if is_number else str(value)
