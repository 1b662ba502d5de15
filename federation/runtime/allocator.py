"""How the C library keeps memory that was freed: it gives back what a burst of big calls needed.

Must not be needed: where there is no glibc, nothing happens.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

MEBIBYTE = 1 << 20
# From glibc's malloc.h. To set one of the two thresholds keeps both from growing by themselves,
# after which blocks as big as requests are would never be given back.
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8
CHOSEN = (
    # Threads have their own pools of freed memory otherwise, eight for every core.
    (M_ARENA_MAX, 2),
    (M_MMAP_THRESHOLD, MEBIBYTE),
    (M_TRIM_THRESHOLD, MEBIBYTE),
)
# What is given back has to be asked for again page by page: a process that goes through tables of
# megabytes, one after the other, spends a fourth of its time on that.
KEPT_FOR_TABLES = (
    (M_ARENA_MAX, 2),
    (M_MMAP_THRESHOLD, 32 * MEBIBYTE),
    (M_TRIM_THRESHOLD, 64 * MEBIBYTE),
)


def give_back_freed_memory() -> bool:
    """Whether the C library could be told; for the whole process, before it has other threads."""
    return _told(CHOSEN)


def keep_memory_for_tables() -> bool:
    """The same of a process that does nothing but go through tables."""
    return _told(KEPT_FOR_TABLES)


def _told(options: Sequence[tuple[int, int]]) -> bool:
    try:
        set_option = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    taken = [set_option(option, value) == 1 for option, value in options]
    return all(taken)


def give_back_now() -> bool:
    """Whether anything was, also between other blocks. Takes milliseconds: for a thread."""
    try:
        taken: int = ctypes.CDLL(None).malloc_trim(0)
    except (AttributeError, OSError, TypeError):
        return False
    return taken == 1
