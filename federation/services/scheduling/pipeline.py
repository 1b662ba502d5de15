"""The pipeline of decisions: queue, read, decide, commit, answer, one batch after the other.

Must not keep a transaction open while it decides, unless an attempt lost too many races. Belongs
to one event loop. Decisions run in one thread of their own, and decisions under locks in threads
that nothing else uses.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import Context
from dataclasses import dataclass, replace
from uuid import uuid4

from federation.model.errors import Conflict, FederationError, Unavailable
from federation.model.placement import Binding, BindingName
from federation.model.reasons import Reason
from federation.scheduler.decision import by_itself
from federation.scheduler.plugins.profile import Profile, Profiles
from federation.services.binding_ports import StoredBinding
from federation.services.fleet.journal_reader import Following
from federation.services.fleet.registry import FleetOwner
from federation.services.fleet.report_requests import Refreshing
from federation.services.journal_ports import PreemptionLimits
from federation.services.ports import CONNECTION_LOST, Clock, Store
from federation.services.scheduling.answer import answer_as_before, answer_unwritten
from federation.services.scheduling.attempt import (
    Attempt,
    AttemptCause,
    AttemptRole,
    marks_of,
    named_clusters,
)
from federation.services.scheduling.commit import Committer
from federation.services.scheduling.fresh_reports import FreshReports
from federation.services.scheduling.hooks import give_back
from federation.services.scheduling.measures import DecisionMeasures, timed
from federation.services.scheduling.preempting import DEFAULT_LIMITS, Preemption, preempting_of
from federation.services.scheduling.preview_copies import PreviewCopies
from federation.services.scheduling.queue import DecisionQueue
from federation.services.scheduling.read import read_attempts
from federation.services.scheduling.stated_moves import StatedMove
from federation.services.scheduling.together import (
    decide_again,
    decide_all,
    decide_measured,
    is_atomic,
    join_gang,
    joins_gang,
    moved_attempts,
    place_all_or_none,
    with_companions,
)
from federation.services.scheduling.working_copy import WorkingCopy
from federation.services.threads import PREVIEWING, Threads
from federation.services.values import IdempotencyKey, Scheduled

# While others promise in the same clusters, attempts gather so long: larger batches take the locks
# less often.
GATHERING_SECONDS = 0.012
# Attempts that are fewer than the current batch divided by this wait until it is committed.
FEW = 2
# The event loop stands still so long for a batch. A decision takes a fifth less CPU (`make
# compare`, same and nine), and reads beside it take 4 ms more (docs/adr/0025).
STANDSTILL_SECONDS = 0.02


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Commit:
    """A batch that is being committed, and the working copy that it was decided on.

    ``task`` raises nothing. It returns whether the batch was written as it was decided.
    """

    batch: Sequence[Attempt]
    working: WorkingCopy
    task: asyncio.Task[bool]


class DecisionPipeline:
    """The one worker that takes attempts from the queue in batches until they are answered."""

    def __init__(
        self,
        store: Store,
        fleet: FleetOwner,
        following: Following,
        clock: Clock,
        profiles: Profiles,
        *,
        allow_unproven: bool = False,
        preemption_limits: PreemptionLimits = DEFAULT_LIMITS,
        report_requests: Refreshing | None = None,
    ) -> None:
        self._store = store
        self._fleet = fleet
        self.following = following
        self._clock = clock
        self._profiles = profiles
        self._allow_unproven = allow_unproven
        self._queue = DecisionQueue()
        self.measures = DecisionMeasures(self._queue)
        self._preemption = Preemption(profiles, preemption_limits)
        self._committer = Committer(store, fleet, following, clock, self.working, self._preemption)
        self._worker: asyncio.Task[None] | None = None
        self._reports = FreshReports(self._queue, report_requests, self._begin)
        self._preview_copies = PreviewCopies(fleet, allow_unproven=allow_unproven)
        self._thread = Threads("deciding", workers=1, most_waiting=2)

    def observe_waiting(self, observer: Callable[[Sequence[StoredBinding]], None]) -> None:
        """Call ``observer`` with the bindings that begin to wait, after each commit."""
        self._committer.observe_waiting(observer)

    def submit(
        self,
        binding: Binding,
        *,
        adopt: bool,
        wait: bool,
        once: IdempotencyKey | None = None,
        place: int = 0,
    ) -> asyncio.Future[Scheduled]:
        """Return a future of the committed decision. If it is cancelled, nothing is decided.

        Raises LimitExceeded if too many attempts wait. The future raises Conflict if others changed
        the binding all the time, PreconditionFailed for another uid or for the key of another
        request, PluginFailed or Unavailable.
        """
        attempt = Attempt(binding=binding, adopt=adopt, wait=wait, once=once, place=place)
        self._add(attempt)
        return attempt.answer

    def try_again(self, stored: StoredBinding, place: int) -> Attempt:
        """Decide a waiting binding as it is stored by then; ``place`` as in ``submit``.

        Raises LimitExceeded. The answer raises as the future of ``submit`` does, and NotFound if
        the binding no longer waits.
        """
        attempt = Attempt(binding=stored.binding, place=place, cause=AttemptCause.RETRIED)
        self._add(attempt)
        return attempt

    def reschedule(self, name: BindingName, uid: str) -> asyncio.Future[Scheduled]:
        """Decide a binding anew as it is stored by then, as if nothing had to stay.

        Raises as ``submit`` does. The future also raises NotFound.
        """
        binding = Binding(namespace=name[0], name=name[1], uid=uid)
        attempt = Attempt(
            binding=binding, cause=AttemptCause.RESCHEDULED, rescheduled_at=self._clock.now()
        )
        self._add(attempt)
        return attempt.answer

    def move(self, binding: Binding, stated: StatedMove | None = None) -> asyncio.Future[Scheduled]:
        """Move a stored binding off clusters, as it is ``stated`` or else wherever it fits.

        Raises as ``submit`` does. The future also raises NotFound, and PreconditionFailed if the
        binding must not be moved or cannot be moved as stated.
        """
        attempt = Attempt(binding=binding, cause=AttemptCause.MOVED, stated=stated)
        self._add(attempt)
        return attempt.answer

    def submit_together(
        self, bindings: Iterable[tuple[Binding, bool, IdempotencyKey | None]]
    ) -> list[asyncio.Future[Scheduled]]:
        """Decide an atomic batch: all bindings are committed in one transaction, or none.

        ``bindings`` are bindings with ``adopt`` and ``once`` as in ``submit``. None of them waits
        for room. Raises as ``submit`` does. A future also raises NotPlacedTogether if another
        binding was not placed.
        """
        batch = str(uuid4())
        attempts = [
            Attempt(binding=binding, adopt=adopt, wait=False, once=once, place=place, atomic=batch)
            for place, (binding, adopt, once) in enumerate(bindings, start=1)
        ]
        return self._add(*attempts)

    def move_together(self, bindings: Iterable[Binding]) -> list[asyncio.Future[Scheduled]]:
        """Move all stored bindings of one workload affinity group off clusters, or none."""
        return self._add(*moved_attempts(bindings))

    async def read(self, attempts: Sequence[Attempt]) -> None:
        """Add the facts of the store, or an ``error``, to attempts that nothing is committed of."""
        async with self._store.reading() as read:
            await read_attempts(read, attempts, self._profiles, self.following.history)
        await self.following.read_unknown(named_clusters(attempts))
        for attempt in attempts:
            attempt.profile = replace(attempt.profile, reserves=(), post_binds=())

    async def consider(self, binding: Binding, *, adopt: bool, wait: bool) -> Attempt:
        """Return an attempt with the decision as it would be now. Raises as ``submit`` does."""
        attempt = Attempt(binding=binding, adopt=adopt, wait=wait)
        await self.read([attempt])
        if attempt.error is None:
            working, now = self._preview_copies.next(), self._clock.now()
            await PREVIEWING.run(decide_all, working, [attempt], now)
            await self._preemption.with_victims(self._store, working, [attempt], PREVIEWING, now)
        if attempt.error is not None:
            raise attempt.error
        decision = by_itself(attempt.decision, attempt.candidate)
        attempt.result.verdict = replace(attempt.result.verdict, decision=decision)
        return attempt

    def working(self) -> WorkingCopy:
        """Return a working copy of the current fleet."""
        estimates = self._fleet.known_estimates
        return WorkingCopy(self._fleet.snapshot, estimates, allow_unproven=self._allow_unproven)

    def closed(self, working: WorkingCopy) -> Mapping[str, Reason]:
        """Return the clusters where nothing may grow now, each with the reason."""
        fleet = working.snapshot.fleet_at(self._clock.now())
        return {fleet.names[c]: fleet.unready[c] for c in (~fleet.ready_c).nonzero()[0].tolist()}

    def profile_of(self, binding: Binding) -> Profile:
        """Return the profile of a binding. Raises InvalidRequest without one."""
        return self._profiles.profile_of(binding)

    def close(self) -> None:
        self._reports.close()
        self._thread.close()

    def _add(self, *attempts: Attempt) -> list[asyncio.Future[Scheduled]]:
        for attempt in attempts:
            if joins_gang(attempt):
                attempt.role = AttemptRole.JOINING
        self.measures.enqueue(*attempts)
        self._begin()
        return [attempt.answer for attempt in attempts]

    def _begin(self) -> None:
        if self._worker is None:
            # It works for all callers: its log lines and spans are not of the first call.
            self._worker = asyncio.create_task(self._work(), context=Context())

    async def _work(self) -> None:
        """Decide one batch after the other, each while the one before is committed.

        If others promise in the same clusters, a batch is committed before the next is decided.
        Decisions beside it would not know the changes of the others, and would delay the locks
        that these wait for.
        """
        current: _Commit | None = None
        try:
            while True:
                if self._committer.has_rivals:
                    await _ended(current)
                    current = None
                    await asyncio.sleep(GATHERING_SECONDS)
                if current is not None and len(self._queue) * FEW < len(current.batch):
                    # Alone they would cost a transaction of their own, and have to wait anyway.
                    await _ended(current)
                    current = None
                in_commit = marks_of(current.batch) if current else frozenset()
                batch = self._queue.take(in_commit, takes_all=self._committer.has_rivals)
                if batch:
                    current = await self._start(batch, current)
                elif current is not None:
                    await current.task
                    current = None
                else:
                    return
        finally:
            self._worker = None

    async def _start(self, batch: Sequence[Attempt], current: _Commit | None) -> _Commit | None:
        """Decide a batch and begin its commit, after that of the ``current`` batch."""
        if batch[0].is_joining:
            return await self._join(batch, current)
        if batch[0].is_preempting and not batch[0].is_hindered:
            return await self._preempt(batch, current)
        try:
            attempts = self._without_joining(await self._read_batch(batch))
            batch = [attempt for attempt in batch if not attempt.is_joining]
            if any(attempt.is_hindered for attempt in batch):
                await _ended(current)
                await self._committer.decide_and_commit(attempts)
                await self._answer_unwritten(attempts)
                return None
            working = await self._working_after(current)
            await self._decide(working, attempts)
            if not await _ended(current):
                working, now = self.working(), self._clock.now()
                await self._thread.run(decide_again, working, attempts, now)
            attempts = self._without_preempting(self._reports.without_hopeful(attempts))
            to_write = [attempt for attempt in attempts if attempt.is_to_write]
            # Standing attempts of an atomic batch are answered once the others are committed.
            if not (to_write and is_atomic(attempts)):
                await self._answer_unwritten(attempts)
        except Exception as error:  # noqa: BLE001 - each caller gets it
            await _ended(current)
            await self._failed(batch, error)
            return None
        if not to_write:
            return None
        task = asyncio.create_task(self._commit(attempts, to_write, working))
        return _Commit(batch=batch, working=working, task=task)

    def _without_preempting(self, attempts: Sequence[Attempt]) -> list[Attempt]:
        """Return the attempts that are decided. One that may preempt goes alone, next."""
        preempting = preempting_of(attempts)
        for attempt in preempting:
            attempt.role = AttemptRole.PREEMPTING
        self._queue.put_first(preempting)
        return [attempt for attempt in attempts if not attempt.is_preempting]

    def _without_joining(self, attempts: Sequence[Attempt]) -> list[Attempt]:
        """Return the attempts that are placed alone. The others go with their gangs, next."""
        joining = [attempt for attempt in attempts if joins_gang(attempt)]
        for attempt in joining:
            attempt.role = AttemptRole.JOINING
        self._queue.put_first(joining)
        return [attempt for attempt in attempts if not attempt.is_joining]

    async def _join(self, batch: Sequence[Attempt], current: _Commit | None) -> _Commit | None:
        """Decide attempts with all gang members that have no place, and begin the commit."""
        try:
            await _ended(current)
            together = await self._read_together(batch)
            joined = [attempt for attempt in together if not attempt.is_companion]
            if not joined:
                return None
            if joined[0].is_hindered:
                await self._committer.decide_and_commit(together)
                await self._answer_unwritten(joined)
                return None
            working = self.working()
            await self._decide(working, together)
            if self._without_wrong(joined) or len(self._reports.without_hopeful(joined)) == 0:
                return None
            working, decided = await self._preemption.with_victims(
                self._store, working, together, self._thread, self._clock.now()
            )
            to_write = [attempt for attempt in decided if attempt.is_to_write]
            if not to_write:
                await self._answer_unwritten(joined)
        except Exception as error:  # noqa: BLE001 - the callers get it
            await self._failed(batch, error)
            return None
        if not to_write:
            return None
        task = asyncio.create_task(self._commit(joined, to_write, working))
        return _Commit(batch=decided, working=working, task=task)

    async def _read_together(self, batch: Sequence[Attempt]) -> Sequence[Attempt]:
        """Return the attempts of a batch that join its gang, with their companions.

        The other attempts are answered, or wait again.
        """
        attempts = await self._read_batch(batch)
        apart = [attempt for attempt in attempts if not joins_gang(attempt)]
        for attempt in apart:
            attempt.role = AttemptRole.ALONE
        self._queue.put_first(apart)
        joined = [attempt for attempt in attempts if attempt.is_joining]
        if not joined:
            return ()
        async with self._store.reading() as read:
            companions = await join_gang(read, joined)
            if companions:
                await read_attempts(read, companions, self._profiles, self.following.history)
        await self.following.read_unknown(named_clusters(companions))
        for attempt in joined:
            if attempt.error is not None:
                attempt.fail(attempt.error)
        joined = [attempt for attempt in joined if attempt.error is None]
        return with_companions(joined, companions) if joined else ()

    def _without_wrong(self, joined: Sequence[Attempt]) -> bool:
        """Tell whether some that join a gang have errors. These are answered.

        The others are decided without them, next.
        """
        sound = [attempt for attempt in joined if attempt.error is None]
        if len(sound) == len(joined):
            return False
        for attempt in joined:
            if attempt.error is not None:
                attempt.fail(attempt.error)
        self._queue.put_first(sound)
        return True

    async def _preempt(self, batch: Sequence[Attempt], current: _Commit | None) -> _Commit | None:
        """Decide with room that others lose, and begin the commit of both."""
        try:
            await _ended(current)
            read = await self._read_batch(batch)
            working = self.working()
            await self._decide(working, read)
            working, attempts = await self._preemption.with_victims(
                self._store, working, read, self._thread, self._clock.now()
            )
            to_write = [attempt for attempt in attempts if attempt.is_to_write]
            # Standing attempts of an atomic batch are answered once the others are committed.
            if not (to_write and is_atomic(read)):
                await self._answer_unwritten(read)
        except Exception as error:  # noqa: BLE001 - the callers get it
            await self._failed(batch, error)
            return None
        if not to_write:
            return None
        task = asyncio.create_task(self._commit(batch, to_write, working))
        return _Commit(batch=attempts, working=working, task=task)

    async def _working_after(self, current: _Commit | None) -> WorkingCopy:
        """Return the working copy for the next batch: the fleet after the ``current`` one."""
        if current is None or self._fleet.snapshot is not current.working.snapshot:
            await _ended(current)
            return self.working()
        return current.working.copy_after_commit()

    @timed("decide", batch=2)
    async def _decide(self, working: WorkingCopy, attempts: Sequence[Attempt]) -> None:
        now = self._clock.now()
        seconds = await self._thread.run_alone(
            STANDSTILL_SECONDS, decide_measured, working, attempts, now
        )
        self._queue.note_duration(seconds, len(attempts))

    async def _answer_unwritten(self, attempts: Sequence[Attempt]) -> None:
        await answer_unwritten(self._store, attempts, self._clock.now())

    @timed("commit")
    async def _commit(
        self, batch: Sequence[Attempt], to_write: Sequence[Attempt], working: WorkingCopy
    ) -> bool:
        """Tell whether all of the batch is committed as it was decided. The rest waits again."""
        rest = [
            attempt for attempt in batch if not attempt.answer.done() and not attempt.is_to_write
        ]
        try:
            late, is_as_decided = await self._committer.commit(to_write, working, rest)
            await self._answer_unwritten(rest)
        except Exception as error:  # noqa: BLE001 - each caller gets it
            await self._failed(batch, error)
            return False
        await give_back(late)
        self._queue.retry(attempt for attempt in late if not attempt.answer.done())
        return is_as_decided

    async def _failed(self, batch: Sequence[Attempt], error: Exception) -> None:
        """Answer every attempt of the batch, or let it wait again."""
        await give_back(batch)
        if isinstance(error, Conflict):
            self._queue.retry(batch)
        elif isinstance(error, Unavailable) and error.reason == CONNECTION_LOST:
            self._retry_once(batch, error)
        elif isinstance(error, Unavailable) or len(batch) == 1 or batch[0].atomic:
            for attempt in batch:
                attempt.fail(error)
        else:
            # One attempt cannot be decided or written: alone it harms no other one.
            for attempt in batch:
                if not attempt.answer.done():
                    await _ended(await self._start([attempt], None))

    def _retry_once(self, batch: Sequence[Attempt], error: Exception) -> None:
        """Let attempts wait again after their first lost connection: nothing is committed."""
        retried = [attempt for attempt in batch if not attempt.has_lost_connection]
        for attempt in batch:
            if attempt.has_lost_connection:
                attempt.fail(error)
            attempt.has_lost_connection = True
        self._queue.retry(retried)

    @timed("read")
    async def _read_batch(self, batch: Sequence[Attempt]) -> list[Attempt]:
        """Return the attempts with the facts of the store. The other ones are answered."""
        attempts, refused = list[Attempt](), list[Attempt]()
        async with self._store.reading() as read:
            # A standing decision is answered without a transaction.
            await self.following.check(read)
            for attempt in batch:
                try:
                    if not await answer_as_before(read, attempt):
                        attempts.append(attempt)
                    elif not attempt.was_placed:
                        refused.append(attempt)
                except Unavailable:
                    raise
                except FederationError as error:
                    attempt.fail(error)
                    refused.append(attempt)
            await read_attempts(read, attempts, self._profiles, self.following.history)
        await self.following.read_unknown(named_clusters(attempts))
        refused += [attempt for attempt in attempts if attempt.error is not None]
        if batch[0].atomic:
            place_all_or_none(attempts, refused)
        for attempt in attempts:
            if attempt.error is not None:
                attempt.fail(attempt.error)
        return [attempt for attempt in attempts if attempt.error is None]


async def _ended(commit: _Commit | None) -> bool:
    """Wait for a commit, if there is one. Tell whether the batch is written as it was decided."""
    return commit is None or await commit.task
