"""Who waits, and who is tried next.

Those that ask for just the same share one want: where one of them is refused, so is every other. A
want sleeps then, until a cluster could take more of it than at that refusal. Pure: the time and the
room there is come in.
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
LONGEST_BACKOFF_SECONDS: Final = 10.0
# The first of those that are tried do not wait for many others; while room lasts there are more.
LEAST_AT_ONCE: Final = 8
MOST_AT_ONCE: Final = 512

# Priority, higher first; then since when; then the name.
TryOrder: TypeAlias = tuple[int, float, BindingName]


def backoff_seconds(failures: int) -> float:
    """How long to wait after so many failures, at least one."""
    return min(FIRST_BACKOFF_SECONDS * 2.0 ** min(failures - 1, 10), LONGEST_BACKOFF_SECONDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiter:
    """A binding that waits since ``since`` (Unix seconds), or stands in the order as if it did.

    ``want`` stands for all that it asks for, and ``units`` are the replicas, or sets, that it takes
    at least. It is not tried before ``not_before``; it failed ``failures`` times since it was
    refused last. ``is_overtaken``: what comes after it was placed where it might have gone.
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
    """What there is for a want: how much more of it each cluster could take, where it is any, and
    in which clusters its filters let it. Of a gang: whether there is room for all, under "".
    """

    room: Mapping[str, int] = field(default_factory=dict)
    reach: frozenset[str] = frozenset()


NOTHING: Final = Seen()


@dataclass(slots=True, kw_only=True, eq=False)
class _Want:
    """``hope`` of how many may have room; 0: it sleeps since the refusal that saw ``seen``.

    ``ready`` are in order; ``trying`` are under way. ``must`` one be tried, whatever there is?
    """

    hope: int = 1
    must: bool = True
    seen: Seen = NOTHING
    ready: list[TryOrder] = field(default_factory=list)
    trying: list[TryOrder] = field(default_factory=list)
    size: int = 0

    @property
    def first(self) -> BindingName | None:
        """Who comes first of those that are ready or under way."""
        orders = [*self.ready[:1], *self.trying]
        return min(orders)[2] if orders else None


class WaitingQueue:
    """All that wait and may be tried."""

    def __init__(self) -> None:
        self._waiters: dict[BindingName, Waiter] = {}
        self._wants: dict[Hashable, _Want] = {}
        self._awake: set[Hashable] = set()
        self._under_way: dict[BindingName, Hashable] = {}
        # What is known since of those under way.
        self._put_meanwhile: dict[BindingName, Waiter] = {}
        self._later: list[tuple[float, BindingName]] = []
        self._at_once = LEAST_AT_ONCE

    def __contains__(self, key: BindingName) -> bool:
        return key in self._waiters

    def __len__(self) -> int:
        return len(self._waiters)

    @property
    def wants(self) -> Collection[Hashable]:
        return self._wants.keys()

    @property
    def asleep(self) -> list[Hashable]:
        """The wants of which nobody is tried until there is more room for them."""
        return [want for want, known in self._wants.items() if not known.hope]

    @property
    def hopeful(self) -> list[Hashable]:
        """The wants for which there was more room, and of which nobody is under way."""
        known = ((want, self._wants[want]) for want in self._awake)
        return [want for want, each in known if not each.must and not each.trying]

    def reaches(self, want: Hashable, clusters: Collection[str]) -> bool:
        """Whether one of the clusters let it in when it was refused or looked for last."""
        return not self._wants[want].seen.reach.isdisjoint(clusters)

    def since(self, key: BindingName) -> float | None:
        """Since when it waits, None where it does not."""
        waiter = self._waiters.get(key)
        return waiter.since if waiter else None

    def want_of(self, key: BindingName) -> Hashable | None:
        """What it asks for, None where it does not wait."""
        waiter = self._waiters.get(key)
        return waiter.want if waiter else None

    def put(self, waiter: Waiter) -> None:
        """It waits from now on, or waits as this says. A want that is new is tried."""
        if waiter.key in self._under_way:
            self._put_meanwhile[waiter.key] = waiter
            return
        known = self._waiters.get(waiter.key)
        if known is not None:
            if (known.want, known.order, known.units) == (waiter.want, waiter.order, waiter.units):
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
        """It does not wait any more."""
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
        """Who is to be tried now, in order, a few of all; how each try ended is to be told.

        Nobody is tried before the last tries have ended: they may have taken the room.
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
        self._at_once = min(2 * self._at_once, MOST_AT_ONCE)
        return taken

    def next_time(self) -> float | None:
        """When somebody whose time has not come yet is to be tried."""
        while self._later and not self._is_later(*self._later[0]):
            heappop(self._later)
        return self._later[0][0] if self._later else None

    def placed(self, key: BindingName) -> None:
        """The try found room; what has none still is put anew."""
        want, meanwhile = self._ended(key)
        if want is not None and want.hope:
            want.hope = max(1, want.hope - 1)
        self.remove(key)
        self._put_again(meanwhile)

    def refused(self, key: BindingName, seen: Seen) -> None:
        """The try found no room in what it saw: nobody else of the want would."""
        name = self._under_way.get(key)
        want, meanwhile = self._ended(key)
        self._at_once = LEAST_AT_ONCE
        if want is not None:
            want.hope, want.seen, want.must = 0, seen, False
            self._awake.discard(name)
        if key in self._waiters:
            self._return(self._waiters[key], failures=0)
        self._put_again(meanwhile)

    def failed(self, key: BindingName, now: float) -> float:
        """The try failed for a passing reason; when the next one is."""
        _, meanwhile = self._ended(key)
        waiter = self._waiters.get(key)
        failures = 1 + (waiter.failures if waiter else 0)
        not_before = now + backoff_seconds(failures)
        if waiter is not None:
            self._return(waiter, failures=failures, not_before=not_before)
        self._put_again(meanwhile)
        return not_before

    def look(self, name: Hashable, seen: Seen) -> bool:
        """Whether a want that slept is woken: some cluster has more for it than at its refusal.

        One that was woken sleeps on where others have taken that meanwhile.
        """
        want = self._wants.get(name)
        if want is None or want.must:
            return False
        before = want.seen.room
        want.seen = replace(want.seen, reach=seen.reach)
        more = sum(max(0, room - before.get(cluster, 0)) for cluster, room in seen.room.items())
        if not more:
            if not want.trying:
                want.hope = 0
                self._awake.discard(name)
            return False
        if want.hope:
            return False
        first = self._waiters[want.ready[0][2]] if want.ready else None
        self._wake(name, more // max(first.units, 1) if first else 1)
        return True

    def wake(self, names: Iterable[Hashable]) -> None:
        """The first of each is tried, whatever there is for it."""
        for name in names:
            if name in self._wants:
                self._wants[name].must = True
                self._wake(name, 1)

    def overtaken(self, placed: Mapping[str, TryOrder]) -> list[tuple[Waiter, BindingName]]:
        """Who is overtaken for the first time, and by whom, when those that come last of all that
        were placed are these by cluster. Of each want only who is first in it.
        """
        found = []
        for want in self._wants.values():
            first = self._waiters.get(want.first) if want.first else None
            if first is None or first.is_overtaken:
                continue
            for cluster in placed.keys() & want.seen.reach:
                if placed[cluster] > first.order:
                    self._waiters[first.key] = marked = replace(first, is_overtaken=True)
                    found.append((marked, placed[cluster][2]))
                    break
        return found

    def _wake(self, name: Hashable, hope: int) -> None:
        want = self._wants[name]
        want.hope = max(want.hope, hope, 1)
        self._awake.add(name)

    def _let_in(self, now: float) -> None:
        """Those whose time has come are as good as the others."""
        while self._later and self._later[0][0] <= now:
            not_before, key = heappop(self._later)
            if self._is_later(not_before, key):
                waiter = self._waiters[key] = replace(self._waiters[key], not_before=0.0)
                insort(self._wants[waiter.want].ready, waiter.order)

    def _is_later(self, not_before: float, key: BindingName) -> bool:
        """Whether what was noted once is still so."""
        waiter = self._waiters.get(key)
        return waiter is not None and waiter.not_before == not_before

    def _ended(self, key: BindingName) -> tuple[_Want | None, Waiter | None]:
        """The want of which a try ended, if there is anybody of it left; and how the binding waits
        by what was put meanwhile.
        """
        want = self._wants.get(self._under_way.pop(key, None))
        if want is not None:
            want.trying = [order for order in want.trying if order[2] != key]
        return want, self._put_meanwhile.pop(key, None)

    def _put_again(self, meanwhile: Waiter | None) -> None:
        if meanwhile is not None:
            self.put(meanwhile)

    def _return(self, waiter: Waiter, *, failures: int, not_before: float = 0.0) -> None:
        """Who was tried waits again."""
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
