"""Attempts at decisions: who waits for one, and who is decided together.

Must not decide anything. Belongs to one event loop.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left, insort_left, insort_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import groupby, islice
from typing import TypeAlias
from uuid import uuid4

from federation.model.arrays import IntArray
from federation.model.errors import Conflict, FederationError, LimitExceeded
from federation.model.namespace_quotas import NamespaceQuota
from federation.model.placement import Binding, BindingName, EvictionTask
from federation.model.waiting import Nomination
from federation.runtime import spans
from federation.scheduler.decision import Outcome
from federation.scheduler.plugins.profile import DEFAULT_PROFILE, Profile, Reserve
from federation.scheduler.scarcity import short_of
from federation.scheduler.state import CycleState
from federation.scheduler.waiting.gangs import GangMember
from federation.scheduler.waiting.queue import NOTHING, Seen
from federation.services.audited_calls import AuditedCall, current_call
from federation.services.journal_ports import Holding, PreemptionLimits
from federation.services.ports import PackedDecision, Peers, StoredBinding
from federation.services.scheduling.planned import PlannedMove, StatedMove
from federation.services.scheduling.retaking import Retaking
from federation.services.scheduling.working_copy import ReservationRequest, Reserved
from federation.services.values import DecisionRecord, Once, Scheduled, Verdict

MAX_WAITING = 10_000
LEAST_BATCH, MAX_BATCH = 16, 200
# What a batch may take to decide, in CPU seconds: everybody in it waits for the whole.
BATCH_SECONDS = 0.1
# After an attempt that was alone so many batches are small while somebody asks for many at once:
# the next one has little to wait for.
SMALL_BATCHES = 40
LEAST_SMALL_BATCH, SMALL_BATCH_SECONDS = 1, 0.01
# After so many tries a request takes all locks first: then nobody can win against it.
TRIES_WITHOUT_LOCKS = 3
MAX_TRIES = 6

PLACED = frozenset({Outcome.SCHEDULED, Outcome.PARTIAL})

# Its kind, and which one.
Mark: TypeAlias = tuple[str, ...]


def _unanswered() -> asyncio.Future[Scheduled]:
    return asyncio.get_running_loop().create_future()


@dataclass(frozen=True, slots=True, kw_only=True)
class RoomClaims:
    """What is kept for bindings that wait, each with its profile: for ``earmarked`` ones, and for
    those that are ``first`` in strict profiles.
    """

    earmarked: Sequence[tuple[StoredBinding, Profile]] = ()
    first: Sequence[tuple[StoredBinding, Profile]] = ()


@dataclass(kw_only=True, eq=False)
class QuotaRoom:
    """What a namespace held when it was read, and holds with what was decided since."""

    quota: NamespaceQuota
    read: Mapping[str, int]
    used: Mapping[str, int]


@dataclass(kw_only=True, eq=False)
class Attempt:
    """The attempt to decide about a binding; every stage adds what it finds out.

    It is asked with ``binding`` and all that stands before ``answer``, and answered with that.
    Reading adds what the store knows; deciding adds ``verdict`` or ``error``; committing adds
    ``scheduled``. One that is tried again goes through all stages again.
    """

    # Asked.
    binding: Binding
    adopt: bool = False
    wait: bool = True
    once: Once | None = None
    # Among those of the same request, from 1; 0: it is alone.
    place: int = 0
    # Those of one atomic batch have the same: all of them are placed, or none. "": of no such one.
    atomic: str = ""
    # The binding waits, and is decided as it is stored: what is asked for is not news.
    again: bool = False
    # The same of one that is to be divided anew, since then (Unix seconds).
    rescheduled_at: float | None = None
    # Whether others are to make room where it finds none, or it is one of those that make some.
    is_preempting: bool = False
    is_victim: bool = False
    # Whether it was to be refused, and waited for fresh reports first.
    has_waited_for_reports: bool = False
    # Whether it is decided with its gang, or is one of those that are decided with it.
    is_joining: bool = False
    is_companion: bool = False
    # The same of one that has to leave clusters; with an eviction to take back: that is to be where
    # it was before. Where it cannot be, nothing is stored.
    is_moved: bool = False
    takes_back: EvictionTask | None = None
    # The same of one that a plan moves, or of which replicas run nowhere.
    planned: PlannedMove | None = None
    retaking: Retaking | None = None
    answer: asyncio.Future[Scheduled] = field(default_factory=_unanswered)
    # Asked by: None where nobody called for it.
    call: AuditedCall | None = field(default_factory=current_call)
    # Within which span; None where nobody traces it.
    trace: object | None = field(default_factory=spans.current)
    # Queued: an atomic batch is as urgent as its most urgent one.
    urgency: int = 0
    turn: int = 0
    tries: int = 0
    has_lost_connection: bool = False
    # Read: the binding as it is to be decided, as it is stored (None: new), and where it holds
    # something by the store: this control plane may not have heard of it yet. ``newest`` is the
    # last decision, read only where the candidate says nothing new.
    id: str = field(default_factory=lambda: str(uuid4()))
    profile: Profile = DEFAULT_PROFILE
    candidate: Binding = field(init=False)
    known: StoredBinding | None = None
    holding: Holding = field(default_factory=Holding)
    peers: Peers = field(default_factory=Peers)
    # Who else is of the gang that it joins, and what that waits for; then who is placed with it.
    roster: tuple[GangMember, ...] | None = None
    gate: str = ""
    companions: tuple[Attempt, ...] = ()
    newest: PackedDecision | None = None
    claims: RoomClaims = field(default_factory=RoomClaims)
    # Where its namespace has a quota, and what it holds of that.
    quota: QuotaRoom | None = None
    held: Mapping[str, int] = field(default_factory=dict)
    # Decided: ``evictions`` are the binding's where the decision places it; ``standing`` is the
    # newest decision where it says the same and is held still.
    verdict: Verdict = field(init=False)
    evictions: tuple[EvictionTask, ...] | None = None
    requested: ReservationRequest | None = None
    is_beyond_quota: bool = False
    reserved: Reserved | None = None
    standing: DecisionRecord | None = None
    # Of one that finds no room: clusters where reports do not show yet all that is promised.
    unseen_in: tuple[str, ...] = ()
    # Of one that was tried again and refused: what there was for it.
    seen: Seen = NOTHING
    # Replicas that it takes from others, by their namespaces, and how many may be taken; room that
    # is kept for it until they have left; and who has not left yet, where that was so before.
    losses: Mapping[str, int] = field(default_factory=dict)
    limits: PreemptionLimits | None = None
    nominated: Nomination | None = None
    awaits: str = ""
    # What plugins were shown of the decision, and those that keep something for it.
    shown: tuple[CycleState, IntArray] | None = None
    kept: list[Reserve] = field(default_factory=list)
    error: FederationError | None = None
    # Written; and as it is stored, where it did not wait before and does.
    scheduled: Scheduled = field(init=False)
    waiting: StoredBinding | None = None

    def __post_init__(self) -> None:
        self.candidate = self.binding
        # The share that is taken back runs still.
        self.adopt = self.adopt or self.takes_back is not None

    @property
    def key(self) -> BindingName:
        return self.binding.namespace, self.binding.name

    @cached_property
    def marks(self) -> frozenset[Mark]:
        """Attempts that share one must see what came of each other: the binding, the idempotency
        key, a gang, a group of workloads that go together or apart.
        """
        binding, placement = self.binding, self.binding.placement
        marks: set[Mark] = {("binding", *self.key)}
        if self.once is not None:
            marks.add(("once", self.once.caller, self.once.key))
        if binding.gang is not None:
            marks.add(("gang", binding.namespace, binding.gang.name))
        for label in (placement.workload_affinity_key, placement.workload_anti_affinity_key):
            if label and label in binding.labels:
                marks.add(("group", binding.namespace, label, binding.labels[label]))
        return frozenset(marks)

    @property
    def joined_gang(self) -> Mark | None:
        """The gang that it is asked to join: all that are go together."""
        gang = self.binding.gang if self.is_joining and not self.again else None
        return ("gang", self.binding.namespace, gang.name) if gang else None

    @property
    def stated(self) -> StatedMove | None:
        """What leaves where, if somebody said so."""
        return self.planned or self.retaking

    @property
    def is_hindered(self) -> bool:
        """Whether others kept winning against it."""
        return self.tries >= TRIES_WITHOUT_LOCKS

    @property
    def adopts(self) -> bool:
        """Whether it is news where ``candidate.clusters`` say it runs."""
        return self.known is None or self.adopt

    @property
    def is_placed(self) -> bool:
        return self.verdict.decision.outcome in PLACED

    @property
    def has_progressed(self) -> bool:
        """Whether replicas have a place that had none."""
        return self.is_placed and self.standing is None

    @property
    def is_stored(self) -> bool:
        """Whether a new decision is kept: not one about a binding that is nowhere and does not
        want to wait, nor one of an atomic batch that was not placed, nor one that does not take an
        eviction back, or does not move as planned.
        """
        is_whole = self.takes_back is not None or self.stated is not None
        is_all_or_nothing = bool(self.atomic) or is_whole
        return self.is_placed or (not is_all_or_nothing and bool(self.known or self.wait))

    @property
    def short_of(self) -> str:
        """What there is too little of for what has no place, or who has to leave first."""
        return self.awaits or short_of(self.verdict.decision)

    @property
    def leaves_waiting(self) -> bool:
        """Whether the binding waits from now on for what has no place. One that cannot be moved
        has a place, and is moved once it can be.
        """
        stays = self.is_moved and not self.is_placed and not (self.known and self.known.wait)
        is_whole = self.verdict.decision.outcome is Outcome.SCHEDULED
        return self.wait and not is_whole and not stays

    @property
    def decided(self) -> Binding:
        """The binding with the evictions that the decision leaves it; its clusters are as before
        the decision.
        """
        candidate = self.candidate
        if not self.is_placed or self.evictions in (None, candidate.eviction_tasks):
            return candidate
        return replace(candidate, eviction_tasks=self.evictions)

    @property
    def is_to_write(self) -> bool:
        return self.error is None and self.standing is None and self.is_stored

    @property
    def touched(self) -> Iterable[str]:
        """The clusters whose ledgers it changes."""
        return self.reserved.clusters if self.reserved else ()

    @property
    def was_placed(self) -> bool:
        """Whether it is answered, with a decision that placed it."""
        answer = self.answer
        if not answer.done() or answer.cancelled() or answer.exception():
            return False
        return answer.result().record.decision.outcome in PLACED

    def fail(self, error: Exception) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)

    def succeed(self, scheduled: Scheduled) -> None:
        if not self.answer.done():
            self.answer.set_result(scheduled)


def marks_of(batch: Iterable[Attempt]) -> frozenset[Mark]:
    return frozenset[Mark]().union(*(attempt.marks for attempt in batch))


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
