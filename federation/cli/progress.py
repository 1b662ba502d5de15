"""How far long work is, on a terminal; nothing in a pipe.

Must not know the work.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from typing import Final, TypeVar

from federation.runtime.terminal import overwrite

T = TypeVar("T")
# So often at most, in seconds.
_PAUSE: Final = 0.1


def counted(work: Iterable[T], words: str, of: int = 0) -> Iterator[T]:
    """The same items; says how many there were, of so many where that is known."""
    if not sys.stderr.isatty():
        yield from work
        return
    told = 0.0
    total = f" of {of}" if of else ""
    overwrite(f"{words}: 0{total}")
    try:
        for number, item in enumerate(work, start=1):
            yield item
            if time.monotonic() - told >= _PAUSE:
                told = time.monotonic()
                overwrite(f"{words}: {number}{total}")
    finally:
        overwrite("")
