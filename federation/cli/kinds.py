"""Kinds that `fedctl get` lists: how each is fetched, and with ``-w`` how its rows are followed.

One mechanism for all kinds, and for verbs that list. Must not know any kind, nor end by itself.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import click

from federation.cli import output as show
from federation.cli.arguments import list_namespace_options, named_binding
from federation.cli.connection import connection
from federation.cli.lists import (
    ListedKind,
    Listing,
    ShownTable,
    chosen_rows,
    listing_options,
    print_list,
    print_rows,
    selected,
)
from federation.cli.output import Format, Output, present_time
from federation.codec.written import document_from_message
from federation.model.errors import Unavailable
from federation.runtime.terminal import json_text, say, say_lines
from federation.v1 import resource_pb2

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from federation.client import Client, WatchMessage

POLL_SECONDS: Final = 2.0

R = TypeVar("R")
M = TypeVar("M", bound="Message")
Fetch = Callable[["Client"], Awaitable[Sequence[R]]]
# A row under its name, None where it is gone. None alone: rows may be missing, fetch all again.
Change = tuple[str, R | None] | None
Changes = Callable[["Client"], AsyncGenerator[Change[R]]]
News = Sequence[R] | tuple[str, R | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """The names, the namespace and the options of one call of `fedctl get`.

    ``watch``: the rows are those that a watch begins with.
    """

    names: Sequence[str] = ()
    namespace: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    watch: bool = False

    @property
    def only_namespace(self) -> str:
        """The one namespace that all rows are in; empty where there are several."""
        namespaces = {name.rpartition("/")[0] for name in self.names} or {self.namespace}
        return namespaces.pop() if len(namespaces) == 1 else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GetKind(Generic[R]):
    """An entry of the table of kinds: a list, and how it is fetched and followed.

    ``fetch`` may return more rows than are named, unless it ``fetches_names``; ``saved`` returns
    rows of this machine instead.
    ``has_namespaces``: `-n` selects, on the server or by ``namespace_of``. ``names_bindings``:
    rows are named as bindings are. ``for_documents`` is an option that writes YAML in place of a
    table, and ``empty`` says by option that no row exists.
    """

    plural: str
    listed: ListedKind[R]
    words: str
    fetch: Callable[[Client, Request], Awaitable[Sequence[R]]] | None = None
    saved: Callable[[], Sequence[R]] | None = None
    watch: Callable[[Client, Request], AsyncGenerator[Change[R]]] | None = None
    examples: Sequence[str] = ()
    options: Sequence[Callable[[Any], Any]] = ()
    metavar: str = "NAME"
    fetches_names: bool = False
    names_bindings: bool = False
    has_namespaces: bool = False
    namespace_of: Callable[[R], str] | None = None
    for_documents: str = ""
    empty: Mapping[str, str] = field(default_factory=dict)

    def keys(self, names: Sequence[str], namespace: str) -> list[str]:
        """The names of rows; ``KIND/NAME`` is taken for each. Raises InvalidRequest."""
        if self.names_bindings:
            return ["/".join(filter(None, named_binding(name, namespace))) for name in names]
        kinds = (f"{self.listed.word}/", f"{self.plural}/")
        return [
            next((name.removeprefix(kind) for kind in kinds if name.startswith(kind)), name)
            for name in names
        ]

    async def rows(self, api: Client, request: Request) -> Sequence[R]:
        """The rows that are named, or all of the namespace. Raises NotFound."""
        rows = await self.fetch(api, request) if self.fetch else ()
        namespace_of = self.namespace_of
        if namespace_of is not None and request.namespace:
            rows = [row for row in rows if namespace_of(row) == request.namespace]
        return rows if self.fetches_names else self.listed.only(rows, request.names)

    def show(self, listing: Listing, request: Request) -> None:
        listed = self.listed
        for option, words in self.empty.items():
            if request.options.get(option):
                listed = replace(listed, empty=words)
        if request.options.get(self.for_documents) and not listing.output.is_document:
            listing = replace(listing, output=Output(format=Format.YAML))

        if self.saved is not None:
            rows = listed.only(self.saved(), request.names)
            print_list(listed, listing, rows, alone=len(request.names) == 1)
            return

        async def changes(api: Client) -> AsyncGenerator[Change[R]]:
            if self.watch is not None:
                async for change in self.watch(api, request):
                    if change is None or not request.names or change[0] in request.names:
                        yield change

        show_list(
            listed,
            listing,
            lambda api: self.rows(api, request),
            changes=None if self.watch is None else changes,
            alone=len(request.names) == 1,
        )


def kind_command(kind: GetKind[Any], verb: str = "") -> click.Command:
    """The command that lists a kind: `get KIND`, or another ``verb`` such as `quota list`."""

    def run(names: Sequence[str], listing: Listing, namespace: str = "", **options: Any) -> None:
        keys = kind.keys(names, namespace)
        request = Request(names=keys, namespace=namespace, options=options, watch=listing.watch)
        kind.show(listing, request)

    command: Any = listing_options(kind.listed)(run)
    for option in reversed(kind.options):
        command = option(command)
    refused = [("-w", "--watch", "do not change", kind.listed.can_change)]
    refused.append(("-l", "--selector", "have no labels", kind.listed.labels is not None))
    if kind.has_namespaces:
        command = list_namespace_options(command)
    else:
        command = click.option(
            "-A", "--all-namespaces", is_flag=True, hidden=True, expose_value=False
        )(command)
        refused.append(("-n", "--namespace", "are in no namespace", False))
    for short, flag, words, is_taken in refused:
        if not is_taken:
            command = _refused_option(short, flag, f"{kind.plural} {words}")(command)
    command = click.argument("names", metavar=f"[{kind.metavar}...]", nargs=-1)(command)
    examples = [f"fedctl {verb}"] if verb else kind.examples or [f"fedctl get {kind.plural}"]
    epilog = f"Example: {examples[0]}"
    if len(examples) > 1:
        epilog = "\n".join(("Examples:", "", "\b", *examples, ""))
    name = verb.rpartition(" ")[2] or kind.plural
    listed: click.Command = click.command(name, help=kind.words, epilog=epilog)(command)
    return listed


def _refused_option(short: str, flag: str, words: str) -> Callable[[Any], Any]:
    """An option of other kinds, hidden, whose refusal says why this kind has none."""

    def refuse(_: click.Context, __: click.Parameter, value: str | bool | None) -> None:
        if value:
            raise click.UsageError(f"{short}: {words}")

    return click.option(
        short,
        flag,
        is_flag=short == "-w",
        hidden=True,
        expose_value=False,
        callback=refuse,
    )


def show_list(
    kind: ListedKind[R],
    listing: Listing,
    fetch: Fetch[R],
    *,
    changes: Changes[R] | None = None,
    alone: bool = False,
) -> None:
    """Fetch, show, and with ``-w`` show what changes: from ``changes``, or by fetching again.

    ``alone`` is for one row that was named: its document is no list.
    """
    rows = connection().call(fetch)
    if not listing.watch:
        print_list(kind, listing, rows, alone=alone)
        return
    try:
        _follow(kind, listing, rows, news_of(fetch, changes))
    except KeyboardInterrupt:
        return


def describe_all(
    output: Output, messages: Sequence[M], names: Iterable[str], describe: Callable[[M], None]
) -> None:
    """Print one object after the other; the document of one that is alone is no list."""
    if output.is_document:
        documents = [document_from_message(message) for message in messages]
        show.print_document(documents[0] if len(documents) == 1 else documents, output, names)
        return
    for position, message in enumerate(messages):
        if position:
            say("")
        describe(message)


async def changes_of(
    watch: AsyncGenerator[WatchMessage[Any]], row: Callable[[Any], R], named: Callable[[R], str]
) -> AsyncGenerator[Change[R]]:
    """Yield the events of a control plane's watch as changes of rows."""
    is_fresh = False
    async with aclosing(watch):
        async for message in watch:
            if message.relist:
                is_fresh = True
                continue
            for event in message.events:
                if event.type != resource_pb2.EVENT_TYPE_BOOKMARK:
                    is_gone = event.type == resource_pb2.EVENT_TYPE_DELETED
                    yield named(row(event)), None if is_gone else row(event)
            if is_fresh and message.resource_version:
                # No event tells of rows that went away before the watch began.
                yield None
                is_fresh = False


def news_of(
    fetch: Fetch[R], changes: Changes[R] | None
) -> Callable[[Client], AsyncGenerator[News[R]]]:
    """Changes one by one; all rows where a change may be missing."""
    if changes is None:
        return _polled(fetch)

    async def watched(api: Client) -> AsyncGenerator[News[R]]:
        async for change in changes(api):
            yield await fetch(api) if change is None else change

    return watched


def _polled(fetch: Fetch[R]) -> Callable[[Client], AsyncGenerator[Sequence[R]]]:
    # Lists that end do not wait for it.
    import asyncio  # noqa: PLC0415 - see above

    async def polled(api: Client) -> AsyncGenerator[Sequence[R]]:
        while True:
            await asyncio.sleep(POLL_SECONDS)
            try:
                yield await fetch(api)
            except Unavailable as error:
                say(f"error: {error.message}; asked again in {POLL_SECONDS:g} s", err=True)

    return polled


def _follow(
    kind: ListedKind[R],
    listing: Listing,
    rows: Sequence[R],
    news: Callable[[Client], AsyncGenerator[News[R]]],
) -> None:
    printer = RowPrinter(kind, listing, rows)
    for change in connection().iterate(news):
        if isinstance(change, tuple):
            printer.change(*change)
        else:
            printer.replace_all(change)


class RowPrinter(Generic[R]):
    """The rows that were shown; prints what differs from them."""

    def __init__(self, kind: ListedKind[R], listing: Listing, rows: Sequence[R]) -> None:
        self._kind, self._listing = kind, listing
        self._shown = {kind.named(row): row for row in rows}
        self._table: ShownTable[R] | None = None
        self._has_headings = listing.has_headings
        chosen = chosen_rows(kind, listing, rows)
        if not listing.output.is_document:
            self._table = print_rows(kind, listing, chosen, of=len(rows))
            return
        for row in chosen:
            self._print("ADDED", row)

    def replace_all(self, rows: Sequence[R]) -> None:
        """Print what differs where these rows exist, and no further ones."""
        current = {self._kind.named(row): row for row in rows}
        for name in self._shown.keys() - current.keys():
            if self._kind.is_record:
                del self._shown[name]
            else:
                self.change(name, None)
        for name, row in current.items():
            self.change(name, row)

    def change(self, name: str, row: R | None) -> None:
        shown = self._shown.pop(name, None)
        if row is None:
            self._print("DELETED", shown)
            return
        self._shown[name] = row
        if row != shown:
            self._print("ADDED" if shown is None else "MODIFIED", row)

    def _print(self, event: str, row: R | None) -> None:
        if row is None or not selected(self._kind, self._listing, [row]):
            return
        output = self._listing.output
        if output.format in (Format.JSON, Format.YAML):
            further = self._kind.news(row) if self._kind.news else {}
            news = {"type": event, "object": self._kind.document(row), **further}
            if output.format is Format.YAML:
                say_lines("---")
                show.print_document(news, output)
            else:
                say_lines(json_text(news))
        elif output.is_document:
            is_named = output.format is Format.NAME
            document = None if is_named else self._kind.document(row)
            names, has_headings = [self._kind.name(row)], self._has_headings
            show.print_document(document, output, names, has_headings=has_headings)
            self._has_headings = False
        elif event == "DELETED":
            say(f"{self._kind.name(row)} deleted")
        elif self._table is None:
            self._table = print_rows(self._kind, self._listing, [row], of=1)
        else:
            self._table.add(row, present_time())
