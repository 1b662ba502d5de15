"""The duty of the queue: one control plane tries bindings as soon as they may have room.

It follows committed changes of all control planes. Must not decide: the pipeline does, as for
callers, so that two control planes that both believe to have the duty do no harm.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Hashable, Iterable, Sequence
from functools import partial
from typing import Final

from federation.model.errors import LimitExceeded, NotFound
from federation.model.placement import BindingName, PreemptionPolicy, binding_key
from federation.model.reasons import clauses_of
from federation.model.waiting import Wait
from federation.scheduler.plugins.profile import Profiles
from federation.scheduler.preemption import SPENT
from federation.scheduler.waiting.kept import Earmarks
from federation.scheduler.waiting.queue import Waiter, WaitingQueue
from federation.services.binding_ports import StoredBinding
from federation.services.duties import URGENT_LEASE_SECONDS, Begin, Duty
from federation.services.fleet.registry import FleetOwner
from federation.services.journal import BindingChanged, Change, ClusterChanged, ReportAdvanced
from federation.services.ports import Store, Timer
from federation.services.scheduling.attempt import Attempt
from federation.services.scheduling.pipeline import DecisionPipeline
from federation.services.threads import Threads
from federation.services.troubles import Trouble
from federation.services.values import PlacedObserver, Scheduled
from federation.services.waiting.news import ROWS_AT_ONCE, ChangedBindings, Touched, wait_for_wake
from federation.services.waiting.timeouts import GangTimeouts, Nominations
from federation.services.waiting.wants import (
    LimitedNamespaces,
    Ordering,
    Sample,
    look_for,
    waiting_of,
)

SWEEP_SECONDS: Final = 300.0
# Looking takes at most a quarter of a core: the pause is this many times as long.
REST: Final = 3.0
MAX_REST_SECONDS: Final = 0.05
TROUBLE_SECONDS: Final = 1.0

logger = logging.getLogger(__name__)


class QueueKeeper:
    """The queue in memory, kept while this control plane has the duty. Belongs to one event loop.

    ``placed`` is called with decisions that placed something. ``tried`` counts the decisions that
    were asked for, and ``rescued`` those that only the sweep found room for.
    """

    def __init__(
        self,
        store: Store,
        fleet: FleetOwner,
        pipeline: DecisionPipeline,
        profiles: Profiles,
        clock: Timer,
        placed: PlacedObserver,
    ) -> None:
        self._store = store
        self._fleet = fleet
        self._pipeline = pipeline
        self._profiles = profiles
        self._clock = clock
        self._placed = placed
        self._ordering = Ordering(profiles, clock)
        self._thread = Threads("looking for room", workers=1, most_waiting=10)
        self._wake = asyncio.Event()
        self._held_until = -math.inf
        self.nominations = Nominations()
        self._limited = LimitedNamespaces(store)
        self.tried = 0
        self.rescued = 0
        self.duty = Duty(name="queue", work=self._hold)
        self._forget()

    def _forget(self) -> None:
        self._queue = WaitingQueue()
        self._is_loaded = False
        # One binding of every want, as decided last.
        self._samples: dict[Hashable, Sample] = {}
        self._grouped: dict[Hashable, str] = {}
        self._preempting: dict[Hashable, int] = {}
        self._news = ChangedBindings()
        self._touched = Touched()
        # Whether something was placed since the last look.
        self._has_placed = False
        self._swept: set[Hashable] = set()
        self._sweep_at = math.inf
        self._ids: dict[BindingName, int] = {}
        # Rows of the other members of a gang by its entry, and entries whose gangs changed since
        # their last try began.
        self._companions: dict[BindingName, set[int]] = {}
        self._ordered: dict[BindingName, float | None] = {}
        self._changed_gangs: set[BindingName] = set()
        self._refused: dict[int, str] = {}
        self._failed: dict[int, float] = {}
        self._overtaken: dict[int, str] = {}
        self._timeouts = GangTimeouts(self._store, self._fleet, self._clock)
        self._earmarks = Earmarks()
        self.nominations.clear()
        # How often room that was kept for a binding was given up.
        self._given_up = 0

    def __len__(self) -> int:
        """Count the waiting bindings that may be tried."""
        return len(self._queue)

    @property
    def is_held(self) -> bool:
        return self._clock.now() < self._held_until

    async def _hold(self, begin: Begin) -> int:
        """Do the duty's work: hold the queue for as long as a lease."""
        del begin
        if await self._limited.have_changed():
            self.lost()
        self._held_until = self._clock.now() + URGENT_LEASE_SECONDS
        if not self._is_loaded:
            self._wake.set()
        return 0

    def changed(self, change: Change) -> None:
        """Note a change, after it was applied."""
        comes = isinstance(change, BindingChanged) and change.waits
        # In an empty queue no change counts: bindings are tried first when they come.
        if not self._is_loaded or not (comes or len(self._queue)):
            return
        match change:
            case BindingChanged():
                self._note_binding(change)
            case ReportAdvanced():
                self._touched.note([change.cluster])
                self._wake.set()
            case ClusterChanged():
                # Other bindings may be eligible now.
                self._touched.note_everything()
                self._wake.set()

    def committed(self, rows: Iterable[StoredBinding]) -> None:
        """Take rows that this control plane has written, after ``changed`` was called of them."""
        self._news.committed(rows)

    async def run(self) -> None:
        """Try bindings again and again until cancelled."""
        trouble = Trouble(logger, "the queue is not kept")
        while True:
            try:
                await self._wait()
                await self.do_round()
                trouble.over()
            except Exception as error:  # noqa: BLE001 - told; what waits must be tried again some time
                trouble.met(error)
                await asyncio.sleep(TROUBLE_SECONDS)

    def lost(self) -> None:
        """Read everything again, because changes were lost."""
        self._forget()
        self._wake.set()

    def close(self) -> None:
        self._thread.close()
        self._ordering.close()

    async def do_round(self) -> None:
        """Try the bindings that may have room by now. Raises Unavailable."""
        if not self.is_held:
            self._forget()
            return
        try:
            await self._round()
        except Exception:
            # The results of taken bindings are lost, and others would wait for them.
            self.lost()
            raise

    async def _round(self) -> None:
        if not self._is_loaded:
            await self._load()
        self._news.note(self._ordering.to_show_again())
        await self._read_changed()
        started = time.thread_time()
        self._mark_overtaken()
        if self._clock.now() >= self._sweep_at:
            self._sweep()
        if self.nominations.end(self._clock.now(), self._pipeline.working):
            self._wake_all()
        earmarked = self._newly_earmarked()
        wants = self._to_look_for()
        rest = REST * (time.thread_time() - started) + await self._look(wants)
        await self._try()
        await self._write(earmarked)
        await self._timeouts.announce()
        await asyncio.sleep(min(rest, MAX_REST_SECONDS))

    async def _wait(self) -> None:
        times = [self._queue.next_time(), self._sweep_at, self._earmarks.next_at]
        times += [self._ordering.again_at, self.nominations.next_at, self._timeouts.next_at]
        if len(self._queue):
            times.append(self._touched.open_at)
        due_at = min(at for at in times if at is not None)
        seconds = max(0.0, due_at - self._clock.now()) if due_at < math.inf else None
        await wait_for_wake(self._wake, self._clock, seconds)
        self._wake.clear()

    def _note_binding(self, change: BindingChanged) -> None:
        key = change.namespace, change.name
        if change.waits or key in self._queue:
            self._news.note([key])
            self._wake.set()
        if not change.clusters:
            return
        if not change.is_first:
            self._touched.note(change.clusters)
            self._wake.set()
        elif any(shares.shares and not shares.adopted for shares in change.clusters.values()):
            self._note_overtaken(change)
            # Bindings that may preempt it are tried: it has room now.
            self._queue.wake(
                want for want, least in self._preempting.items() if least > change.priority
            )
        beside = [
            want for want, namespace in self._grouped.items() if namespace == change.namespace
        ]
        if beside:
            self._queue.wake(beside)
            self._wake.set()

    def _note_overtaken(self, change: BindingChanged) -> None:
        """Note that a binding was placed; one that had not waited came last."""
        key = change.namespace, change.name
        since = self._queue.since(key)
        order = -change.priority, math.inf if since is None else since, key
        self._queue.note_placed(order, change.clusters)
        self._wake.set()

    def _mark_overtaken(self) -> None:
        for waiter, by in self._queue.overtaken():
            self._overtaken |= dict.fromkeys(self._ids_of(waiter.key), binding_key(*by))
            self._note_starving(waiter, self._clock.now())

    async def _load(self) -> None:
        """Read all waiting bindings; changes meanwhile are noted."""
        self._forget()
        self._is_loaded = True
        self._sweep_at = self._clock.now() + SWEEP_SECONDS
        after, is_last = 0, False
        while not is_last:
            async with self._store.reading() as read:
                page = await read.bindings.waiting(after, ROWS_AT_ONCE)
            await self._take_over(page)
            is_last = len(page) < ROWS_AT_ONCE
            after = page[-1].id if page else after
            await asyncio.sleep(0)
        logger.info("queue taken over", extra={"fields": {"waiting": len(self._queue)}})

    async def _read_changed(self) -> None:
        """Read the bindings that changed."""
        while self._news:
            rows, gone = await self._news.read(self._store)
            for key in gone:
                self._remove(key)
            await self._take_over(rows)
            await asyncio.sleep(0)

    async def _take_over(self, rows: Sequence[StoredBinding]) -> None:
        instants = await self._ordering.instants(rows)
        now = self._clock.now()
        for stored in rows:
            self._timeouts.note(stored)
            instant = instants.get(stored.id)
            waiter = waiting_of(stored, self._profiles, now, instant, self._limited.names)
            if waiter is None:
                self._remove((stored.binding.namespace, stored.binding.name))
                self._note_companion(stored)
                continue
            self._queue.put(waiter)
            self._ids[waiter.key] = stored.id
            self._samples.setdefault(waiter.want, Sample(binding=stored.binding))
            self._note_wait(waiter, stored.wait)
            if stored.wait is not None and stored.wait.ordered_at != instant:
                self._ordered[waiter.key] = instant
            if stored.binding.preemption_policy is not PreemptionPolicy.NEVER:
                self._preempting[waiter.want] = waiter.priority

    def _note_companion(self, stored: StoredBinding) -> None:
        """Note a member of a gang with another entry, whose want may have changed."""
        if stored.wait is None or not stored.wait.is_tried:
            return
        first = stored.binding.namespace, stored.wait.entry
        self._companions.setdefault(first, set()).add(stored.id)
        self._changed_gangs.add(first)
        self._queue.wake([self._queue.want_of(first)])

    def _ids_of(self, key: BindingName) -> list[int]:
        """Return the ids of the binding and of the gang members that it is tried with."""
        return [self._ids[key], *self._companions.get(key, ())]

    def _note_wait(self, waiter: Waiter, wait: Wait | None) -> None:
        """Note whether room is kept for a binding by its row, or is to be."""
        is_earmarked = wait is not None and wait.earmarked_since is not None
        overtaken_since = wait.overtaken_since if wait else None
        if is_earmarked:
            self._earmarks.keep(waiter.key)
        elif waiter.key in self._earmarks.keys:
            self._give_up_room(waiter.key)
        if self.nominations.note(waiter.key, wait, self._clock.now()):
            self._wake_all()
        if overtaken_since is None:
            self._earmarks.forget(waiter.key)
        else:
            self._note_starving(waiter, min(overtaken_since, self._clock.now()))

    def _note_starving(self, waiter: Waiter, since: float) -> None:
        binding = self._samples[waiter.want].binding
        if not self._profiles.violations_of(binding):
            seconds = self._profiles.profile_of(binding).starvation_seconds
            self._earmarks.overtaken(waiter.key, since + seconds)

    def _newly_earmarked(self) -> list[int]:
        """Return the ids of bindings overtaken for too long, the longest first."""
        ids: list[int] = []
        for key in self._earmarks.begin(self._clock.now()):
            if key in self._queue:
                ids += self._ids_of(key)
            else:
                self._earmarks.give_up(key)
        return ids

    def _remove(self, key: BindingName) -> None:
        """Remove a binding, and give up the room that was kept for it."""
        if key in self._queue:
            self._give_up_room(key)
        self._queue.remove(key)
        self._ids.pop(key, None)
        self._companions.pop(key, None)
        self._earmarks.forget(key)

    def _give_up_room(self, key: BindingName) -> None:
        is_kept = self.nominations.drop(key) | self._earmarks.give_up(key)
        if is_kept or self._profiles.strict_names:
            self._wake_all()

    def _wake_all(self) -> None:
        """Wake all wants, also those that are being refused for room that was kept."""
        self._given_up += 1
        self._queue.wake(self._queue.wants)

    def _to_look_for(self) -> list[Hashable]:
        """Return the wants for which something may have changed."""
        now = self._clock.now()
        # This is seldom, because it brings the snapshot up to date.
        if now >= self._touched.open_at:
            self._touched.note_open(self._fleet.snapshot.fleet_at(now), now)
        for gone in self._samples.keys() - self._queue.wants:
            del self._samples[gone]
            self._grouped.pop(gone, None)
            self._preempting.pop(gone, None)
        asleep = [want for want in self._touched.take(self._queue) if want in self._samples]
        if self._has_placed:
            self._has_placed = False
            asleep += self._queue.hopeful
        return asleep

    async def _look(self, wants: Sequence[Hashable]) -> float:
        """Wake wants with more room than at their refusal; return how long to rest."""
        if not wants:
            return 0.0
        samples = {want: self._samples[want] for want in wants}
        looking = partial(look_for, self._profiles, samples, self._clock.now())
        seen, seconds = await self._thread.run(looking, self._pipeline.working())
        for want, room in seen.items():
            if self._queue.look(want, room):
                self._swept.discard(want)
        return REST * seconds

    def _sweep(self) -> None:
        """Try the first binding of every want, although no event announced room."""
        self._sweep_at = self._clock.now() + SWEEP_SECONDS
        self._swept = set(self._queue.asleep)
        self._queue.wake(self._swept)

    async def _try(self) -> None:
        taken = self._queue.take(self._clock.now())
        for first in range(0, len(taken), ROWS_AT_ONCE):
            part, unread = taken[first : first + ROWS_AT_ONCE], set[BindingName]()
            async with self._store.reading() as read:
                stored = await read.bindings.find([waiter.key for waiter in part], unread)
            for place, waiter in enumerate(part, start=first + 1):
                if waiter.key in unread:
                    self._note_failure(waiter.key)
                else:
                    self._try_one(waiter, stored.get(waiter.key), place)

    def _try_one(self, waiter: Waiter, stored: StoredBinding | None, place: int) -> None:
        if stored is None:
            self._queue.placed(waiter.key)
            self._remove(waiter.key)
            return
        try:
            attempt = self._pipeline.try_again(stored, place)
        except LimitExceeded:
            self._note_failure(waiter.key)
            return
        self.tried += 1
        self._changed_gangs.discard(waiter.key)
        answered = partial(self._answered, self._queue, waiter, attempt, self._given_up)
        attempt.answer.add_done_callback(answered)

    def _answered(
        self,
        queue: WaitingQueue,
        waiter: Waiter,
        attempt: Attempt,
        given_up: int,
        answer: asyncio.Future[Scheduled],
    ) -> None:
        if queue is not self._queue:
            return
        self._wake.set()
        error = None if answer.cancelled() else answer.exception()
        if isinstance(error, NotFound):
            queue.placed(waiter.key)
        elif answer.cancelled() or error or SPENT in clauses_of(attempt.decision.reason):
            self._note_failure(waiter.key)
        elif attempt.has_progressed:
            self._note_placed(waiter, answer.result())
        else:
            self._note_refused(waiter, attempt, is_past=given_up != self._given_up)

    def _note_refused(self, waiter: Waiter, attempt: Attempt, *, is_past: bool) -> None:
        """Note a refusal; ``is_past``: room that was kept from it was given up since."""
        self._queue.refused(waiter.key, attempt.result.seen)
        self._swept.discard(waiter.want)
        self._touched.note_refused(waiter.want)
        sample = self._samples[waiter.want] = Sample.of(attempt)
        if sample.is_grouped or attempt.result.is_beyond_quota:
            self._grouped[waiter.want] = waiter.key[0]
        if is_past or waiter.key in self._changed_gangs:
            self._queue.wake([waiter.want])
        for member in (attempt, *attempt.gang.companions):
            if member.result.standing is not None and member.facts.stored is not None:
                self._refused[member.facts.stored.id] = str(member.short_of)

    def _note_placed(self, waiter: Waiter, scheduled: Scheduled) -> None:
        self._give_up_room(waiter.key)
        self._queue.placed(waiter.key)
        self._has_placed = True
        self._placed([scheduled])
        if waiter.want in self._swept:
            self._swept.discard(waiter.want)
            self.rescued += 1
            fields = {"binding": "/".join(waiter.key), "rescued": self.rescued}
            logger.error("no event had told of the room of what waits", extra={"fields": fields})

    def _note_failure(self, key: BindingName) -> None:
        not_before = self._queue.failed(key, self._clock.now())
        if key in self._ids:
            self._failed[self._ids[key]] = not_before - self._clock.now()

    async def _write(self, earmarked: Sequence[int]) -> None:
        """Write the results into the rows of bindings that wait on."""
        refused, failed, overtaken = self._refused, self._failed, self._overtaken
        ordered = {
            row: instant
            for key, instant in self._ordered.items()
            if key in self._ids
            for row in self._ids_of(key)
        }
        if not (refused or failed or overtaken or earmarked or ordered):
            return
        self._refused, self._failed, self._overtaken, self._ordered = {}, {}, {}, {}
        async with self._store.transaction() as tx:
            await tx.waiting.note(refused, failed, overtaken, earmarked, ordered)
