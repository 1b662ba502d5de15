"""Earmarks: capacity that is kept for bindings that wait, and from which bindings it is kept.

Pure. Must not know how much capacity there is.
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
    """Replicas that fit, by cluster, and clusters where all free resources are kept.

    In a ``closed`` cluster they are kept on nodes that could hold a replica of the binding.
    """

    shares: Mapping[str, int]
    closed: frozenset[str]


# Earmarks at a time: each one takes capacity from all other bindings.
MAX_EARMARKS: Final = 10


def is_kept_from(waiting: Binding, other: Binding) -> bool:
    """Return whether an earmark is kept from a binding: of equal or lower priority, in no common
    gang.
    """
    return waiting.priority >= other.priority and not goes_with(waiting, other)


def kept_before(
    earmarks: Sequence[T], binding_of: Callable[[T], Binding], other: Binding
) -> list[T]:
    """Return the earmarks, in the order of the queue, that another binding must leave.

    A binding with an earmark of its own precedes all that stand behind it, because otherwise the
    two would wait for each other.
    """
    preceding = takewhile(lambda earmark: not goes_with(binding_of(earmark), other), earmarks)
    return [earmark for earmark in preceding if is_kept_from(binding_of(earmark), other)]


def earmark_in(room: Mapping[str, int], could_hold: Iterable[str], lacking: int) -> Earmark:
    """Return the earmark of a binding that lacks so many replicas; ``room`` fit by cluster.

    A cluster with capacity for fewer of them is closed: its free resources accumulate until one
    fits.
    """
    shares = {name: min(count, lacking) for name, count in room.items() if count > 0}
    closed = frozenset(name for name in could_hold if room.get(name, 0) < lacking)
    return Earmark(shares, closed)


def goes_with(one: Binding, other: Binding) -> bool:
    """Return whether two bindings are the same, or of one gang."""
    gang = other.gang.name if other.gang else ""
    is_of_gang = bool(gang) and one.gang is not None and one.gang.name == gang
    return one.namespace == other.namespace and (one.name == other.name or is_of_gang)


def room_is_kept_for(keys: Iterable[str]) -> Reason:
    """Return the reason why less is available than clusters report."""
    return Reason.of(ReasonCode.ROOM_KEPT_FOR, tuple(map(BindingRef.of, keys)))
