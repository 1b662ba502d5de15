"""Room that is kept for who waits: from whom it is kept, and for how many at once.

Pure. Must not know how much room that is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import takewhile
from typing import Final, NamedTuple, TypeVar

from federation.model.placement import Binding
from federation.model.reason_codes import ReasonCode
from federation.model.reasons import BindingRef, Reason

T = TypeVar("T")


class Earmark(NamedTuple):
    """Replicas that have room by cluster, and the clusters where all that is free on nodes of their
    size is kept.
    """

    shares: Mapping[str, int]
    closed: frozenset[str]


# However many were overtaken: each keeps others from some of the room there is.
MOST_EARMARKS: Final = 10


def is_kept_from(waiting: Binding, other: Binding) -> bool:
    """Whether what is kept for one that waits is not for another: of equal or lower priority, and
    not placed together with it.
    """
    return waiting.priority >= other.priority and not goes_with(waiting, other)


def kept_before(kept: Sequence[T], binding_of: Callable[[T], Binding], other: Binding) -> list[T]:
    """Return those, in the order of the queue, whose room is not for another binding. One that has
    an earmark itself comes before all that stand behind it: else each would wait for the other.
    """
    before = takewhile(lambda each: not goes_with(binding_of(each), other), kept)
    return [each for each in before if is_kept_from(binding_of(each), other)]


def earmark_in(room: Mapping[str, int], could_hold: Iterable[str], lacking: int) -> Earmark:
    """Return what is kept for a binding that lacks so many replicas, where so many of them have
    ``room`` by cluster. What is free where less than all have room is kept too: it becomes their
    room bit by bit.
    """
    shares = {name: min(count, lacking) for name, count in room.items() if count > 0}
    closed = frozenset(name for name in could_hold if room.get(name, 0) < lacking)
    return Earmark(shares, closed)


def goes_with(one: Binding, other: Binding) -> bool:
    """Whether they are the same, or of one gang."""
    gang = other.gang.name if other.gang else ""
    is_of_gang = bool(gang) and one.gang is not None and one.gang.name == gang
    return one.namespace == other.namespace and (one.name == other.name or is_of_gang)


def room_is_kept_for(keys: Iterable[str]) -> Reason:
    """Why less is left than reports say."""
    return Reason.of(ReasonCode.ROOM_KEPT_FOR, tuple(map(BindingRef.of, keys)))
