"""Decisions in batches: read together, decided one after the other, committed in one transaction.

Must not hold the store while it decides, unless others kept winning; must not answer before the
commit. Belongs to one event loop; deciding runs in one thread of its own, and what has to be
decided under locks in threads that nothing else keeps busy.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple
from uuid import uuid4

from federation.model.errors import Conflict, FederationError, Unavailable
from federation.model.placement import Binding, Certificate
from federation.scheduler.plugins.profile import Profiles
from federation.services.fleet.journal_reader import Following
from federation.services.fleet.registry import FleetOwner
from federation.services.journal_ports import Holding
from federation.services.packed_traces import packed_off_loop, packed_traces
from federation.services.ports import (
    CONNECTION_LOST,
    Clock,
    Peers,
    Store,
    StoredBinding,
    Transaction,
)
from federation.services.scheduling.decide import candidate_of
from federation.services.scheduling.drafts import (
    Decided,
    Draft,
    decide_all,
    decide_rest,
    pack_again,
)
from federation.services.scheduling.idempotency import answer_of, kept_answer
from federation.services.scheduling.queue import Batch, Request, Waiting, marks_of
from federation.services.scheduling.recheck import lock_groups, unchanged
from federation.services.scheduling.working_copy import Working
from federation.services.scheduling.write import Key, Written, lock_clusters, write
from federation.services.threads import PREVIEWING, UNDER_LOCKS, Threads
from federation.services.values import DecisionRecord, Once, Scheduled

# Where others promise in the same clusters, a transaction had better be worth the wait for it.
GATHERING_SECONDS = 0.012


class _Known(NamedTuple):
    """A binding as stored, and where it holds something."""

    binding: StoredBinding
    holding: Holding


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Ahead:
    """A batch that is being committed, and the working copy that it was decided on.

    ``commit`` raises nothing, and tells whether it was written just as it was decided.
    """

    batch: Batch
    working: Working
    commit: asyncio.Task[bool]


class Committing:
    """Requests that wait, and the batches that they are decided and committed in."""

    def __init__(
        self,
        store: Store,
        fleet: FleetOwner,
        following: Following,
        clock: Clock,
        profiles: Profiles,
        *,
        allow_unproven: bool = False,
    ) -> None:
        self._store = store
        self._fleet = fleet
        self._following = following
        self._clock = clock
        self._profiles = profiles
        self._allow_unproven = allow_unproven
        self._waiting = Waiting()
        self._worker: asyncio.Task[None] | None = None
        self._has_rivals = False
        self._thread = Threads("deciding", workers=1, most_waiting=2)

    def submit(
        self, binding: Binding, *, adopt: bool, wait: bool, once: Once | None = None
    ) -> asyncio.Future[Scheduled]:
        """The decision, once it is committed; who cancels it does not want it any more.

        Raises LimitExceeded when too many wait; awaited, Conflict when others kept changing the
        binding, PreconditionFailed for another uid or a key of another request, PluginFailed,
        Unavailable.
        """
        answer: asyncio.Future[Scheduled] = asyncio.get_running_loop().create_future()
        self._waiting.add(
            Request(binding=binding, adopt=adopt, wait=wait, once=once, answer=answer)
        )
        if self._worker is None:
            self._worker = asyncio.create_task(self._work())
        return answer

    async def consider(self, binding: Binding, *, adopt: bool) -> Decided:
        """The decision as it would be now; nothing comes of it. Raises as ``submit`` does."""
        async with self._store.reading() as read:
            key = binding.namespace, binding.name
            draft = await self._draft(
                read, binding, (await _find_known(read, [key])).get(key), adopt=adopt
            )
        now = self._clock.now()
        (decided,) = await PREVIEWING.run(decide_all, self.working(), [draft], now)
        if isinstance(decided, FederationError):
            raise decided
        return decided

    def working(self) -> Working:
        """A working copy of the fleet as it is known now."""
        return Working(self._fleet.snapshot, allow_unproven=self._allow_unproven)

    def lost(self, working: Working) -> Mapping[str, str]:
        """The clusters where nothing may grow now, and why."""
        fleet = working.snapshot.fleet_at(self._clock.now())
        return {fleet.names[c]: fleet.unready[c] for c in fleet.lost_c.nonzero()[0].tolist()}

    def asked(self, binding: Binding) -> Certificate | None:
        """The certificate that the binding asks for, or else its profile."""
        return binding.certificate or self._profiles.profile_of(binding).certificate

    def unstored(self, decided: Decided) -> DecisionRecord:
        """The record of a decision that is not stored, or not yet: without an id."""
        candidate, verdict = decided.draft.candidate, decided.verdict
        return DecisionRecord(
            id="",
            namespace=candidate.namespace,
            name=candidate.name,
            binding_generation=candidate.generation,
            created_at=self._clock.now(),
            decision=verdict.decision,
            evidence=verdict.evidence,
            promises=verdict.promises,
        )

    def close(self) -> None:
        self._thread.close()

    async def _work(self) -> None:
        """Decide one batch after the other, each while the one before it is committed.

        Not so where others promise in the same clusters: what would be decided meanwhile is decided
        on what they have changed by then, and keeps the locks that they wait for from being given
        back.
        """
        before: _Ahead | None = None
        try:
            while True:
                if self._has_rivals:
                    await _arrived(before)
                    before = None
                    await asyncio.sleep(GATHERING_SECONDS)
                on_their_way = marks_of(before.batch) if before else frozenset()
                batch = self._waiting.take(on_their_way, every=self._has_rivals)
                if batch:
                    before = await self._start(batch, before)
                elif before is not None:
                    await before.commit
                    before = None
                else:
                    return
        finally:
            self._worker = None

    async def _start(self, batch: Batch, before: _Ahead | None) -> _Ahead | None:
        """Decide a batch and let it be committed; the one before it is, then."""
        try:
            drafts = await self._read(batch)
            if any(request.is_hindered for request in batch.values()):
                await _arrived(before)
                await self._run_locked(batch, drafts)
                return None
            working = await self._working_after(before)
            decided = await self._decide(working, drafts)
            if not await _arrived(before):
                working, now = self.working(), self._clock.now()
                decided = await self._thread.run(decide_rest, working, drafts, decided, now)
            await self._answer_unwritten(batch, drafts, decided)
            to_write = _to_write(batch, decided)
        except Exception as error:  # noqa: BLE001 - each caller gets it
            await _arrived(before)
            await self._failed(batch, error)
            return None
        if not to_write:
            return None
        commit = asyncio.create_task(self._settle(batch, to_write, working))
        return _Ahead(batch=batch, working=working, commit=commit)

    async def _working_after(self, before: _Ahead | None) -> Working:
        """What to decide on while another batch is committed: on what that will have made."""
        if before is None or self._fleet.snapshot is not before.working.snapshot:
            await _arrived(before)
            return self.working()
        return before.working.ahead()

    async def _settle(self, batch: Batch, decided: list[Decided], working: Working) -> bool:
        """Whether the batch is committed just as it was decided; if not, who is not waits again."""
        try:
            return await self._commit(batch, decided, working)
        except Exception as error:  # noqa: BLE001 - each caller gets it
            await self._failed(batch, error)
            return False

    async def _failed(self, batch: Batch, error: Exception) -> None:
        """Every request of the batch is answered or waits again."""
        if isinstance(error, Conflict):
            self._waiting.again(batch.values())
        elif _has_lost_connection(error):
            self._again_once(batch, error)
        elif isinstance(error, Unavailable) or len(batch) == 1:
            for request in batch.values():
                request.fail(error)
        else:
            # Something in there cannot be decided or written: let it harm itself only.
            for key, request in batch.items():
                if not request.answer.done():
                    await _arrived(await self._start({key: request}, None))

    def _again_once(self, batch: Batch, error: Exception) -> None:
        """Nothing of it is committed; on another connection it may be."""
        again = [each for each in batch.values() if not each.has_lost_connection]
        for request in batch.values():
            if request.has_lost_connection:
                request.fail(error)
            request.has_lost_connection = True
        self._waiting.again(again)

    async def _commit(self, batch: Batch, decided: list[Decided], working: Working) -> bool:
        """Write what was decided; what does not fit beside what others did is decided again.

        Whether everything was written as it was.
        """
        touched = frozenset[str]().union(*(each.touched for each in decided))
        traces = await packed_off_loop([each.verdict for each in decided])
        with self._following.appending() as own:
            async with self._store.transaction() as tx:
                await lock_groups(tx, decided)
                moved = await lock_clusters(tx, self._fleet, self._following, touched)
                self._has_rivals = bool(moved)
                moved |= working.moved_since(self._fleet.snapshot, touched)
                kept = await unchanged(tx, decided)
                is_news = bool(moved) or len(kept) < len(decided)
                if is_news:
                    working = self.working()
                    kept, traces = await UNDER_LOCKS.run(_packed_again, working, kept)
                written = await self._write(tx, batch, kept, traces)
                own.announce(written.entries, written.changes)
            self._finish(batch, kept, written, working)
        late = batch.keys() - {each.key for each in kept}
        self._waiting.again(
            batch[key] for key in batch if key in late and not batch[key].answer.done()
        )
        return not is_news

    async def _run_locked(self, batch: Batch, drafts: Sequence[Draft]) -> None:
        """Decide and write while nobody else can promise anything."""
        with self._following.appending() as own:
            async with self._store.transaction() as tx:
                await lock_clusters(tx, self._fleet, self._following, self._fleet.snapshot.names)
                working = self.working()
                decided = await UNDER_LOCKS.run(decide_all, working, drafts, self._clock.now())
                to_write = _to_write(batch, decided)
                if len(await unchanged(tx, to_write)) < len(to_write):
                    raise Conflict("The binding was changed meanwhile.")
                traces = await packed_off_loop([each.verdict for each in to_write], UNDER_LOCKS)
                written = await self._write(tx, batch, to_write, traces)
                own.announce(written.entries, written.changes)
            self._finish(batch, to_write, written, working)
        await self._answer_unwritten(batch, drafts, decided)

    async def _read(self, batch: Batch) -> list[Draft]:
        """What the store knows of the bindings; who cannot be decided about is told why."""
        drafts = []
        async with self._store.reading() as read:
            # What stands is answered without a transaction.
            await self._following.check(read)
            known = await _find_known(read, batch.keys())
            for key, request in batch.items():
                try:
                    if request.once is not None and await _answered(read, request, request.once):
                        continue
                    binding, adopt = request.binding, request.adopt
                    drafts.append(await self._draft(read, binding, known.get(key), adopt=adopt))
                except Unavailable:
                    raise
                except FederationError as error:
                    request.fail(error)
        return drafts

    async def _draft(
        self, read: Transaction, binding: Binding, base: _Known | None, *, adopt: bool
    ) -> Draft:
        known = base.binding if base else None
        candidate = candidate_of(binding, known, adopt=adopt)
        newest = None
        if known is not None and known.decision_id and candidate == known.binding:
            newest = await read.decisions.get(known.decision_id)
        placement, peers = candidate.placement, Peers()
        if placement.workload_affinity_key or placement.workload_anti_affinity_key:
            peers = await read.bindings.peers(candidate)
        return Draft(
            id=str(uuid4()),
            profile=self._profiles.profile_of(binding),
            known=known,
            candidate=candidate,
            peers=peers,
            newest=newest,
            holding=base.holding if base else Holding(),
            adopts=known is None or adopt,
        )

    async def _decide(
        self, working: Working, drafts: Sequence[Draft]
    ) -> list[Decided | FederationError]:
        seconds, decided = await self._thread.run(_timed, working, drafts, self._clock.now())
        self._waiting.took(seconds, len(drafts))
        return decided

    async def _answer_unwritten(
        self, batch: Batch, drafts: Sequence[Draft], decided: Sequence[Decided | FederationError]
    ) -> None:
        """Answer those that there is no decision to write for."""
        for draft, each in zip(drafts, decided, strict=True):
            request = batch[draft.key]
            if isinstance(each, FederationError):
                request.fail(each)
            elif (standing := each.standing) is not None:
                await self._answer(request, Scheduled(record=standing, binding=draft.candidate))
            elif not _is_stored(each, request):
                request.succeed(Scheduled(record=self.unstored(each), binding=None))

    async def _answer(self, request: Request, scheduled: Scheduled) -> None:
        """Answer with what was decided before, and with the same when asked again."""
        once = request.once
        if once is not None:
            async with self._store.transaction() as tx:
                kept = kept_answer(scheduled)
                known = await tx.requests.add(once.caller, once.key, once.body_hash, kept)
                if known is not None:
                    scheduled = await answer_of(tx, known, once)
        request.succeed(scheduled)

    async def _write(
        self, tx: Transaction, batch: Batch, decided: Sequence[Decided], traces: Sequence[bytes]
    ) -> Written:
        written = await write(tx, [each.ready for each in decided], traces)
        given = [(once, key) for key in written.answers if (once := batch[key].once) is not None]
        # In one order everywhere, so that two batches never wait for each other.
        for once, key in sorted(given, key=lambda each: (each[0].caller, each[0].key)):
            answer = kept_answer(written.answers[key])
            if await tx.requests.add(once.caller, once.key, once.body_hash, answer):
                raise Conflict("The same request was answered meanwhile.")
        return written

    def _finish(
        self, batch: Batch, decided: Sequence[Decided], written: Written, working: Working
    ) -> None:
        self._fleet.adopt(working.snapshot, working.after, written.changes)
        for each in decided:
            batch[each.key].succeed(written.answers[each.key])


async def _find_known(read: Transaction, keys: Collection[Key]) -> Mapping[Key, _Known]:
    """Those bindings that are stored. What is held is read last: it is no older than the binding,
    and with a newer one nothing is committed.
    """
    bindings = await read.bindings.find(keys)
    holdings = await read.reservations.holdings(bindings.keys()) if bindings else {}
    return {key: _Known(binding, holdings.get(key, Holding())) for key, binding in bindings.items()}


def _timed(
    working: Working, drafts: Sequence[Draft], now: float
) -> tuple[float, list[Decided | FederationError]]:
    """The decisions, and the CPU seconds they took: others' work must not shrink the batches."""
    started = time.thread_time()
    decided = decide_all(working, drafts, now)
    # Kept there for the event loop, which must not be held up by the ledgers of all clusters.
    _ = working.after
    return time.thread_time() - started, decided


def _packed_again(
    working: Working, decided: Sequence[Decided]
) -> tuple[list[Decided], list[bytes]]:
    """Those that find room on a newer fleet, and their packed traces."""
    packed = [each for each in pack_again(working, decided) if each is not None]
    _ = working.after
    return packed, packed_traces([each.verdict for each in packed])


def _to_write(batch: Batch, decided: Sequence[Decided | FederationError]) -> list[Decided]:
    """Those that there is a decision to write for."""
    return [
        each
        for each in decided
        if isinstance(each, Decided) and each.standing is None and _is_stored(each, batch[each.key])
    ]


def _is_stored(decided: Decided, request: Request) -> bool:
    """Whether a decision that says something new is kept: not one about a binding that is nowhere
    and does not want to wait.
    """
    return bool(decided.draft.known or request.wait or decided.considered.is_placed)


def _has_lost_connection(error: Exception) -> bool:
    return isinstance(error, Unavailable) and error.reason == CONNECTION_LOST


async def _arrived(ahead: _Ahead | None) -> bool:
    """Whether a batch, if there was one, is committed as it was decided; waits for that."""
    return ahead is None or await ahead.commit


async def _answered(read: Transaction, request: Request, once: Once) -> bool:
    """Whether the request was answered before under its key: then it has the same answer again.

    Raises PreconditionFailed when the key was another request's.
    """
    known = await read.requests.get(once.caller, once.key)
    if known is None:
        return False
    request.succeed(await answer_of(read, known, once))
    return True
