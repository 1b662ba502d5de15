"""Rows of which some may be unreadable, because a newer release wrote them.

Must not be used where a missing row counts as one that does not exist.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar

from sqlalchemy import Row, Select
from sqlalchemy.ext.asyncio import AsyncConnection

from federation.history.bodies import NewerBody
from federation.services.troubles import TOLD_AGAIN_SECONDS, Trouble

Value = TypeVar("Value")
Place = TypeVar("Place")

UNREAD: Final = Trouble(
    logging.getLogger(__name__),
    "an object is left to control planes of a newer release",
    level=logging.ERROR,
    again_seconds=TOLD_AGAIN_SECONDS,
)


def readable_values(rows: Iterable[Row[Any]], read: Callable[[Row[Any]], Value]) -> list[Value]:
    """Return the values of the rows that can be read, and log an error about each other one."""
    values = []
    for row in rows:
        try:
            values.append(read(row))
        except NewerBody as error:
            UNREAD.met(error)
    return values


async def readable_page(
    connection: AsyncConnection,
    rows_after: Callable[[Place], Select[Any]],
    after: Place,
    limit: int,
    read: Callable[[Row[Any]], Value],
    place_of: Callable[[Row[Any]], Place],
) -> list[Value]:
    """Return the first ``limit`` readable values; a shorter page is the last one."""
    values: list[Value] = []
    while len(values) < limit:
        missing = limit - len(values)
        rows = (await connection.execute(rows_after(after).limit(missing))).all()
        values += readable_values(rows, read)
        if len(rows) < missing:
            break
        after = place_of(rows[-1])
    return values
