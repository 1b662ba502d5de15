"""The duty of the queue: one control plane tries what waits, as soon as it may have room.

It follows what is committed, so that it matters not who decided and who reported. Must not decide:
the pipeline does, as for callers; so that two which believe to have the duty harm nobody.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import partial
from operator import itemgetter
from typing import Final

from federation.model.errors import LimitExceeded, NotFound
from federation.model.placement import BindingName, PreemptionPolicy, binding_key
from federation.model.reasons import clauses_of
from federation.model.waiting import Wait
from federation.scheduler.plugins.profile import Profiles
from federation.scheduler.preemption import SPENT
from federation.scheduler.waiting.kept import MOST_EARMARKS
from federation.scheduler.waiting.queue import TryOrder, Waiter, WaitingQueue
from federation.services.binding_ports import StoredBinding
from federation.services.duties import URGENT_LEASE_SECONDS, Begin
from federation.services.fleet.registry import FleetOwner
from federation.services.journal import BindingChanged, Change, ClusterChanged, ReportAdvanced
from federation.services.ports import Store, Timer
from federation.services.scheduling.attempt import Attempt
from federation.services.scheduling.pipeline import DecisionPipeline
from federation.services.threads import Threads
from federation.services.troubles import Trouble
from federation.services.values import Scheduled
from federation.services.waiting.news import ROWS_AT_ONCE, News, Touched
from federation.services.waiting.ordering import Ordering
from federation.services.waiting.timeouts import GangTimeouts, Nominations
from federation.services.waiting.wants import LimitedNamespaces, Sample, look_for, waiting_of
from federation.services.waking import wait_for_wake

SWEEP_SECONDS: Final = 300.0
# Looking takes at most a quarter of a core, however often there is something to look at.
REST: Final = 3.0
LONGEST_REST_SECONDS: Final = 0.05
TROUBLE_SECONDS: Final = 1.0

logger = logging.getLogger(__name__)


class QueueKeeper:
    """Keeps the queue in memory while it has the duty. Belongs to one event loop.

    ``placed`` is told what became of those that found room. ``tried`` and ``rescued`` count the
    decisions that were asked for, and those that the sweep found although no event had told of
    room.
    """

    def __init__(
        self,
        store: Store,
        fleet: FleetOwner,
        pipeline: DecisionPipeline,
        profiles: Profiles,
        clock: Timer,
        placed: Callable[[Iterable[Scheduled]], None],
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
        self._forget()

    def _forget(self) -> None:
        self._queue = WaitingQueue()
        self._is_loaded = False
        # Of every want one that asks for it, as it was decided last.
        self._samples: dict[Hashable, Sample] = {}
        self._grouped: dict[Hashable, str] = {}
        self._preempting: dict[Hashable, int] = {}
        self._news = News()
        self._touched = Touched()
        # Since the last look: what was there may be taken.
        self._has_placed = False
        self._swept: set[Hashable] = set()
        self._sweep_at = math.inf
        self._ids: dict[BindingName, int] = {}
        # By who stands for their gang; and those of whose gangs something changed since the last
        # try began.
        self._companions: dict[BindingName, set[int]] = {}
        self._ordered: dict[BindingName, float | None] = {}
        self._changed_gangs: set[BindingName] = set()
        self._refused: dict[int, str] = {}
        self._failed: dict[int, float] = {}
        self._overtaken: dict[int, str] = {}
        # Who comes last of those that were placed since the last round, by cluster.
        self._last_placed: dict[str, TryOrder] = {}
        self._timeouts = GangTimeouts(self._store, self._fleet, self._clock)
        # When room is to be kept for who was overtaken, and for whom it is.
        self._starving: dict[BindingName, float] = {}
        self._earmarked: set[BindingName] = set()
        self.nominations.clear()
        # How often room that was kept for somebody was given up.
        self._given_up = 0

    def __len__(self) -> int:
        """How many wait and may be tried, by what is known here."""
        return len(self._queue)

    @property
    def is_held(self) -> bool:
        return self._clock.now() < self._held_until

    async def hold(self, begin: Begin) -> int:
        """The duty's work: it is this control plane's for as long as a lease."""
        del begin
        if await self._limited.have_changed():
            self.lost()
        self._held_until = self._clock.now() + URGENT_LEASE_SECONDS
        if not self._is_loaded:
            self._wake.set()
        return 0

    def changed(self, change: Change) -> None:
        """To be called of every change, after it was applied."""
        comes = isinstance(change, BindingChanged) and change.waits
        # Where nobody waits it matters to nobody: whoever comes is tried first.
        if not self._is_loaded or not (comes or len(self._queue)):
            return
        match change:
            case BindingChanged():
                self._note_binding(change)
            case ReportAdvanced():
                self._touched.note([change.cluster])
                self._wake.set()
            case ClusterChanged():
                # Who may go there may have changed.
                self._touched.note_everything()
                self._wake.set()

    def committed(self, rows: Iterable[StoredBinding]) -> None:
        """To be called after ``changed`` of those that this control plane made wait just now."""
        self._news.committed(rows)

    async def run(self) -> None:
        """Until cancelled."""
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
        """What was told of is not all that happened: read everything again."""
        self._forget()
        self._wake.set()

    def close(self) -> None:
        self._thread.close()
        self._ordering.close()

    async def do_round(self) -> None:
        """Try whoever may have room by now. Raises Unavailable."""
        if not self.is_held:
            self._forget()
            return
        try:
            await self._round()
        except Exception:
            # Nobody tells how it ended for those that were to be tried: all others wait for that.
            self.lost()
            raise

    async def _round(self) -> None:
        if not self._is_loaded:
            await self._load()
        self._news.note(self._ordering.to_show_again())
        await self._learn()
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
        await self._timeouts.tell()
        await asyncio.sleep(min(rest, LONGEST_REST_SECONDS))

    async def _wait(self) -> None:
        times = [self._queue.next_time(), self._sweep_at, self._earmark_at]
        times += [self._ordering.again_at, self.nominations.next_at, self._timeouts.next_at]
        if len(self._queue):
            times.append(self._touched.open_at)
        due_at = min(each for each in times if each is not None)
        left = max(0.0, due_at - self._clock.now()) if due_at < math.inf else None
        await wait_for_wake(self._wake, self._clock, left)
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
        elif any(given.shares and not given.adopted for given in change.clusters.values()):
            self._note_overtaken(change)
            # Who may take room of it is tried: it has some now.
            self._queue.wake(
                want for want, least in self._preempting.items() if least > change.priority
            )
        beside = [want for want, there in self._grouped.items() if there == change.namespace]
        if beside:
            self._queue.wake(beside)
            self._wake.set()

    def _note_overtaken(self, change: BindingChanged) -> None:
        """Whoever was placed came now, unless it had waited itself."""
        key = change.namespace, change.name
        since = self._queue.since(key)
        order = -change.priority, math.inf if since is None else since, key
        for cluster in change.clusters:
            self._last_placed[cluster] = max(order, self._last_placed.get(cluster, order))
        self._wake.set()

    def _mark_overtaken(self) -> None:
        placed, self._last_placed = self._last_placed, {}
        for waiter, by in self._queue.overtaken(placed) if placed else ():
            self._overtaken |= dict.fromkeys(self._ids_of(waiter.key), binding_key(*by))
            self._note_starving(waiter, self._clock.now())

    async def _load(self) -> None:
        """Take over all that waits; what changes meanwhile is told."""
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

    async def _learn(self) -> None:
        """Who waits now of those that changed."""
        while self._news:
            rows, gone = await self._news.learn(self._store)
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
        """Another of its gang stands for it: what that asks for may be something else now."""
        if stored.wait is None or not stored.wait.is_tried:
            return
        first = stored.binding.namespace, stored.wait.entry
        self._companions.setdefault(first, set()).add(stored.id)
        self._changed_gangs.add(first)
        self._queue.wake([self._queue.want_of(first)])

    def _ids_of(self, key: BindingName) -> list[int]:
        """Of the rows that it stands for."""
        return [self._ids[key], *self._companions.get(key, ())]

    def _note_wait(self, waiter: Waiter, wait: Wait | None) -> None:
        """Whether room is kept for it, by its row, or is to be."""
        is_earmarked = wait is not None and wait.earmarked_since is not None
        overtaken_since = wait.overtaken_since if wait else None
        if is_earmarked:
            self._earmarked.add(waiter.key)
        elif waiter.key in self._earmarked:
            self._give_up_room(waiter.key)
        if self.nominations.note(waiter.key, wait, self._clock.now()):
            self._wake_all()
        if overtaken_since is None or is_earmarked:
            self._starving.pop(waiter.key, None)
        elif waiter.key not in self._starving:
            self._note_starving(waiter, min(overtaken_since, self._clock.now()))

    def _note_starving(self, waiter: Waiter, since: float) -> None:
        binding = self._samples[waiter.want].binding
        if not self._profiles.violations_of(binding):
            seconds = self._profiles.profile_of(binding).starvation_seconds
            self._starving[waiter.key] = since + seconds

    @property
    def _earmark_at(self) -> float | None:
        """When room is to be kept for one more; as long as it is for the most, for nobody."""
        if not self._starving or len(self._earmarked) >= MOST_EARMARKS:
            return None
        return min(self._starving.values())

    def _newly_earmarked(self) -> list[int]:
        """The ids of bindings that were overtaken for too long, who waits longest first."""
        now, ids = self._clock.now(), []
        for key, due_at in sorted(self._starving.items(), key=itemgetter(1)):
            if due_at > now or len(self._earmarked) >= MOST_EARMARKS:
                break
            del self._starving[key]
            if key in self._queue:
                self._earmarked.add(key)
                ids += self._ids_of(key)
        return ids

    def _remove(self, key: BindingName) -> None:
        """It waits no more: what was kept for it others may have."""
        if key in self._queue:
            self._give_up_room(key)
        self._queue.remove(key)
        self._ids.pop(key, None)
        self._companions.pop(key, None)
        self._starving.pop(key, None)

    def _give_up_room(self, key: BindingName) -> None:
        is_kept = self.nominations.drop(key) or key in self._earmarked
        self._earmarked.discard(key)
        if is_kept or self._profiles.strict_names:
            self._wake_all()

    def _wake_all(self) -> None:
        """Room is not kept any more: also for those that are being refused for it."""
        self._given_up += 1
        self._queue.wake(self._queue.wants)

    def _to_look_for(self) -> list[Hashable]:
        """The wants for which something may have changed."""
        now = self._clock.now()
        # Seldom: it brings the snapshot up to date.
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
        """Wake those for which there is more room than at their refusal; how long to rest."""
        if not wants:
            return 0.0
        samples = {want: self._samples[want] for want in wants}
        looking = partial(look_for, self._profiles, samples, self._clock.now())
        seen, seconds = await self._thread.run(looking, self._pipeline.working())
        for want, there in seen.items():
            if self._queue.look(want, there):
                self._swept.discard(want)
        return REST * seconds

    def _sweep(self) -> None:
        """The first of every want is tried, although nothing says that there is room."""
        self._sweep_at = self._clock.now() + SWEEP_SECONDS
        self._swept = set(self._queue.asleep)
        self._queue.wake(self._swept)

    async def _try(self) -> None:
        taken = self._queue.take(self._clock.now())
        for first in range(0, len(taken), ROWS_AT_ONCE):
            part, unread = taken[first : first + ROWS_AT_ONCE], set[BindingName]()
            async with self._store.reading() as read:
                found = await read.bindings.find([waiter.key for waiter in part], unread)
            for place, waiter in enumerate(part, start=first + 1):
                if waiter.key in unread:
                    self._note_failure(waiter.key)
                else:
                    self._try_one(waiter, found.get(waiter.key), place)

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
        """``is_past``: room may have been kept from it that is not kept any more."""
        self._queue.refused(waiter.key, attempt.result.seen)
        self._swept.discard(waiter.want)
        self._touched.note_refused(waiter.want)
        sample = self._samples[waiter.want] = Sample.of(attempt)
        if sample.is_grouped or attempt.result.is_beyond_quota:
            self._grouped[waiter.want] = waiter.key[0]
        if is_past or waiter.key in self._changed_gangs:
            self._queue.wake([waiter.want])
        for each in (attempt, *attempt.gang.companions):
            if each.result.standing is not None and each.facts.stored is not None:
                self._refused[each.facts.stored.id] = str(each.short_of)

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
        """What the rows of those that wait on say of it."""
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
