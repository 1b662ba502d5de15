"""Earmarks: capacity that is kept for bindings that wait, and from which bindings it is kept.

Pure. Must not know how much capacity there is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import takewhile
from operator import itemgetter
from typing import Final, NamedTuple, TypeVar

from federation.model.placement import Binding, BindingName
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


class Earmarks:
    """Bindings that were overtaken, and those for which room is kept because that lasts too long.

    A control plane's queue and virtual time follow these rules alike.
    """

    def __init__(self) -> None:
        self._starving: dict[BindingName, float] = {}
        self.keys: set[BindingName] = set()

    @property
    def next_at(self) -> float:
        """Return when room is kept for one more; infinity while earmarks are at their limit."""
        is_full = len(self.keys) >= MAX_EARMARKS
        return math.inf if is_full else min(self._starving.values(), default=math.inf)

    def overtaken(self, key: BindingName, due_at: float) -> None:
        """Keep room for an overtaken binding from ``due_at`` on."""
        if key not in self.keys:
            self._starving.setdefault(key, due_at)

    def begin(self, now: float) -> Iterator[BindingName]:
        """Yield bindings for which room is kept from now on, the longest overtaken first."""
        for key, due_at in sorted(self._starving.items(), key=itemgetter(1)):
            if due_at > now or len(self.keys) >= MAX_EARMARKS:
                return
            self.keep(key)
            yield key

    def keep(self, key: BindingName) -> None:
        """Keep room for a binding from now on."""
        self._starving.pop(key, None)
        self.keys.add(key)

    def give_up(self, key: BindingName) -> bool:
        """Keep no room for a binding; return whether some was kept."""
        was_kept = key in self.keys
        self.keys.discard(key)
        return was_kept

    def forget(self, key: BindingName) -> None:
        """Note that a binding is not overtaken any more."""
        self._starving.pop(key, None)

    def end(self, waiting: Collection[BindingName]) -> bool:
        """Keep nothing for bindings that no longer wait; return whether something was kept."""
        self._starving = {key: at for key, at in self._starving.items() if key in waiting}
        ended = {key for key in self.keys if key not in waiting}
        self.keys -= ended
        return bool(ended)
