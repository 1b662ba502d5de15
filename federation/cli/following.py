"""Lists that are asked for, and with ``-w`` go on: a row for each thing that changes.

Must not know any kind, nor end by itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Any, Final, Generic, TypeVar

from federation.cli import output as show
from federation.cli.connection import connection, present_time
from federation.cli.kinds import ListedKind, Listing
from federation.cli.listing import ShownTable, chosen_rows, print_list, print_rows, selected
from federation.cli.output import Format
from federation.client import Client, WatchMessage
from federation.model.errors import Unavailable
from federation.runtime.terminal import json_text, say, say_lines
from federation.v1 import resource_pb2

POLL_SECONDS: Final = 2.0

R = TypeVar("R")
# Everything there is, newly asked for.
Fetch = Callable[[Client], Awaitable[Sequence[R]]]
# What became of one thing: as it is now, or None where it is gone, under its name. Neither: all
# that was told may be missing something, and is asked for again.
Change = tuple[str, R | None] | None
Changes = Callable[[Client], AsyncGenerator[Change[R]]]


def show_list(
    kind: ListedKind[R],
    listing: Listing,
    fetch: Fetch[R],
    *,
    changes: Changes[R] | None = None,
    alone: bool = False,
) -> None:
    """Ask, show, and with ``-w`` go on showing what changes: as ``changes`` tells it, or else by
    asking again and again. ``alone`` is for one thing that was named: its document is no list.
    """
    rows = connection().call(fetch)
    if not listing.watch:
        print_list(kind, listing, rows, alone=alone)
        return
    try:
        _follow(kind, listing, rows, _told(fetch, changes))
    except KeyboardInterrupt:
        return


async def changes_of(
    watch: AsyncGenerator[WatchMessage[Any]], row: Callable[[Any], R], named: Callable[[R], str]
) -> AsyncGenerator[Change[R]]:
    """What a watch of the control plane tells, as changes of rows."""
    is_fresh = False
    async for message in watch:
        if message.relist:
            is_fresh = True
            continue
        for event in message.events:
            if event.type != resource_pb2.EVENT_TYPE_BOOKMARK:
                is_gone = event.type == resource_pb2.EVENT_TYPE_DELETED
                yield named(row(event)), None if is_gone else row(event)
        if is_fresh:
            # What went away before the watch began is in no event.
            yield None
            is_fresh = False


def _told(
    fetch: Fetch[R], changes: Changes[R] | None
) -> Callable[[Client], AsyncGenerator[Sequence[R] | tuple[str, R | None]]]:
    """Changes one by one, and where those are not told everything that is there."""
    if changes is None:
        return _polled(fetch)

    async def watched(api: Client) -> AsyncGenerator[Sequence[R] | tuple[str, R | None]]:
        async for change in changes(api):
            yield await fetch(api) if change is None else change

    return watched


def _polled(fetch: Fetch[R]) -> Callable[[Client], AsyncGenerator[Sequence[R]]]:
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
    told: Callable[[Client], AsyncGenerator[Sequence[R] | tuple[str, R | None]]],
) -> None:
    printer = _Printer(kind, listing, rows)
    for news in connection().iterate(told):
        if isinstance(news, tuple):
            printer.change(*news)
        else:
            printer.all_are(news)


class _Printer(Generic[R]):
    """Remembers what was shown, and shows what is otherwise."""

    def __init__(self, kind: ListedKind[R], listing: Listing, rows: Sequence[R]) -> None:
        self._kind, self._listing = kind, listing
        self._known = {kind.named(row): row for row in rows}
        self._table: ShownTable[R] | None = None
        chosen = chosen_rows(kind, listing, rows)
        if not listing.output.is_document:
            self._table = print_rows(kind, listing, chosen, of=len(rows))
            return
        for row in chosen:
            self._print("ADDED", row)

    def all_are(self, rows: Sequence[R]) -> None:
        """These are there, and no others."""
        there = {self._kind.named(row): row for row in rows}
        for name in self._known.keys() - there.keys():
            self.change(name, None)
        for name, row in there.items():
            self.change(name, row)

    def change(self, name: str, row: R | None) -> None:
        before = self._known.pop(name, None)
        if row is None:
            self._print("DELETED", before)
            return
        self._known[name] = row
        if row != before:
            self._print("ADDED" if before is None else "MODIFIED", row)

    def _print(self, event: str, row: R | None) -> None:
        if row is None or not selected(self._kind, self._listing, [row]):
            return
        output = self._listing.output
        if output.format in (Format.JSON, Format.YAML):
            told = {"type": event, "object": self._kind.document(row)}
            if output.format is Format.YAML:
                say_lines("---")
                show.print_document(told, output)
            else:
                say_lines(json_text(told))
        elif output.is_document:
            is_named = output.format is Format.NAME
            document = None if is_named else self._kind.document(row)
            show.print_document(document, output, [self._kind.name(row)])
        elif event == "DELETED":
            say(f"{self._kind.name(row)} deleted")
        elif self._table is None:
            self._table = print_rows(self._kind, self._listing, [row], of=1)
        else:
            self._table.add(row, present_time())
