"""Kinds of things that verbs list: which columns each has, and what may be said about its lists.

One mechanism for all verbs: each kind is a table of columns. Must not know any kind.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, Generic, TypeVar

import click

from federation.cli.output import Output, output_option
from federation.cli.selecting import Term, field_terms, label_terms
from federation.codec.written import document_from_message
from federation.model.errors import NotFound

R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class ListColumn(Generic[R]):
    """What a column shows of a row, at a time (Unix seconds).

    ``order`` is what it is sorted by, where the cell is a text made for people. Only ``-o wide``
    shows a ``wide`` one, and a ``rare`` one shows itself where some row has something in it.
    """

    heading: str
    cell: Callable[[R, float], object]
    order: Callable[[R], Any] | None = field(default=None, kw_only=True)
    wide: bool = field(default=False, kw_only=True)
    rare: bool = field(default=False, kw_only=True)

    @property
    def word(self) -> str:
        """As ``--sort-by`` calls it."""
        return self.heading.lower().replace(" ", "-")


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedKind(Generic[R]):
    """What there is to know of the things that one verb lists.

    ``least``, ``last`` and ``prose`` are headings, as tables take them.
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

    def name(self, row: R) -> str:
        """``cluster/member1``."""
        return f"{self.word}/{self.named(row)}"

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
    """What was said about how a list is shown."""

    output: Output
    sort_by: str = ""
    labels: Sequence[Term] = ()
    fields: Sequence[Term] = ()
    watch: bool = False
    has_headings: bool = True
    shows_labels: bool = False


def listing_options(kind: ListedKind[Any]) -> Callable[[F], F]:
    """The options of lists: ``-o``, ``--sort-by``, ``--field-selector`` and ``--no-headers``, and
    ``-l``, ``--show-labels`` and ``-w`` where the kind has them; passed on together as ``listing``.
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
            **others: Any,
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
            return function(*args, listing=listing, **others)

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
