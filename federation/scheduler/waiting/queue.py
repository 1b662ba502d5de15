"""The bindings that wait, and the next ones to try.

Bindings with equal demands share one want: the refusal of one holds for all of them. A want then
sleeps until a cluster could take more of it than at that refusal. Pure: the time and the capacity
are arguments.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush, nsmallest
from itertools import chain
from typing import Final, TypeAlias

from federation.model.placement import BindingName

FIRST_BACKOFF_SECONDS: Final = 1.0
MAX_BACKOFF_SECONDS: Final = 10.0
# Tries at a time: few at first, so that the first result comes early. The number doubles while
# tries find capacity.
MIN_AT_ONCE: Final = 8
MAX_AT_ONCE: Final = 512

# (negative priority, time since when it waits, name): the smallest is tried first.
TryOrder: TypeAlias = tuple[int, float, BindingName]


def backoff_seconds(failures: int) -> float:
    """Return the back-off after so many failures, at least one."""
    return min(FIRST_BACKOFF_SECONDS * 2.0 ** min(failures - 1, 10), MAX_BACKOFF_SECONDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiter:
    """A binding that waits since ``since`` (Unix seconds; a queueSort plugin may shift it).

    ``want`` stands for its whole demand, ``units`` are the minimum of replicas, or sets, that it
    takes. It is not tried before ``not_before``. ``failures`` counts failed tries since its last
    refusal. ``is_overtaken``: a later binding was placed in a cluster where it might have gone.
    """

    key: BindingName
    priority: int
    since: float
    want: Hashable
    units: int = 1
    not_before: float = 0.0
    failures: int = 0
    is_overtaken: bool = False

    @property
    def order(self) -> TryOrder:
        return -self.priority, self.since, self.key


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """The capacity for a want: further units by cluster, and ``reach``, the clusters that pass its
    filters.

    For a gang, the key "" of ``room`` says whether all members fit.
    """

    room: Mapping[str, int] = field(default_factory=dict)
    reach: frozenset[str] = frozenset()


NOTHING: Final = Seen()


@dataclass(slots=True, kw_only=True, eq=False)
class _Want:
    """The bindings of one demand. ``hope`` estimates how many fit; 0: it sleeps since its refusal.

    ``seen`` is the capacity at its refusal or last look. ``must``: one binding is tried whatever
    the capacity is. ``ready`` are in order, ``trying`` are being decided, ``size`` counts all.
    """

    hope: int = 1
    must: bool = True
    seen: Seen = NOTHING
    ready: list[TryOrder] = field(default_factory=list)
    trying: list[TryOrder] = field(default_factory=list)
    size: int = 0

    @property
    def first(self) -> BindingName | None:
        """Return the first binding of those that are ready or being tried."""
        orders = [*self.ready[:1], *self.trying]
        return min(orders)[2] if orders else None


class WaitingQueue:
    """All bindings that wait and may be tried."""

    def __init__(self) -> None:
        self._waiters: dict[BindingName, Waiter] = {}
        self._wants: dict[Hashable, _Want] = {}
        self._awake: set[Hashable] = set()
        self._under_way: dict[BindingName, Hashable] = {}
        # Waiters that were put while their binding is being tried.
        self._put_meanwhile: dict[BindingName, Waiter] = {}
        self._later: list[tuple[float, BindingName]] = []
        self._at_once = MIN_AT_ONCE
        # The last in the order of the bindings that were placed, by cluster.
        self._last_placed: dict[str, TryOrder] = {}

    def __contains__(self, key: BindingName) -> bool:
        return key in self._waiters

    def __len__(self) -> int:
        return len(self._waiters)

    @property
    def wants(self) -> Collection[Hashable]:
        return self._wants.keys()

    @property
    def asleep(self) -> list[Hashable]:
        """Return the wants that are not tried until there is more capacity for them."""
        return [name for name, want in self._wants.items() if not want.hope]

    @property
    def hopeful(self) -> list[Hashable]:
        """Return the wants with more capacity since their refusal, and no binding being tried."""
        awake = ((name, self._wants[name]) for name in self._awake)
        return [name for name, want in awake if not want.must and not want.trying]

    def reaches(self, want: Hashable, clusters: Collection[str]) -> bool:
        """Return whether one of the clusters passed the want's filters at its refusal or last
        look.
        """
        return not self._wants[want].seen.reach.isdisjoint(clusters)

    def since(self, key: BindingName) -> float | None:
        """Return since when a binding waits, None where it does not."""
        waiter = self._waiters.get(key)
        return waiter.since if waiter else None

    def want_of(self, key: BindingName) -> Hashable | None:
        """Return the want of a binding, None where it does not wait."""
        waiter = self._waiters.get(key)
        return waiter.want if waiter else None

    def put(self, waiter: Waiter) -> None:
        """Add or replace a binding that waits. A want that is new is tried."""
        if waiter.key in self._under_way:
            self._put_meanwhile[waiter.key] = waiter
            return
        earlier = self._waiters.get(waiter.key)
        if earlier is not None:
            if (earlier.want, earlier.order, earlier.units) == (
                waiter.want,
                waiter.order,
                waiter.units,
            ):
                return
            self.remove(waiter.key)
        self._waiters[waiter.key] = waiter
        want = self._wants.get(waiter.want)
        if want is None:
            want = self._wants[waiter.want] = _Want()
            self._awake.add(waiter.want)
        want.size += 1
        if waiter.not_before:
            heappush(self._later, (waiter.not_before, waiter.key))
        else:
            insort(want.ready, waiter.order)

    def remove(self, key: BindingName) -> None:
        """Remove a binding that waits no longer."""
        self._put_meanwhile.pop(key, None)
        waiter = self._waiters.pop(key, None)
        if waiter is None:
            return
        want = self._wants[waiter.want]
        _drop(want.ready, waiter.order)
        want.size -= 1
        if not want.size:
            del self._wants[waiter.want]
            self._awake.discard(waiter.want)

    def take(self, now: float) -> list[Waiter]:
        """Return the next bindings to try, in order; the caller reports the result of each.

        None is returned before all earlier tries ended, because they may have taken the capacity.
        """
        self._let_in(now)
        if self._under_way:
            return []
        hopeful = (self._wants[name] for name in self._awake)
        orders = nsmallest(
            self._at_once, chain.from_iterable(want.ready[: want.hope] for want in hopeful)
        )
        taken = [self._waiters[key] for _, _, key in orders]
        for waiter in taken:
            want = self._wants[waiter.want]
            _drop(want.ready, waiter.order)
            want.trying.append(waiter.order)
            self._under_way[waiter.key] = waiter.want
        self._at_once = min(2 * self._at_once, MAX_AT_ONCE)
        return taken

    def next_time(self) -> float | None:
        """Return when the next back-off ends, None without one (Unix seconds)."""
        while self._later and not self._is_later(*self._later[0]):
            heappop(self._later)
        return self._later[0][0] if self._later else None

    def placed(self, key: BindingName) -> None:
        """Record that a try found capacity; a remainder that waits is put again by the caller."""
        want, meanwhile = self._ended(key)
        if want is not None and want.hope:
            want.hope = max(1, want.hope - 1)
        self.remove(key)
        self._put_again(meanwhile)

    def refused(self, key: BindingName, seen: Seen) -> None:
        """Record that a try found no capacity in ``seen``: the whole want sleeps."""
        name = self._under_way.get(key)
        want, meanwhile = self._ended(key)
        self._at_once = MIN_AT_ONCE
        if want is not None:
            want.hope, want.seen, want.must = 0, seen, False
            self._awake.discard(name)
        if key in self._waiters:
            self._return(self._waiters[key], failures=0)
        self._put_again(meanwhile)

    def failed(self, key: BindingName, now: float) -> float:
        """Record a passing failure of a try; return when the next try is (Unix seconds)."""
        _, meanwhile = self._ended(key)
        waiter = self._waiters.get(key)
        failures = 1 + (waiter.failures if waiter else 0)
        not_before = now + backoff_seconds(failures)
        if waiter is not None:
            self._return(waiter, failures=failures, not_before=not_before)
        self._put_again(meanwhile)
        return not_before

    def look(self, name: Hashable, seen: Seen) -> bool:
        """Wake a want if some cluster has more capacity for it than at its refusal; return whether
        it woke.

        A want that is awake goes back to sleep if others have taken that capacity meanwhile.
        """
        want = self._wants.get(name)
        if want is None or want.must:
            return False
        refused_room = want.seen.room
        want.seen = replace(want.seen, reach=seen.reach)
        growth = sum(
            max(0, room - refused_room.get(cluster, 0)) for cluster, room in seen.room.items()
        )
        if not growth:
            if not want.trying:
                want.hope = 0
                self._awake.discard(name)
            return False
        if want.hope:
            return False
        first = self._waiters[want.ready[0][2]] if want.ready else None
        self._wake(name, growth // max(first.units, 1) if first else 1)
        return True

    def wake(self, names: Iterable[Hashable]) -> None:
        """Try the first binding of each want, whatever the capacity is."""
        for name in names:
            if name in self._wants:
                self._wants[name].must = True
                self._wake(name, 1)

    def note_placed(self, order: TryOrder, clusters: Iterable[str]) -> None:
        """Note that a binding got replicas in clusters; it may have overtaken others."""
        for cluster in clusters:
            self._last_placed[cluster] = max(order, self._last_placed.get(cluster, order))

    def overtaken(self) -> list[tuple[Waiter, BindingName]]:
        """Return bindings that are overtaken for the first time, each with one that overtook it.

        That is the last one, in try order, of those placed in a cluster since the last call. Only
        the first binding of a want is considered.
        """
        placed, self._last_placed = self._last_placed, {}
        overtaken: list[tuple[Waiter, BindingName]] = []
        for want in self._wants.values() if placed else ():
            first = self._waiters.get(want.first) if want.first else None
            if first is None or first.is_overtaken:
                continue
            for cluster in placed.keys() & want.seen.reach:
                if placed[cluster] > first.order:
                    self._waiters[first.key] = marked = replace(first, is_overtaken=True)
                    overtaken.append((marked, placed[cluster][2]))
                    break
        return overtaken

    def _wake(self, name: Hashable, hope: int) -> None:
        want = self._wants[name]
        want.hope = max(want.hope, hope, 1)
        self._awake.add(name)

    def _let_in(self, now: float) -> None:
        """Make bindings ready whose back-off has ended."""
        while self._later and self._later[0][0] <= now:
            not_before, key = heappop(self._later)
            if self._is_later(not_before, key):
                waiter = self._waiters[key] = replace(self._waiters[key], not_before=0.0)
                insort(self._wants[waiter.want].ready, waiter.order)

    def _is_later(self, not_before: float, key: BindingName) -> bool:
        """Return whether an entry of the back-off heap is still valid."""
        waiter = self._waiters.get(key)
        return waiter is not None and waiter.not_before == not_before

    def _ended(self, key: BindingName) -> tuple[_Want | None, Waiter | None]:
        """End a try: return its want, and how the binding waits if it was put meanwhile.

        The want is None if none of its bindings waits any more.
        """
        want = self._wants.get(self._under_way.pop(key, None))
        if want is not None:
            want.trying = [order for order in want.trying if order[2] != key]
        return want, self._put_meanwhile.pop(key, None)

    def _put_again(self, meanwhile: Waiter | None) -> None:
        if meanwhile is not None:
            self.put(meanwhile)

    def _return(self, waiter: Waiter, *, failures: int, not_before: float = 0.0) -> None:
        """Let a binding that was tried wait again."""
        returned = replace(waiter, failures=failures, not_before=not_before)
        self._waiters[waiter.key] = returned
        if not_before:
            heappush(self._later, (not_before, waiter.key))
        else:
            insort(self._wants[waiter.want].ready, returned.order)


def _drop(ready: list[TryOrder], order: TryOrder) -> None:
    place = bisect_left(ready, order)
    if place < len(ready) and ready[place] == order:
        del ready[place]
