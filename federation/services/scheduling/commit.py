"""Commits: what was decided is looked at again under locks, written, and taken over.

Must not decide, unless others kept winning; must not answer before the transaction is committed.
What others changed meanwhile is left out, for the caller to decide again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from federation.history.bodies import NewerBody
from federation.history.packed_inputs import Packed
from federation.model.errors import Conflict
from federation.model.placement import Binding, PreemptionPolicy, binding_key, is_grouped
from federation.scheduler.resolved_placement import Terms
from federation.services.audited_calls import AuditedCall
from federation.services.binding_ports import StoredBinding
from federation.services.decision_ports import NewDecision, Settled
from federation.services.fleet.journal_reader import Following
from federation.services.fleet.registry import FleetOwner
from federation.services.fleet.snapshot import FleetSnapshot
from federation.services.journal import (
    BindingChanged,
    ClusterShares,
    StoredReservations,
    nonces_by_cluster,
    owner_of,
)
from federation.services.packed_traces import packed_off_loop, packed_traces
from federation.services.ports import Clock, Store, Transaction
from federation.services.scheduling.answer import decision_record, keep_answers
from federation.services.scheduling.attempt import Attempt, named_clusters
from federation.services.scheduling.gangs import bindings_to_lock, has_same_gang, settle_gangs
from federation.services.scheduling.hooks import tell_committed
from federation.services.scheduling.preempting import Preemption, wants_preemption
from federation.services.scheduling.quotas import within_quotas
from federation.services.scheduling.together import decide_all, is_atomic
from federation.services.scheduling.verdicts import reserve
from federation.services.scheduling.working_copy import WorkingCopy
from federation.services.telling import tell
from federation.services.threads import UNDER_LOCKS
from federation.services.values import Scheduled
from federation.services.waiting_ports import NewWait

# The changes that a transaction appends to the journal, with the ids of their entries.
Entries = tuple[Sequence[int], Sequence[BindingChanged]]


class Committer:
    """Commits batches of attempts; ``working`` makes a working copy of the fleet as it is known.

    ``has_rivals``: others promised in the same clusters while the last batch was decided.
    """

    def __init__(
        self,
        store: Store,
        fleet: FleetOwner,
        following: Following,
        clock: Clock,
        working: Callable[[], WorkingCopy],
        preemption: Preemption,
    ) -> None:
        self._store = store
        self._fleet = fleet
        self._following = following
        self._clock = clock
        self._working = working
        self._preemption = preemption
        self.has_rivals = False
        self._telling: set[asyncio.Task[None]] = set()
        self._observers: list[Callable[[Sequence[StoredBinding]], None]] = []

    def observe_waiting(self, observer: Callable[[Sequence[StoredBinding]], None]) -> None:
        """From now on tell ``observer`` how those wait that were left waiting for the first time,
        after the fleet was told.
        """
        self._observers.append(observer)

    async def commit(
        self, attempts: Sequence[Attempt], working: WorkingCopy, standing: Sequence[Attempt] = ()
    ) -> tuple[list[Attempt], bool]:
        """Write what was decided on the working copy.

        Those that do not fit beside what others did, and whether all were written just as they
        were decided. Of an atomic batch, which has ``standing`` ones beside, all are written, or
        Conflict is raised.
        """
        touched = frozenset[str]().union(*(attempt.touched for attempt in attempts))
        departed = departed_clusters(attempts, working)
        traces = await packed_off_loop([attempt.result.verdict for attempt in attempts])
        with self._following.appending() as own:
            async with self._store.transaction() as tx:
                await lock_groups(tx, bindings_to_lock(attempts))
                moved = await lock_clusters(tx, self._fleet, self._following, touched)
                self.has_rivals = bool(moved)
                await check_departed(tx, departed)
                moved |= working.moved_since(self._fleet.snapshot, touched)
                kept = await within_quotas(tx, await _unchanged(tx, attempts))
                is_as_decided = not moved and len(kept) == len(attempts)
                if not is_as_decided:
                    working = self._working()
                    kept, traces = await UNDER_LOCKS.run(_reserve_again, working, kept)
                if is_atomic(attempts) and not await _all_kept(tx, attempts, kept, standing):
                    raise Conflict("An atomic batch does not fit any more as it was decided.")
                entries, changes = await write(tx, kept, traces)
                own.announce(entries, changes)
            self._finish(kept, changes, working)
        if is_as_decided:
            return [], True
        written = {attempt.key for attempt in kept}
        return [attempt for attempt in attempts if attempt.key not in written], False

    async def decide_and_commit(self, attempts: Sequence[Attempt]) -> None:
        """Decide and write while nobody else can promise anything where these may go.

        Raises Conflict when the bindings were changed since they were read, or when they would go
        to a cluster that was not eligible before.
        """
        with self._following.appending() as own:
            async with self._store.transaction() as tx:
                await lock_groups(tx, bindings_to_lock(attempts))
                names = lockable_clusters(attempts, self._fleet.snapshot)
                await lock_clusters(tx, self._fleet, self._following, names)
                working, now = self._working(), self._clock.now()
                await check_departed(tx, departed_clusters(attempts, working))
                await UNDER_LOCKS.run(decide_all, working, attempts, now)
                if wants_preemption(attempts):
                    working, attempts = await self._preemption.plan(
                        tx, working, attempts, UNDER_LOCKS, now
                    )
                to_write = [attempt for attempt in attempts if attempt.is_to_write]
                if not to_write:
                    return
                if not all(names.issuperset(attempt.touched) for attempt in to_write):
                    raise Conflict("A cluster became eligible meanwhile.")
                if len(await _unchanged(tx, attempts)) < len(attempts):
                    raise Conflict("The binding was changed meanwhile.")
                if len(await within_quotas(tx, to_write)) < len(to_write):
                    raise Conflict("Others took of the quota of its namespace meanwhile.")
                verdicts = [attempt.result.verdict for attempt in to_write]
                traces = await packed_off_loop(verdicts, UNDER_LOCKS)
                entries, changes = await write(tx, to_write, traces)
                own.announce(entries, changes)
            self._finish(to_write, changes, working)

    def _finish(
        self, written: Sequence[Attempt], changes: Sequence[BindingChanged], working: WorkingCopy
    ) -> None:
        self._fleet.adopt(working.snapshot, working.after, changes)
        tell(self._observers, [each.waiting for each in written if each.waiting is not None])
        for attempt in written:
            # It keeps for good what plugins keep for it.
            attempt.result.keeping.clear()
            attempt.succeed(attempt.scheduled)
        if any(attempt.profile.post_binds for attempt in written):
            telling = asyncio.create_task(tell_committed(written))
            self._telling.add(telling)
            telling.add_done_callback(self._telling.discard)


async def lock_groups(tx: Transaction, bindings: Iterable[Binding]) -> None:
    """Until the transaction ends nobody else commits bindings of their workload affinity groups,
    nor of their gangs.

    To be called before anything else is locked.
    """
    grouped = [binding for binding in bindings if is_grouped(binding) or binding.gang]
    if grouped:
        await tx.bindings.lock_groups(grouped)


async def lock_clusters(
    tx: Transaction, fleet: FleetOwner, following: Following, names: Collection[str]
) -> frozenset[str]:
    """Hold the clusters' ledgers, as they are in the store, until the transaction ends.

    Answers which of them had moved on: the fleet in memory has caught up with those, and with those
    that were new to it. Clusters that are gone count as moved, and are gone from the fleet.
    """
    await following.check(tx)
    locked = await tx.journal.lock(sorted(names))
    gone = frozenset(names) - locked.keys()
    for name in gone:
        fleet.remove(name)
    moved = {
        name: version
        for name, version in locked.items()
        if not fleet.has(name) or fleet.version(name) != version
    }
    if moved:
        await following.catch_up(tx, moved)
    return gone | moved.keys()


def lockable_clusters(attempts: Sequence[Attempt], snapshot: FleetSnapshot) -> frozenset[str]:
    """Where attempts may get something, by affinity and readiness, or hold something now.

    Those that may preempt others look at all clusters.
    """
    fleet = snapshot.fleet
    readable = [attempt for attempt in attempts if attempt.error is None]
    policies = {attempt.candidate.preemption_policy for attempt in readable}
    if PreemptionPolicy.PREEMPT_LOWER_PRIORITY in policies:
        return frozenset(fleet.names)
    eligible_c = np.zeros(len(fleet), np.bool_)
    for attempt in readable:
        terms = Terms.of(attempt.candidate.placement, fleet)
        for position in range(len(terms.group_names)):
            eligible_c |= terms.group(position, fleet).tier_c >= 0
    eligible_c &= fleet.ready_c
    eligible = {fleet.names[position] for position in eligible_c.nonzero()[0].tolist()}
    return frozenset(eligible) | (named_clusters(attempts) & fleet.index.keys())


def departed_clusters(attempts: Iterable[Attempt], working: WorkingCopy) -> frozenset[str]:
    """The clusters that attempts name, and that the fleet they are decided on does not have."""
    return named_clusters(attempts) - working.snapshot.positions.keys()


async def check_departed(tx: Transaction, names: frozenset[str]) -> None:
    """Raises Conflict where one of these clusters has not left: this control plane had not heard of
    it when it decided, and what runs there would be dropped.
    """
    if names and (stored := await tx.clusters.find(names)):
        raise Conflict(f"Cluster {min(stored)!r} was added meanwhile: try again.")


async def write(tx: Transaction, attempts: Sequence[Attempt], traces: Sequence[Packed]) -> Entries:
    """Write decisions, each with its packed trace, its binding, its reservations and its answer.
    The ledgers involved are locked; each attempt is ``scheduled`` once this is committed.

    Raises Conflict when somebody took the name of a new binding meanwhile, or answered the same
    request: nothing may be kept then.
    """
    if not attempts:
        return (), ()
    settled = await tx.decisions.add_all(list(map(_new_decision, attempts, traces)))
    if len(settled.bindings) < len(attempts):
        raise Conflict("A binding of that name was made meanwhile: try again.")
    changes = list(map(_change, attempts))
    versions, nonces = await _write_reservations(tx, attempts), nonces_by_cluster(changes)
    await _write_waits(tx, attempts, settled)
    changes += await settle_gangs(tx, attempts)
    await _count_losses(tx, attempts)
    await _record_calls(tx, attempts)
    entries = await tx.journal.append(changes, versions, nonces)
    for attempt in attempts:
        attempt.scheduled = Scheduled(
            record=decision_record(attempt, attempt.id, settled.at),
            binding=settled.bindings[attempt.key].binding,
            queued=attempt.leaves_waiting,
        )
    for attempt in attempts:
        if attempt.gang.companions:
            others = tuple(each.scheduled for each in attempt.gang.companions if each in attempts)
            attempt.scheduled = replace(attempt.scheduled, others=others)
    await keep_answers(tx, attempts)
    return entries, changes


async def _record_calls(tx: Transaction, attempts: Sequence[Attempt]) -> None:
    """In the audit: who asked for which of them."""
    bindings = dict[AuditedCall, list[str]]()
    for attempt in attempts:
        if attempt.call is not None:
            bindings.setdefault(attempt.call, []).append(binding_key(*attempt.key))
    if bindings:
        await tx.audit.add([call.record(keys) for call, keys in bindings.items()])


async def _unchanged(tx: Transaction, attempts: Sequence[Attempt]) -> list[Attempt]:
    """Those whose bindings, groups and gangs are as they were read; held until the end of the
    transaction.
    """
    keys = [attempt.key for attempt in attempts if attempt.facts.stored is not None]
    try:
        current = await tx.bindings.lock_all(keys) if keys else {}
    except NewerBody:
        # A newer release wrote one of them since it was read: read all of them again.
        return []
    return [
        attempt
        for attempt in attempts
        if _is_as_read(attempt.facts.stored, current.get(attempt.key))
        and (
            not is_grouped(attempt.candidate)
            or await tx.bindings.peers(attempt.candidate) == attempt.facts.peers
        )
        and await has_same_gang(tx, attempt)
    ]


async def _all_kept(
    tx: Transaction,
    attempts: Sequence[Attempt],
    kept: Sequence[Attempt],
    standing: Sequence[Attempt],
) -> bool:
    """Whether each of an atomic batch can be written, or stands as it was read."""
    return len(kept) == len(attempts) and len(await _unchanged(tx, standing)) == len(standing)


def _is_as_read(known: StoredBinding | None, current: StoredBinding | None) -> bool:
    if known is None:
        return True
    return (
        current is not None
        and current.id == known.id
        and current.binding.resource_version == known.binding.resource_version
    )


def _reserve_again(
    working: WorkingCopy, attempts: Sequence[Attempt]
) -> tuple[list[Attempt], list[Packed]]:
    """Those whose shares find room on a newer fleet, and their packed traces. Who others leave room
    for may find some there without.
    """
    kept = [
        each for each in attempts if not each.result.nominated and reserve(working, each) is None
    ]
    # Kept there for the event loop, which must not be held up by the ledgers of all clusters.
    _ = working.after
    return kept, packed_traces([attempt.result.verdict for attempt in kept])


def _new_decision(attempt: Attempt, trace: Packed) -> NewDecision:
    placed, known = attempt.is_placed, attempt.facts.stored
    group = attempt.decision.trace.affinity_group
    return NewDecision(
        id=attempt.id,
        binding_id=known.id if known else None,
        binding=attempt.decided,
        verdict=attempt.result.verdict,
        trace=trace,
        placed=placed,
        observed_affinity=group if placed else known.observed_affinity if known else "",
    )


def _change(attempt: Attempt) -> BindingChanged:
    """What the journal tells of it: another change, by its nonce, each time."""
    return BindingChanged.of(
        attempt.candidate,
        decision=attempt.id,
        clusters=attempt.result.reserved.clusters if attempt.result.reserved else {},
        waits=attempt.leaves_waiting,
        is_first=not attempt.facts.holding.clusters,
    )


async def _write_waits(tx: Transaction, attempts: Sequence[Attempt], settled: Settled) -> None:
    """Who found too little room waits, unless it was not to; who waited for what it has now does
    not.
    """
    left = [attempt for attempt in attempts if attempt.leaves_waiting]
    for attempt in attempts:
        attempt.waiting = None
    if left:
        waits = [_new_wait(each, settled.bindings[each.key].id) for each in left]
        await tx.waiting.put(waits)
        for attempt, wait in zip(left, waits, strict=True):
            # Of others the row says more than this transaction.
            if attempt.candidate.gang is None and not attempt.stored_wait:
                stored = settled.bindings[attempt.key]
                attempt.waiting = replace(stored, wait=wait.begun(settled.at))
    placed = [
        attempt.facts.stored.id
        for attempt in attempts
        if attempt.facts.stored and attempt.stored_wait and not attempt.leaves_waiting
    ]
    if placed:
        await tx.waiting.remove(placed)


async def _count_losses(tx: Transaction, attempts: Sequence[Attempt]) -> None:
    """Raises Conflict where more would be preempted within a minute than may be."""
    for attempt in attempts:
        if not attempt.result.losses or attempt.result.limits is None:
            continue
        losses, limits = attempt.result.losses, attempt.result.limits
        spent = await tx.preemptions.add(losses)
        is_past = any(spent[namespace] > limits.in_namespace for namespace in losses)
        if is_past or sum(spent.values()) > limits.replicas:
            raise Conflict("Others were preempted meanwhile: no more may be within this minute.")


def _new_wait(attempt: Attempt, binding_id: int) -> NewWait:
    candidate, decision = attempt.candidate, attempt.decision
    generation = (attempt.former or candidate).generation
    return NewWait(
        binding_id=binding_id,
        namespace=candidate.namespace,
        name=candidate.name,
        priority=candidate.priority,
        remainder=decision.remainder,
        short_of=str(attempt.short_of),
        nominated=attempt.result.nominated,
        is_changed=candidate.generation != generation,
    )


async def _write_reservations(tx: Transaction, attempts: Sequence[Attempt]) -> Mapping[str, int]:
    """The versions that the ledgers have with them."""
    # Of what several decisions change in a cluster the last one has its version.
    newest: dict[str, ClusterShares] = {}
    rows = []
    leases: dict[str, int | None] = {}
    for attempt in attempts:
        if attempt.result.reserved is None:
            continue
        newest.update(attempt.result.reserved.clusters)
        candidate, known = attempt.candidate, attempt.facts.stored
        rows.append(
            StoredReservations(
                namespace=candidate.namespace,
                name=candidate.name,
                uid=candidate.uid,
                owner=owner_of(candidate),
                reservations=attempt.result.reserved.reservations,
            )
        )
        had_lease = known is not None and known.binding.lease_seconds is not None
        if candidate.lease_seconds is not None or had_lease:
            leases[candidate.key] = candidate.lease_seconds
    if rows:
        await tx.reservations.put(rows, leases)
    return {name: shares.version for name, shares in newest.items()}
