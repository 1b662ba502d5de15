"""The queue of attempts: which ones are decided next, and in one batch.

Must not decide anything. Belongs to one event loop.
"""

from __future__ import annotations

from bisect import bisect_left, insort_left, insort_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, islice

from federation.model.errors import Conflict, LimitExceeded
from federation.services.scheduling.attempt import Attempt, Mark, marks_of

MAX_WAITING = 10_000
MIN_BATCH, MAX_BATCH = 16, 200
# The CPU seconds that a batch may take to decide: each of its attempts waits for all of them.
BATCH_SECONDS = 0.1
# After an attempt that was alone, so many batches are small while a large request waits. The next
# attempt that is alone then waits a short time.
SMALL_BATCHES = 40
MIN_SMALL_BATCH, SMALL_BATCH_SECONDS = 1, 0.01
MAX_TRIES = 6


def _rank(attempt: Attempt) -> tuple[int, int, bool]:
    return -attempt.urgency, attempt.turn, not attempt.atomic and attempt.place > 0


def _units(waiting: Iterable[Attempt]) -> Iterator[list[Attempt]]:
    """Yield the attempts that go together: all of an atomic batch, or one alone."""
    for _, unit in groupby(waiting, lambda attempt: attempt.atomic or attempt.id):
        yield list(unit)


def _unanswered_of(attempts: Iterable[Attempt]) -> list[Attempt]:
    """Return the attempts that have no answer yet."""
    return [attempt for attempt in attempts if not attempt.answer.done()]


def _is_apart(attempt: Attempt, first: Attempt, *, is_shared: bool) -> bool:
    """Tell whether an attempt is not decided in the batch of the first one.

    An attempt that is alone is not put into a batch with items of a large request.
    """
    for member in (attempt, first):
        if member.atomic or member.is_preempting or member.is_joining:
            return True
    return is_shared and bool(first.place) != bool(attempt.place)


class DecisionQueue:
    """Attempts by descending priority, and within a priority by turns of their requests.

    A large request so delays the others by a part of it only. ``retried`` counts attempts that are
    made again.
    """

    def __init__(self) -> None:
        self.retried = 0
        # Always sorted: thousands may wait, and few are taken at a time.
        self._attempts: list[Attempt] = []
        # Attempts that share a mark with these wait for them.
        self._aside: list[Attempt] = []
        self._may_be_hindered = False
        self._turn = 0
        self._batches_since_one_was_alone = SMALL_BATCHES
        # Large requests and attempts that are alone take turns.
        self._was_alone = False
        self._seconds_each = BATCH_SECONDS / 10

    def __len__(self) -> int:
        return len(self._attempts) + len(self._aside)

    def add(self, *attempts: Attempt) -> None:
        """Add all attempts, or none. Raises LimitExceeded if too many wait."""
        if len(self._attempts) + len(attempts) > MAX_WAITING:
            self._attempts = _unanswered_of(self._attempts)
        if len(self._attempts) + len(attempts) > MAX_WAITING:
            raise LimitExceeded("Too many bindings wait for a decision; try again later.")
        priorities = [attempt.binding.priority for attempt in attempts if attempt.atomic]
        max_priority = max(priorities, default=0)
        for attempt in sorted(attempts, key=lambda attempt: -attempt.binding.priority):
            attempt.urgency = max_priority if attempt.atomic else attempt.binding.priority
            attempt.turn = self._turn_of(attempt)
            if not attempt.place:
                self._batches_since_one_was_alone = 0
            insort_right(self._attempts, attempt, key=_rank)

    def _turn_of(self, attempt: Attempt) -> int:
        """Return the turn of an attempt. One that is alone precedes the rest of large requests."""
        if attempt.place:
            return self._turn + (0 if attempt.atomic else attempt.place)
        begin = bisect_left(self._attempts, -attempt.urgency, key=lambda waiter: -waiter.urgency)
        waiting = islice(self._attempts, begin, None)
        first = next((waiter for waiter in waiting if waiter.place), None)
        if first is None or first.urgency != attempt.urgency:
            return self._turn
        return min(self._turn, first.turn)

    def retry(self, attempts: Iterable[Attempt]) -> None:
        """Put attempts back that lost a race, before all that came later."""
        retried = []
        for attempt in attempts:
            self.retried += 1
            attempt.tries += 1
            if attempt.tries < MAX_TRIES:
                retried.append(attempt)
            else:
                name = attempt.binding.key
                attempt.fail(
                    Conflict(f"Binding {name!r} was changed by others meanwhile: try again.")
                )
        self.put_first(retried)

    def put_first(self, attempts: Sequence[Attempt]) -> None:
        """Put attempts back that are not decided yet, before all that came later."""
        for attempt in reversed(attempts):
            self._may_be_hindered |= attempt.is_hindered
            insort_left(self._attempts, attempt, key=_rank)

    def put_aside(self, attempts: Sequence[Attempt]) -> None:
        """Let attempts wait for an event until they are put back.

        Attempts that share a mark with them do not overtake them.
        """
        self._aside += attempts

    def put_back(self, attempts: Sequence[Attempt]) -> None:
        gone = {attempt.id for attempt in attempts}
        self._aside = [attempt for attempt in self._aside if attempt.id not in gone]
        self.put_first(attempts)

    def note_duration(self, seconds: float, decisions: int) -> None:
        """Note the CPU seconds that a number of decisions took."""
        if decisions:
            self._seconds_each += (seconds / decisions - self._seconds_each) / 4

    def take(self, in_commit: frozenset[Mark], *, takes_all: bool = False) -> list[Attempt]:
        """Return the next batch: attempts that can be decided in time and share no mark.

        They share no mark with attempts ``in_commit`` either. If nothing is in commit, half of the
        attempts are taken unless it ``takes_all``: the others are decided during the commit.

        An attempt that lost too many races goes alone, and so does a preempting one. An atomic
        batch goes as a whole, and so do all attempts that join one gang.
        """
        waited_for = in_commit | marks_of(self._aside)
        unit = self._hindered(waited_for) if self._may_be_hindered else []
        if unit:
            return self._with_gang(unit, waited_for)
        is_shared = self._is_shared()
        room = self._room(is_all=takes_all or bool(in_commit), is_shared=is_shared)
        batch: list[Attempt] = []
        if is_shared and self._was_alone:
            # Attempts that are alone go first of their priority, and are passed over every other
            # time.
            passed = next(attempt.urgency for attempt in self._attempts if attempt.place)
            batch = self._picked(room, waited_for, is_shared=is_shared, passed=passed)
        if not batch:
            batch = self._picked(room, waited_for, is_shared=is_shared)
        self._was_alone = bool(batch) and not batch[0].place
        # A later attempt goes before the rest of a large request, and never before all of it.
        self._turn = max([self._turn + 1, *(attempt.turn for attempt in batch)])
        return self._with_gang(batch, waited_for)

    def _with_gang(self, batch: list[Attempt], waited_for: frozenset[Mark]) -> list[Attempt]:
        """Return a batch with all other attempts that join the gang of its first one.

        Apart, each of them would read and write the whole gang again.
        """
        gang = batch[0].joined_gang if batch else None
        if gang is None:
            return batch
        taken, members = {*batch[0].marks}, list[Attempt]()
        for attempt in self._attempts:
            if attempt.joined_gang == gang and not attempt.answer.done():
                # Two requests about one binding stay in order.
                own = {mark for mark in attempt.marks if mark[0] in ("binding", "once")}
                if own.isdisjoint(taken) and attempt.marks.isdisjoint(waited_for):
                    members.append(attempt)
                taken |= own
        gone = {attempt.id for attempt in members}
        if gone:
            self._attempts = [attempt for attempt in self._attempts if attempt.id not in gone]
        return [*batch, *members]

    def _picked(
        self,
        room: int,
        waited_for: frozenset[Mark],
        *,
        is_shared: bool,
        passed: int | None = None,
    ) -> list[Attempt]:
        """Remove and return the next batch.

        Attempts of the urgency ``passed`` that are alone are passed over.
        """
        waiting = self._attempts
        batch: list[Attempt] = []
        remaining: list[Attempt] = []
        taken = set(waited_for)
        looked_at = 0
        for together in _units(waiting):
            unit = _unanswered_of(together)
            if batch and unit:
                is_apart = _is_apart(unit[0], batch[0], is_shared=is_shared)
                if is_apart or len(batch) >= room:
                    break
            looked_at += len(together)
            marks = marks_of(unit)
            is_passed = together[0].urgency == passed and not together[0].place
            (remaining if is_passed or not marks.isdisjoint(taken) else batch).extend(unit)
            # Attempts that share a mark stay in order, even behind one that is not taken.
            taken |= marks
        self._attempts = remaining + waiting[looked_at:]
        return batch

    def _hindered(self, waited_for: frozenset[Mark]) -> list[Attempt]:
        """Remove and return a unit that lost too many races; an empty list if none may go."""
        waiting = _unanswered_of(self._attempts)
        hindered = [attempt for attempt in waiting if attempt.is_hindered]
        self._may_be_hindered = bool(hindered)
        for unit in _units(hindered):
            if marks_of(unit).isdisjoint(waited_for):
                gone = {attempt.id for attempt in unit}
                self._attempts = [attempt for attempt in waiting if attempt.id not in gone]
                return unit
        return []

    def _is_shared(self) -> bool:
        """Tell whether a large request waits and attempts lately were alone."""
        lately = self._batches_since_one_was_alone < SMALL_BATCHES
        self._batches_since_one_was_alone += 1
        return lately and any(attempt.place for attempt in self._attempts)

    def _room(self, *, is_all: bool, is_shared: bool) -> int:
        """Return the size of the next batch."""
        if is_shared:
            in_time = int(SMALL_BATCH_SECONDS / self._seconds_each)
            return min(MIN_BATCH, max(MIN_SMALL_BATCH, in_time))
        in_time = int(BATCH_SECONDS / self._seconds_each)
        waiting = len(self._attempts)
        share = waiting if is_all else waiting // 2
        return min(MAX_BATCH, max(MIN_BATCH, min(in_time, share)))
