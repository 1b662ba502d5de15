"""The pipeline of decisions: queue, decide, commit, answer, one batch after the other.

Must not hold the store while it decides, unless others kept winning. Belongs to one event loop;
deciding runs in one thread of its own, and what has to be decided under locks in threads that
nothing else keeps busy.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import Context
from dataclasses import dataclass, replace
from uuid import uuid4

from federation.model.errors import Conflict, FederationError, Unavailable
from federation.model.placement import Binding, BindingName, Certificate
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
from federation.services.scheduling.attempt import Attempt, Cause, Role, marks_of, named_clusters
from federation.services.scheduling.commit import Committer
from federation.services.scheduling.fresh_reports import FreshReports
from federation.services.scheduling.gangs import join_gang, joins_gang, with_companions
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
    moved_attempts,
    place_all_or_none,
)
from federation.services.scheduling.working_copy import WorkingCopy
from federation.services.threads import PREVIEWING, Threads
from federation.services.values import Once, Scheduled

# Where others promise in the same clusters, a transaction had better be worth the wait for it.
GATHERING_SECONDS = 0.012
# Those that came while a batch of so many times as many is committed are decided after it.
FEW = 2
# The event loop waits so long for a batch: a decision takes a fifth less CPU (`make compare`, same
# and nine), and reads beside it take 4 ms more (docs/adr/0025).
STANDSTILL_SECONDS = 0.02


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Commit:
    """A batch that is being committed, and the working copy that it was decided on.

    ``task`` raises nothing, and tells whether the batch was written just as it was decided.
    """

    batch: Sequence[Attempt]
    working: WorkingCopy
    task: asyncio.Task[bool]


class DecisionPipeline:
    """Takes attempts from the queue in batches, and sees each through to its answer."""

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
        """From now on tell ``observer`` how those wait that were left waiting for the first time,
        after the fleet was told.
        """
        self._committer.observe_waiting(observer)

    def submit(
        self, binding: Binding, *, adopt: bool, wait: bool, once: Once | None = None, place: int = 0
    ) -> asyncio.Future[Scheduled]:
        """The decision, once it is committed. A cancelled answer is not decided any more.

        Raises LimitExceeded when too many wait; awaited, Conflict when others kept changing the
        binding, PreconditionFailed for another uid or a key of another request, PluginFailed,
        Unavailable.
        """
        attempt = Attempt(binding=binding, adopt=adopt, wait=wait, once=once, place=place)
        self._add(attempt)
        return attempt.answer

    def try_again(self, stored: StoredBinding, place: int) -> Attempt:
        """Decides a binding that waits, as it is stored by then; ``place`` as in ``submit``.

        Raises LimitExceeded; the answer, awaited, what those of ``submit`` do, and NotFound when it
        does not wait any more.
        """
        attempt = Attempt(binding=stored.binding, place=place, cause=Cause.RETRIED)
        self._add(attempt)
        return attempt

    def reschedule(self, name: BindingName, uid: str) -> asyncio.Future[Scheduled]:
        """Decides a binding anew, as it is stored by then, as if nothing had to stay.

        Raises as ``submit`` does; awaited, also NotFound.
        """
        binding = Binding(namespace=name[0], name=name[1], uid=uid)
        attempt = Attempt(
            binding=binding, cause=Cause.RESCHEDULED, rescheduled_at=self._clock.now()
        )
        self._add(attempt)
        return attempt.answer

    def move(self, binding: Binding, stated: StatedMove | None = None) -> asyncio.Future[Scheduled]:
        """Move a stored binding off clusters, as it is ``stated`` or else wherever it fits.

        Raises as ``submit`` does; awaited, also NotFound, and PreconditionFailed if it must not be
        moved or cannot be moved as stated.
        """
        attempt = Attempt(binding=binding, cause=Cause.MOVED, stated=stated)
        self._add(attempt)
        return attempt.answer

    def submit_together(
        self, bindings: Iterable[tuple[Binding, bool, Once | None]]
    ) -> list[asyncio.Future[Scheduled]]:
        """The decisions about an atomic batch, once all are committed in one transaction, or none:
        each binding with whether to ``adopt``, and its ``once``. Nothing of it waits for room.

        Raises as ``submit`` does; awaited, also NotPlacedTogether for what another one spoilt.
        """
        batch = str(uuid4())
        attempts = [
            Attempt(binding=binding, adopt=adopt, wait=False, once=once, place=place, atomic=batch)
            for place, (binding, adopt, once) in enumerate(bindings, start=1)
        ]
        return self._add(*attempts)

    def move_together(self, bindings: Iterable[Binding]) -> list[asyncio.Future[Scheduled]]:
        """Moves stored bindings of one workload affinity group off clusters, or none of them."""
        return self._add(*moved_attempts(bindings))

    async def read(self, attempts: Sequence[Attempt]) -> None:
        """Add what the store knows of the bindings, or ``error``; nothing will come of it."""
        async with self._store.reading() as read:
            await read_attempts(read, attempts, self._profiles, self.following.history)
        await self.following.read_unknown(named_clusters(attempts))
        for each in attempts:
            each.profile = replace(each.profile, reserves=(), post_binds=())

    async def consider(self, binding: Binding, *, adopt: bool, wait: bool) -> Attempt:
        """The decision as it would be now; nothing comes of it. Raises as ``submit`` does."""
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
        """A working copy of the fleet as it is known now."""
        known = self._fleet.known_estimates
        return WorkingCopy(self._fleet.snapshot, known, allow_unproven=self._allow_unproven)

    def closed(self, working: WorkingCopy) -> Mapping[str, Reason]:
        """The clusters where nothing may grow now, and why."""
        fleet = working.snapshot.fleet_at(self._clock.now())
        return {fleet.names[c]: fleet.unready[c] for c in (~fleet.ready_c).nonzero()[0].tolist()}

    def asked(self, binding: Binding) -> Certificate | None:
        """The certificate that the binding asks for, or else its profile."""
        return binding.certificate or self._profiles.profile_of(binding).certificate

    def profile_of(self, binding: Binding) -> Profile:
        """Raises InvalidRequest when there is none."""
        return self._profiles.profile_of(binding)

    def close(self) -> None:
        self._reports.close()
        self._thread.close()

    def _add(self, *attempts: Attempt) -> list[asyncio.Future[Scheduled]]:
        for attempt in attempts:
            if joins_gang(attempt):
                attempt.role = Role.JOINING
        self.measures.enqueue(*attempts)
        self._begin()
        return [attempt.answer for attempt in attempts]

    def _begin(self) -> None:
        if self._worker is None:
            # It works for everybody: its lines and its spans are not of the call that began it.
            self._worker = asyncio.create_task(self._work(), context=Context())

    async def _work(self) -> None:
        """Decide one batch after the other, each while the one before it is committed.

        Not so where others promise in the same clusters: what would be decided meanwhile is decided
        on what they have changed by then, and keeps the locks that they wait for from being given
        back.
        """
        before: _Commit | None = None
        try:
            while True:
                if self._committer.has_rivals:
                    await _ended(before)
                    before = None
                    await asyncio.sleep(GATHERING_SECONDS)
                if before is not None and len(self._queue) * FEW < len(before.batch):
                    # Alone they would cost a transaction of their own, and have to wait anyway.
                    await _ended(before)
                    before = None
                on_their_way = marks_of(before.batch) if before else frozenset()
                batch = self._queue.take(on_their_way, every=self._committer.has_rivals)
                if batch:
                    before = await self._start(batch, before)
                elif before is not None:
                    await before.task
                    before = None
                else:
                    return
        finally:
            self._worker = None

    async def _start(self, batch: Sequence[Attempt], before: _Commit | None) -> _Commit | None:
        """Decide a batch and let it be committed; the one before it is, then."""
        if batch[0].is_joining:
            return await self._join(batch, before)
        if batch[0].is_preempting and not batch[0].is_hindered:
            return await self._preempt(batch, before)
        try:
            attempts = self._without_joining(await self._read_batch(batch))
            batch = [attempt for attempt in batch if not attempt.is_joining]
            if any(attempt.is_hindered for attempt in batch):
                await _ended(before)
                await self._committer.decide_and_commit(attempts)
                await self._answer_unwritten(attempts)
                return None
            working = await self._working_after(before)
            await self._decide(working, attempts)
            if not await _ended(before):
                working, now = self.working(), self._clock.now()
                await self._thread.run(decide_again, working, attempts, now)
            attempts = self._without_preempting(self._reports.without_hopeful(attempts))
            to_write = [attempt for attempt in attempts if attempt.is_to_write]
            # What stands of an atomic batch is answered once the others are committed.
            if not (to_write and is_atomic(attempts)):
                await self._answer_unwritten(attempts)
        except Exception as error:  # noqa: BLE001 - each caller gets it
            await _ended(before)
            await self._failed(batch, error)
            return None
        if not to_write:
            return None
        task = asyncio.create_task(self._commit(attempts, to_write, working))
        return _Commit(batch=batch, working=working, task=task)

    def _without_preempting(self, attempts: Sequence[Attempt]) -> list[Attempt]:
        """Those that are decided; who found no room and may make some goes alone, next."""
        preempting = preempting_of(attempts)
        for attempt in preempting:
            attempt.role = Role.PREEMPTING
        self._queue.put_first(preempting)
        return [attempt for attempt in attempts if not attempt.is_preempting]

    def _without_joining(self, attempts: Sequence[Attempt]) -> list[Attempt]:
        """Those that are placed by themselves; who goes with a gang is decided with it, next."""
        joining = [attempt for attempt in attempts if joins_gang(attempt)]
        for attempt in joining:
            attempt.role = Role.JOINING
        self._queue.put_first(joining)
        return [attempt for attempt in attempts if not attempt.is_joining]

    async def _join(self, batch: Sequence[Attempt], before: _Commit | None) -> _Commit | None:
        """Decide those of one gang with all others of it that have no place yet, and let them be
        committed.
        """
        try:
            await _ended(before)
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
            to_write = [each for each in decided if each.is_to_write]
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
        """Those of a batch that join its gang, and who is placed with them; the others are answered
        or wait again.
        """
        attempts = await self._read_batch(batch)
        apart = [attempt for attempt in attempts if not joins_gang(attempt)]
        for attempt in apart:
            attempt.role = Role.ALONE
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
        """Whether something is wrong with some that join a gang: they are told, and nothing comes
        of the others, which are decided without them, next.
        """
        sound = [attempt for attempt in joined if attempt.error is None]
        if len(sound) == len(joined):
            return False
        for attempt in joined:
            if attempt.error is not None:
                attempt.fail(attempt.error)
        self._queue.put_first(sound)
        return True

    async def _preempt(self, batch: Sequence[Attempt], before: _Commit | None) -> _Commit | None:
        """Decide once more, with room made where there is none, and let it be committed with what
        others lose.
        """
        try:
            await _ended(before)
            read = await self._read_batch(batch)
            working = self.working()
            await self._decide(working, read)
            working, attempts = await self._preemption.with_victims(
                self._store, working, read, self._thread, self._clock.now()
            )
            to_write = [each for each in attempts if each.is_to_write]
            # What stands of an atomic batch is answered once the others are committed.
            if not (to_write and is_atomic(read)):
                await self._answer_unwritten(read)
        except Exception as error:  # noqa: BLE001 - the callers get it
            await self._failed(batch, error)
            return None
        if not to_write:
            return None
        task = asyncio.create_task(self._commit(batch, to_write, working))
        return _Commit(batch=attempts, working=working, task=task)

    async def _working_after(self, before: _Commit | None) -> WorkingCopy:
        """What to decide on while another batch is committed: on what that will have made."""
        if before is None or self._fleet.snapshot is not before.working.snapshot:
            await _ended(before)
            return self.working()
        return before.working.ahead()

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
        """Whether the batch is committed just as it was decided; if not, who is not waits again."""
        rest = [each for each in batch if not each.answer.done() and not each.is_to_write]
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
        """Every attempt of the batch is answered or waits again."""
        await give_back(batch)
        if isinstance(error, Conflict):
            self._queue.retry(batch)
        elif isinstance(error, Unavailable) and error.reason == CONNECTION_LOST:
            self._retry_once(batch, error)
        elif isinstance(error, Unavailable) or len(batch) == 1 or batch[0].atomic:
            for attempt in batch:
                attempt.fail(error)
        else:
            # Something in there cannot be decided or written: let it harm itself only.
            for attempt in batch:
                if not attempt.answer.done():
                    await _ended(await self._start([attempt], None))

    def _retry_once(self, batch: Sequence[Attempt], error: Exception) -> None:
        """Nothing of it is committed; on another connection it may be."""
        again = [attempt for attempt in batch if not attempt.has_lost_connection]
        for attempt in batch:
            if attempt.has_lost_connection:
                attempt.fail(error)
            attempt.has_lost_connection = True
        self._queue.retry(again)

    @timed("read")
    async def _read_batch(self, batch: Sequence[Attempt]) -> list[Attempt]:
        """Add what the store knows of the bindings; who cannot be decided about is told why."""
        attempts, refused = list[Attempt](), list[Attempt]()
        async with self._store.reading() as read:
            # What stands is answered without a transaction.
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
    """Whether a batch, if there was one, is committed as it was decided; waits for that."""
    return commit is None or await commit.task
