"""The queue on a model with virtual time: who may have room is tried, and in order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from federation.model.placement import BindingName
from federation.scheduler.waiting.queue import (
    MAX_BACKOFF_SECONDS,
    Seen,
    Waiter,
    WaitingQueue,
    backoff_seconds,
)

CLUSTERS = ("a", "b", "c")


class Want(NamedTuple):
    """``replicas`` of an ``amount`` each, in clusters of ``reach``, all or none."""

    amount: int
    replicas: int
    reach: frozenset[str]


@dataclass
class Known:
    """What the model knows of a binding that waits; ``refused_at`` counts the growths before."""

    waiter: Waiter
    refused_at: int = -1


wants = st.builds(
    Want,
    st.integers(1, 3),
    st.integers(1, 4),
    st.sets(st.sampled_from(CLUSTERS), min_size=1).map(frozenset),
)


class Waiting(RuleBasedStateMachine):
    """Bindings come, go, are tried and fail; room grows and shrinks, also between a try and its
    end, and is told of once it grew.
    """

    def __init__(self) -> None:
        super().__init__()
        self.now = 100.0
        self.serial = 0
        self.free = dict.fromkeys(CLUSTERS, 0)
        self.queue = WaitingQueue()
        self.known: dict[BindingName, Known] = {}
        self.growths: dict[Want, int] = {}
        self.under_way: list[tuple[Waiter, Seen | None]] = []

    @rule(want=wants, priority=st.integers(0, 2))
    def come(self, want: Want, priority: int) -> None:
        self.serial += 1
        waiter = Waiter(
            key=("ns", f"{self.serial:04}"),
            priority=priority,
            since=self.now,
            want=want,
            units=want.replicas,
        )
        self.known[waiter.key] = Known(waiter)
        self.growths.setdefault(want, 0)
        self.queue.put(waiter)

    @precondition(lambda self: self.known)
    @rule(data=st.data(), priority=st.integers(0, 2))
    def change(self, data: st.DataObject, priority: int) -> None:
        key = data.draw(st.sampled_from(sorted(self.known)))
        before = self.known[key].waiter
        waiter = Waiter(
            key=key, priority=priority, since=before.since, want=before.want, units=before.units
        )
        self.known[key] = Known(waiter)
        self.queue.put(waiter)

    @precondition(lambda self: self.known)
    @rule(data=st.data())
    def go(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.known)))
        del self.known[key]
        self.queue.remove(key)

    @rule(cluster=st.sampled_from(CLUSTERS), amount=st.integers(1, 6))
    def grow(self, cluster: str, amount: int) -> None:
        self.free[cluster] += amount
        for want in self.growths:
            self.growths[want] += cluster in want.reach
        self.look()

    @rule(cluster=st.sampled_from(CLUSTERS), amount=st.integers(1, 6))
    def shrink(self, cluster: str, amount: int) -> None:
        self.free[cluster] = max(0, self.free[cluster] - amount)

    @rule(seconds=st.floats(0.1, 20.0))
    def pass_time(self, seconds: float) -> None:
        self.now += seconds

    @precondition(lambda self: not self.under_way)
    @rule()
    def begin(self) -> None:
        """Decide in the order in which they are taken; the ends are told later."""
        taken = self.queue.take(self.now)
        assert taken == sorted(taken, key=lambda waiter: waiter.order)
        for waiter in taken:
            self.under_way.append((waiter, self.decide(waiter)))

    @precondition(lambda self: self.under_way)
    @rule(fails=st.booleans())
    def end(self, fails: bool) -> None:
        """The first of those under way; one that failed has taken no room."""
        waiter, seen = self.under_way.pop(0)
        if seen is None:
            self.known.pop(waiter.key, None)
            self.queue.placed(waiter.key)
        elif fails:
            again = self.queue.failed(waiter.key, self.now)
            assert self.now < again <= self.now + MAX_BACKOFF_SECONDS
        else:
            self.queue.refused(waiter.key, seen)
        self.look()

    @invariant()
    def whoever_has_room_is_tried(self) -> None:
        """L1: when nobody is to be tried any more, nobody has room, but who failed a moment ago."""
        if self.under_way:
            return
        for _ in range(10_000):
            taken = self.queue.take(self.now)
            if not taken:
                break
            for waiter, seen in [(each, self.decide(each)) for each in taken]:
                if seen is None:
                    self.known.pop(waiter.key, None)
                    self.queue.placed(waiter.key)
                else:
                    self.queue.refused(waiter.key, seen)
            self.look()
        else:
            raise AssertionError("the same are tried again and again")
        later = {key for _, key in self.queue._later if key in self.queue}
        for key, known in self.known.items():
            want = known.waiter.want
            assert isinstance(want, Want)
            assert key in later or self.room(want) < want.replicas

    def decide(self, waiter: Waiter) -> Seen | None:
        """Take the room; what there was where that is too little."""
        want = waiter.want
        assert isinstance(want, Want)
        known = self.known.get(waiter.key)
        if self.room(want) < want.replicas:
            if known is not None:
                known.refused_at = self.growths[want]
            return self.seen(want)
        self.check_order(waiter, want)
        left = want.replicas
        for cluster in sorted(want.reach):
            given = min(left, self.free[cluster] // want.amount)
            self.free[cluster] -= given * want.amount
            left -= given
        return None

    def check_order(self, placed: Waiter, want: Want) -> None:
        """L2: nobody who comes first in the want was refused this room."""
        for each in self.known.values():
            is_before = each.waiter.want == want and each.waiter.order < placed.order
            assert not (is_before and each.refused_at == self.growths[want])

    def room(self, want: Want) -> int:
        return sum(self.free[cluster] // want.amount for cluster in want.reach)

    def seen(self, want: Want) -> Seen:
        room = {c: self.free[c] // want.amount for c in want.reach if self.free[c] >= want.amount}
        return Seen(room=room, reach=want.reach)

    def look(self) -> None:
        for want in [*self.queue.asleep, *self.queue.hopeful]:
            assert isinstance(want, Want)
            self.queue.look(want, self.seen(want))


TestWaiting = Waiting.TestCase


def test_backoff_doubles_from_one_second_to_ten() -> None:
    assert [backoff_seconds(each) for each in (1, 2, 3, 4, 5, 100)] == [1, 2, 4, 8, 10, 10]
