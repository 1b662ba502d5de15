"""Lists: rows of one kind, selected, sorted, and shown as a table, as documents or as names.

Must not ask anybody for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from federation.cli import output as show
from federation.cli.columns import Layout
from federation.cli.connection import present_time
from federation.cli.kinds import ListColumn, ListedKind, Listing
from federation.cli.output import NO_NUMBER, Format
from federation.cli.selecting import field_texts
from federation.model.errors import InvalidRequest
from federation.runtime.terminal import say

R = TypeVar("R")


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownTable(Generic[R]):
    """A table that is there, and to which rows may be added."""

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
    show.print_document(document, listing.output, map(kind.name, chosen))


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
    """As kubectl shows them: ``tier=gold,zone=a``."""

    def cell(row: R, _: float) -> str:
        return ",".join(f"{key}={value}" for key, value in sorted(labels(row).items())) or "<none>"

    return ListColumn("LABELS", cell)


def chosen_rows(kind: ListedKind[R], listing: Listing, rows: Sequence[R]) -> list[R]:
    """Those that are selected, in the order that was asked for."""
    return _sorted(kind, listing, selected(kind, listing, rows))


def _is_shown(column: ListColumn[R], listing: Listing, rows: Iterable[R], now: float) -> bool:
    if column.rare and not listing.output.is_wide:
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
    there = [pair for pair in keyed if pair[0] is not None]
    there.sort(key=lambda pair: _ranked(pair[0]), reverse=by != listing.sort_by)
    return [row for _, row in there] + [row for value, row in keyed if value is None]


def _key_of(kind: ListedKind[R], by: str) -> Callable[[R], Any]:
    """What is sorted by; None of rows that have nothing there."""
    if by[:1] in (".", "$", "{"):
        path = by.strip("{}$.").split(".")
        return lambda row: _first(field_texts(kind.document(row), path))
    column = next((each for each in kind.columns if each.word == by.lower()), None)
    if column is None:
        words = ", ".join(each.word for each in kind.columns if each.word)
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
