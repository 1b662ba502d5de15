"""Futures that fail for a caller who may have left.

Must not decide what a failure is.
"""

from __future__ import annotations

import asyncio
from typing import Any


def fail(future: asyncio.Future[Any], error: BaseException) -> None:
    """Raise the error in the one who waits, if anybody does and nothing was answered before.

    A caller who has left, as one whose call was cancelled, looks at no error: asyncio would log it
    as one that was never retrieved.
    """
    if not future.done():
        future.set_exception(error)
        # Counts as looked at.
        future.exception()
