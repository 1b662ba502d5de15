"""Room that is kept for who waits: from whom it is kept, and for how many at once.

Pure. Must not know how much room that is.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from federation.model.placement import Binding

# However many were overtaken: each keeps others from some of the room there is.
MOST_EARMARKS: Final = 10


def is_kept_from(waiting: Binding, other: Binding) -> bool:
    """Whether what is kept for one that waits is not for another: of equal or lower priority, and
    not placed together with it.
    """
    return waiting.priority >= other.priority and not goes_with(waiting, other)


def goes_with(one: Binding, other: Binding) -> bool:
    """Whether they are the same, or of one gang."""
    gang = other.gang.name if other.gang else ""
    is_of_gang = bool(gang) and one.gang is not None and one.gang.name == gang
    return one.namespace == other.namespace and (one.name == other.name or is_of_gang)


def room_is_kept_for(keys: Iterable[str]) -> str:
    """Why less is left than reports say."""
    return f"room is kept for {', '.join(keys)}, which waited before"
