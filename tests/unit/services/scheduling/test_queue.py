"""Who is decided together: by priority and order, half or all, never two that share a mark."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from federation.model.errors import Conflict, LimitExceeded
from federation.model.placement import Binding
from federation.services.scheduling import queue as rules
from federation.services.scheduling.attempt import TRIES_WITHOUT_LOCKS, Attempt, Mark, marks_of
from federation.services.scheduling.queue import DecisionQueue
from federation.services.values import Scheduled


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    made = asyncio.new_event_loop()
    yield made
    made.close()


def attempt(
    loop: asyncio.AbstractEventLoop,
    name: str,
    priority: int = 0,
    place: int = 0,
    atomic: str = "",
) -> Attempt:
    answer: asyncio.Future[Scheduled] = loop.create_future()
    binding = Binding(namespace="shop", name=name, priority=priority)
    return Attempt(binding=binding, answer=answer, place=place, atomic=atomic)


def hundred_waiting(
    loop: asyncio.AbstractEventLoop, seconds_each: float, urgent: int | None = None
) -> DecisionQueue:
    """A hundred wait, one of which may be urgent, where decisions have long taken so long."""
    waiting = DecisionQueue()
    for _ in range(50):
        waiting.note_duration(seconds_each, 1)
    for number in range(100):
        waiting.add(attempt(loop, f"w{number}", priority=number == urgent))
    return waiting


def names(waiting: DecisionQueue, on_their_way: frozenset[Mark] = frozenset()) -> list[str]:
    return [taken.binding.name for taken in waiting.take(on_their_way)]


def test_half_of_many_are_taken_by_priority_then_in_the_order_they_came(
    loop: asyncio.AbstractEventLoop,
) -> None:
    waiting = hundred_waiting(loop, 0.000001, urgent=99)
    assert names(waiting) == ["w99", *(f"w{number}" for number in range(49))]
    assert len(names(waiting)) == 25
    assert len(names(waiting)) == rules.LEAST_BATCH


def test_requests_take_turns(loop: asyncio.AbstractEventLoop) -> None:
    waiting = DecisionQueue()
    for _ in range(50):
        waiting.note_duration(0.000001, 1)
    for number in range(100):
        waiting.add(attempt(loop, f"bulk{number}", place=number + 1))
    first = names(waiting)
    assert first == [f"bulk{number}" for number in range(len(first))]
    for name in ("web", "db"):
        waiting.add(attempt(loop, name))
    for number in range(100):
        waiting.add(attempt(loop, f"other{number}", place=number + 1))
    rest = len(first)
    assert names(waiting) == ["web", "db"]
    assert names(waiting)[:4] == [f"bulk{rest}", "other0", f"bulk{rest + 1}", "other1"]


def test_what_is_part_of_much_is_not_passed_over_for_ever(loop: asyncio.AbstractEventLoop) -> None:
    waiting = DecisionQueue()
    waiting.add(attempt(loop, "bulk", place=1))
    waiting.add(attempt(loop, "bulk", place=2))
    taken = list[str]()
    for number in range(10):
        for place in range(rules.LEAST_SMALL_BATCH):
            waiting.add(attempt(loop, f"web{number}.{place}"))
        taken += names(waiting)
    assert taken.count("bulk") == 2


def test_many_at_once_are_decided_together_when_nobody_else_asked_for_long(
    loop: asyncio.AbstractEventLoop,
) -> None:
    waiting = hundred_waiting(loop, 0.000001)
    for number in range(1000):
        waiting.add(attempt(loop, f"bulk{number}", place=number + 1))
    sizes = [len(names(waiting)) for _ in range(rules.SMALL_BATCHES + 1)]
    assert max(sizes[:-1]) == rules.LEAST_BATCH
    assert sizes[-1] == rules.MAX_BATCH


def test_all_are_taken_where_locks_are_dear(loop: asyncio.AbstractEventLoop) -> None:
    waiting = hundred_waiting(loop, 0.000001)
    assert len(waiting.take(frozenset(), every=True)) == 100


def test_all_are_taken_while_others_are_committed(loop: asyncio.AbstractEventLoop) -> None:
    committing = frozenset({("binding", "", "another")})
    assert len(names(hundred_waiting(loop, 0.000001), committing)) == 100


def test_slow_decisions_make_small_batches(loop: asyncio.AbstractEventLoop) -> None:
    assert len(names(hundred_waiting(loop, 1.0))) == rules.LEAST_BATCH


def test_what_shares_a_mark_waits_for_the_one_before_it(loop: asyncio.AbstractEventLoop) -> None:
    waiting = DecisionQueue()
    first, second, other = (attempt(loop, name) for name in ("web", "web", "db"))
    for each in (first, second, other):
        waiting.add(each)
    batch = waiting.take(frozenset())
    assert batch == [first, other]
    assert names(waiting, marks_of(batch)) == []
    assert waiting.take(frozenset()) == [second]


def test_one_that_others_keep_winning_against_goes_alone_and_then_is_told(
    loop: asyncio.AbstractEventLoop,
) -> None:
    waiting = DecisionQueue()
    unlucky = attempt(loop, "web")
    for _ in range(TRIES_WITHOUT_LOCKS):
        waiting.retry([unlucky])
        assert len(waiting.take(frozenset())) == 1
    waiting.add(attempt(loop, "db", priority=9))
    waiting.retry([unlucky])
    assert names(waiting) == ["web"]
    for _ in range(rules.MAX_TRIES):
        waiting.retry([unlucky])
    assert isinstance(unlucky.answer.exception(), Conflict)


def test_those_tried_again_come_before_who_came_later_and_behind_who_is_urgent(
    loop: asyncio.AbstractEventLoop,
) -> None:
    waiting = DecisionQueue()
    for name in ("web", "db"):
        waiting.add(attempt(loop, name))
    again = waiting.take(frozenset())
    waiting.add(attempt(loop, "late"))
    waiting.retry(again)
    waiting.add(attempt(loop, "urgent", priority=9))
    assert names(waiting) == ["urgent", "web", "db", "late"]


def test_nobody_is_taken_who_does_not_wait_any_more(loop: asyncio.AbstractEventLoop) -> None:
    waiting = DecisionQueue()
    gone = attempt(loop, "web")
    waiting.add(gone)
    gone.answer.cancel()
    assert names(waiting) == []


def test_no_more_may_wait_than_there_is_patience_for(
    loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rules, "MAX_WAITING", 1)
    waiting = DecisionQueue()
    waiting.add(attempt(loop, "web"))
    with pytest.raises(LimitExceeded):
        waiting.add(attempt(loop, "db"))


def test_who_does_not_wait_any_more_takes_nobodys_room(
    loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rules, "MAX_WAITING", 2)
    waiting, gone = DecisionQueue(), attempt(loop, "gone")
    waiting.add(attempt(loop, "web"), gone)
    gone.answer.cancel()
    waiting.add(attempt(loop, "db"))
    assert names(waiting) == ["web", "db"]


def test_slow_decisions_beside_one_that_is_alone_make_tiny_batches(
    loop: asyncio.AbstractEventLoop,
) -> None:
    waiting = hundred_waiting(loop, 1.0)
    waiting.add(attempt(loop, "bulk", place=1))
    assert len(names(waiting)) == 1


def test_an_atomic_batch_goes_as_a_whole_and_alone(loop: asyncio.AbstractEventLoop) -> None:
    """When its most urgent one is the next, however many it has."""
    waiting = DecisionQueue()
    waiting.add(attempt(loop, "web"), attempt(loop, "db"))
    many = [
        attempt(loop, f"w{number}", number == 250, number + 1, "batch") for number in range(300)
    ]
    waiting.add(*many)
    waiting.add(attempt(loop, "urgent", priority=2), attempt(loop, "late"))
    assert names(waiting) == ["urgent"]
    assert sorted(names(waiting)) == sorted(each.binding.name for each in many)
    assert names(waiting) == ["web", "db", "late"]


def test_an_atomic_batch_waits_for_what_shares_a_mark_with_any_of_it(
    loop: asyncio.AbstractEventLoop,
) -> None:
    waiting = DecisionQueue()
    waiting.add(*(attempt(loop, name, place=place, atomic="b") for place, name in enumerate("xy")))
    waiting.add(attempt(loop, "y"), attempt(loop, "z"))
    assert names(waiting, marks_of([attempt(loop, "y")])) == ["z"]
    assert names(waiting) == ["x", "y"]
    assert names(waiting) == ["y"]


def test_an_atomic_batch_that_others_kept_winning_against_goes_first(
    loop: asyncio.AbstractEventLoop,
) -> None:
    waiting = DecisionQueue()
    batch = [attempt(loop, name, place=place, atomic="b") for place, name in enumerate("xy")]
    waiting.add(attempt(loop, "urgent", priority=9), *batch)
    for _ in range(TRIES_WITHOUT_LOCKS):
        assert names(waiting) == ["urgent"]
        taken = waiting.take(frozenset())
        assert taken == batch
        waiting.retry(taken)
        waiting.add(attempt(loop, "urgent", priority=9))
    assert names(waiting) == ["x", "y"]
    assert names(waiting) == ["urgent"]


def test_one_that_is_alone_waits_for_one_batch_of_large_requests_about_the_same(
    loop: asyncio.AbstractEventLoop,
) -> None:
    waiting, before = DecisionQueue(), frozenset[Mark]()
    for _ in range(20):
        for place in range(1, 51):
            waiting.add(attempt(loop, f"same{place}", place=place))
    for number in range(30):
        waiting.add(attempt(loop, f"alone{number}"))
        taken: list[str] = []
        for _ in range(2):
            batch = waiting.take(before)
            before = marks_of(batch)
            taken += [each.binding.name for each in batch]
        assert f"alone{number}" in taken
        assert any(name.startswith("same") for name in taken)


def test_one_that_is_alone_and_urgent_does_not_let_others_pass(
    loop: asyncio.AbstractEventLoop,
) -> None:
    waiting = DecisionQueue()
    for place in range(1, 51):
        waiting.add(attempt(loop, f"part{place}", place=place))
    waiting.add(attempt(loop, "alone"))
    assert names(waiting) == ["alone"]
    waiting.add(attempt(loop, "urgent", priority=1))
    assert names(waiting) == ["urgent"]
