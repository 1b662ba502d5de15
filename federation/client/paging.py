"""Lists that come in pages, read to their end.

Must not know what is listed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final, TypeVar

Page = TypeVar("Page")
Row = TypeVar("Row")

_MOST_ROWS: Final = 1000


async def listed(
    ask: Callable[[Any], Awaitable[Page]],
    request: Any,
    rows: Callable[[Page], Iterable[Row]],
    limit: int | None = None,
) -> list[Row]:
    """All rows, or so many at most. ``request`` says the rest of what is asked, and stays as it is;
    ``rows`` are those of one page.
    """
    asked = type(request)()
    asked.CopyFrom(request)
    found: list[Row] = []
    while True:
        asked.page_size = _MOST_ROWS if limit is None else min(limit - len(found), _MOST_ROWS)
        page: Any = await ask(asked)
        found += rows(page)
        if not page.next_page_token or (limit is not None and len(found) >= limit):
            return found
        asked.page_token = page.next_page_token
