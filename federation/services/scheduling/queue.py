"""Attempts that wait for a decision: who is next, and who is decided together.

Must not decide anything. Belongs to one event loop.
"""

from __future__ import annotations

from bisect import bisect_left, insort_left, insort_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, islice

from federation.model.errors import Conflict, LimitExceeded
from federation.services.scheduling.attempt import Attempt, Mark, marks_of

MAX_WAITING = 10_000
LEAST_BATCH, MAX_BATCH = 16, 200
# What a batch may take to decide, in CPU seconds: everybody in it waits for the whole.
BATCH_SECONDS = 0.1
# After an attempt that was alone so many batches are small while somebody asks for many at once:
# the next one has little to wait for.
SMALL_BATCHES = 40
LEAST_SMALL_BATCH, SMALL_BATCH_SECONDS = 1, 0.01
MAX_TRIES = 6


def _rank(attempt: Attempt) -> tuple[int, int, bool]:
    return -attempt.urgency, attempt.turn, not attempt.atomic and attempt.place > 0


def _units(waiting: Iterable[Attempt]) -> Iterator[list[Attempt]]:
    """Those that go together: all of an atomic batch, which stand side by side; others alone."""
    for _, unit in groupby(waiting, lambda attempt: attempt.atomic or attempt.id):
        yield list(unit)


def _unanswered_of(attempts: Iterable[Attempt]) -> list[Attempt]:
    """Those whose answer somebody waits for still."""
    return [attempt for attempt in attempts if not attempt.answer.done()]


def _is_apart(attempt: Attempt, first: Attempt, *, is_shared: bool) -> bool:
    """Whether it is not decided in the batch of the first one.

    One that is alone does not wait until part of something large is decided with it.
    """
    if any(each.atomic or each.is_preempting or each.is_joining for each in (attempt, first)):
        return True
    return is_shared and bool(first.place) != bool(attempt.place)


class DecisionQueue:
    """Attempts by descending priority; then requests take turns, so that one which asks for much
    does not keep the others waiting for all of it. ``retried`` counts attempts that are made again.
    """

    def __init__(self) -> None:
        self.retried = 0
        # In order, always: thousands may wait, and few of them are taken at a time.
        self._attempts: list[Attempt] = []
        # What shares a mark with these waits for them.
        self._aside: list[Attempt] = []
        self._may_be_hindered = False
        self._turn = 0
        self._batches_since_one_was_alone = SMALL_BATCHES
        # Large requests and those that are alone go by turns: neither waits for all of the other.
        self._was_alone = False
        self._seconds_each = BATCH_SECONDS / 10

    def __len__(self) -> int:
        return len(self._attempts) + len(self._aside)

    def add(self, *attempts: Attempt) -> None:
        """Raises LimitExceeded when too many wait: then none of these does."""
        if len(self._attempts) + len(attempts) > MAX_WAITING:
            self._attempts = _unanswered_of(self._attempts)
        if len(self._attempts) + len(attempts) > MAX_WAITING:
            raise LimitExceeded("Too many bindings wait for a decision; try again later.")
        most_urgent = max((each.binding.priority for each in attempts if each.atomic), default=0)
        for attempt in sorted(attempts, key=lambda each: -each.binding.priority):
            attempt.urgency = most_urgent if attempt.atomic else attempt.binding.priority
            attempt.turn = self._turn_of(attempt)
            if not attempt.place:
                self._batches_since_one_was_alone = 0
            insort_right(self._attempts, attempt, key=_rank)

    def _turn_of(self, attempt: Attempt) -> int:
        """One that is alone comes before the rest of what asks for much."""
        if attempt.place:
            return self._turn + (0 if attempt.atomic else attempt.place)
        begin = bisect_left(self._attempts, -attempt.urgency, key=lambda each: -each.urgency)
        waiting = islice(self._attempts, begin, None)
        first = next((each for each in waiting if each.place), None)
        if first is None or first.urgency != attempt.urgency:
            return self._turn
        return min(self._turn, first.turn)

    def retry(self, attempts: Iterable[Attempt]) -> None:
        """Decide these once more, before all that came later."""
        again = []
        for attempt in attempts:
            self.retried += 1
            attempt.tries += 1
            if attempt.tries < MAX_TRIES:
                again.append(attempt)
            else:
                name = attempt.binding.key
                attempt.fail(
                    Conflict(f"Binding {name!r} was changed by others meanwhile: try again.")
                )
        self.put_first(again)

    def put_first(self, attempts: Sequence[Attempt]) -> None:
        """These were not decided yet: before all that came later."""
        for attempt in reversed(attempts):
            self._may_be_hindered |= attempt.is_hindered
            insort_left(self._attempts, attempt, key=_rank)

    def put_aside(self, attempts: Sequence[Attempt]) -> None:
        """These wait for something else, and nothing that shares a mark with them overtakes them,
        until they are put back.
        """
        self._aside += attempts

    def put_back(self, attempts: Sequence[Attempt]) -> None:
        gone = {attempt.id for attempt in attempts}
        self._aside = [attempt for attempt in self._aside if attempt.id not in gone]
        self.put_first(attempts)

    def note_duration(self, seconds: float, decisions: int) -> None:
        """So many decisions took so many CPU seconds."""
        if decisions:
            self._seconds_each += (seconds / decisions - self._seconds_each) / 4

    def take(self, on_their_way: frozenset[Mark], *, every: bool = False) -> list[Attempt]:
        """As many as can be decided in time, that share no mark with each other, nor with what is
        being committed. While nothing is, half of them, unless ``every``: the other half is decided
        while this one is committed.

        One that others kept winning against goes alone, and so does one that preempts, an atomic
        batch as a whole, and all that join one gang.
        """
        waited_for = on_their_way | marks_of(self._aside)
        unit = self._hindered(waited_for) if self._may_be_hindered else []
        if unit:
            return self._with_gang(unit, waited_for)
        is_shared = self._is_shared()
        room = self._room(is_all=every or bool(on_their_way), is_shared=is_shared)
        batch: list[Attempt] = []
        if is_shared and self._was_alone:
            # Those that are alone go first of their priority, and every other time not at all.
            passed = next(each.urgency for each in self._attempts if each.place)
            batch = self._picked(room, waited_for, is_shared=is_shared, passed=passed)
        if not batch:
            batch = self._picked(room, waited_for, is_shared=is_shared)
        self._was_alone = bool(batch) and not batch[0].place
        # One that came later is before the rest of what asks for much, and never before all of it.
        self._turn = max([self._turn + 1, *(attempt.turn for attempt in batch)])
        return self._with_gang(batch, waited_for)

    def _with_gang(self, batch: list[Attempt], waited_for: frozenset[Mark]) -> list[Attempt]:
        """With all others that join the gang of the first one: each of them alone would have the
        whole gang read, and be written, again.
        """
        gang = batch[0].joined_gang if batch else None
        if gang is None:
            return batch
        taken, others = {*batch[0].marks}, list[Attempt]()
        for attempt in self._attempts:
            if attempt.joined_gang == gang and not attempt.answer.done():
                # What is asked of one binding twice stays in order.
                own = {mark for mark in attempt.marks if mark[0] in ("binding", "once")}
                if own.isdisjoint(taken) and attempt.marks.isdisjoint(waited_for):
                    others.append(attempt)
                taken |= own
        gone = {attempt.id for attempt in others}
        if gone:
            self._attempts = [each for each in self._attempts if each.id not in gone]
        return [*batch, *others]

    def _picked(
        self,
        room: int,
        waited_for: frozenset[Mark],
        *,
        is_shared: bool,
        passed: int | None = None,
    ) -> list[Attempt]:
        """The next batch, which waits no longer. Nobody of the urgency ``passed`` that is alone
        is in it.
        """
        waiting = self._attempts
        batch: list[Attempt] = []
        left: list[Attempt] = []
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
            (left if is_passed or not marks.isdisjoint(taken) else batch).extend(unit)
            # What shares a mark stays in order, even behind one that is not taken.
            taken |= marks
        self._attempts = left + waiting[looked_at:]
        return batch

    def _hindered(self, waited_for: frozenset[Mark]) -> list[Attempt]:
        """Who goes alone, as others kept winning against it; none where it has to wait."""
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
        """Whether some wait that are part of something large, and others lately were alone."""
        lately = self._batches_since_one_was_alone < SMALL_BATCHES
        self._batches_since_one_was_alone += 1
        return lately and any(attempt.place for attempt in self._attempts)

    def _room(self, *, is_all: bool, is_shared: bool) -> int:
        """How many attempts the next batch takes."""
        if is_shared:
            in_time = int(SMALL_BATCH_SECONDS / self._seconds_each)
            return min(LEAST_BATCH, max(LEAST_SMALL_BATCH, in_time))
        in_time = int(BATCH_SECONDS / self._seconds_each)
        waiting = len(self._attempts)
        wanted = waiting if is_all else waiting // 2
        return min(MAX_BATCH, max(LEAST_BATCH, min(in_time, wanted)))
