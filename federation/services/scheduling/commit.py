"""Commits: decisions are compared with the store under locks, written, and put into the fleet.

Must not decide, unless an attempt lost too many races, and must not answer before the transaction
is committed. Attempts that others got in the way of are returned, to be decided again.
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
from federation.scheduler.resolved_placement import ResolvedPlacement
from federation.services.audited_calls import AuditedCall
from federation.services.binding_ports import NewWait, StoredBinding
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
from federation.services.scheduling.decision_ids import DECISION_IDS
from federation.services.scheduling.hooks import tell_committed
from federation.services.scheduling.preempting import Preemption, wants_preemption
from federation.services.scheduling.quotas import within_quotas
from federation.services.scheduling.together import (
    bindings_to_lock,
    decide_all,
    has_same_gang,
    is_atomic,
    settle_gangs,
)
from federation.services.scheduling.verdicts import reserve
from federation.services.scheduling.working_copy import WorkingCopy
from federation.services.threads import UNDER_LOCKS
from federation.services.troubles import tell
from federation.services.values import Scheduled

# The changes that a transaction appends to the journal, with the ids of their entries.
Entries = tuple[Sequence[int], Sequence[BindingChanged]]


class Committer:
    """The writer of batches. ``working`` makes a working copy of the current fleet.

    ``has_rivals`` tells whether others promised in the same clusters while the last batch was
    decided.
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
        """Call ``observer`` with the bindings that begin to wait, after each commit."""
        self._observers.append(observer)

    async def commit(
        self, attempts: Sequence[Attempt], working: WorkingCopy, standing: Sequence[Attempt] = ()
    ) -> tuple[list[Attempt], bool]:
        """Write the decisions that were made on the working copy.

        Returns the attempts that no longer fit, and whether all were written as they were decided.
        Of an atomic batch all are written, or Conflict is raised; its ``standing`` attempts need
        no writing.
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
                fitting = await within_quotas(tx, await _unchanged(tx, attempts))
                is_as_decided = not moved and len(fitting) == len(attempts)
                if not is_as_decided:
                    working = self._working()
                    fitting, traces = await UNDER_LOCKS.run(_reserve_again, working, fitting)
                if is_atomic(attempts) and not await _all_fit(tx, attempts, fitting, standing):
                    raise Conflict("An atomic batch does not fit any more as it was decided.")
                entries, changes = await write(tx, fitting, traces)
                own.announce(entries, changes)
            self._finish(fitting, changes, working)
        if is_as_decided:
            return [], True
        written = {attempt.key for attempt in fitting}
        return [attempt for attempt in attempts if attempt.key not in written], False

    async def decide_and_commit(self, attempts: Sequence[Attempt]) -> None:
        """Decide and write while all clusters where the attempts may go are locked.

        Raises Conflict if a binding was changed since it was read, or if it would go to a cluster
        that became eligible after the lock.
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
        self._fleet.adopt(working.snapshot, working.after_commit, changes)
        tell(
            self._observers, [attempt.waiting for attempt in written if attempt.waiting is not None]
        )
        for attempt in written:
            # The reservations of plugins are final.
            attempt.result.keeping.clear()
            attempt.succeed(attempt.scheduled)
        if any(attempt.profile.post_binds for attempt in written):
            telling = asyncio.create_task(tell_committed(written))
            self._telling.add(telling)
            telling.add_done_callback(self._telling.discard)


async def lock_groups(tx: Transaction, bindings: Iterable[Binding]) -> None:
    """Lock the workload affinity groups and gangs of bindings until the transaction ends.

    Call it before any other lock.
    """
    grouped = [binding for binding in bindings if is_grouped(binding) or binding.gang]
    if grouped:
        await tx.bindings.lock_groups(grouped)


async def lock_clusters(
    tx: Transaction, fleet: FleetOwner, following: Following, names: Collection[str]
) -> frozenset[str]:
    """Lock the ledgers of clusters in the store until the transaction ends.

    Returns the clusters whose ledgers were newer than the fleet in memory, which has them by then.
    Deleted clusters are among them, and are removed from the fleet.
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
    """Return the clusters where attempts may go by affinity and readiness, or hold something.

    These are all clusters if one of the attempts may preempt others.
    """
    fleet = snapshot.fleet
    readable = [attempt for attempt in attempts if attempt.error is None]
    policies = {attempt.candidate.preemption_policy for attempt in readable}
    if PreemptionPolicy.PREEMPT_LOWER_PRIORITY in policies:
        return frozenset(fleet.names)
    eligible_c = np.zeros(len(fleet), np.bool_)
    for attempt in readable:
        resolved = ResolvedPlacement.of(attempt.candidate.placement, fleet)
        for position in range(len(resolved.group_names)):
            eligible_c |= resolved.group(position, fleet).tier_c >= 0
    eligible_c &= fleet.ready_c
    eligible = {fleet.names[position] for position in eligible_c.nonzero()[0].tolist()}
    return frozenset(eligible) | (named_clusters(attempts) & fleet.index.keys())


def departed_clusters(attempts: Iterable[Attempt], working: WorkingCopy) -> frozenset[str]:
    """Return the clusters that attempts name and that the working copy does not have."""
    return named_clusters(attempts) - working.snapshot.positions.keys()


async def check_departed(tx: Transaction, names: frozenset[str]) -> None:
    """Raise Conflict if the store has one of these clusters.

    This control plane had not read it when it decided, and would drop the replicas there.
    """
    if names and (stored := await tx.clusters.find(names)):
        raise Conflict(f"Cluster {min(stored)!r} was added meanwhile: try again.")


async def write(tx: Transaction, attempts: Sequence[Attempt], traces: Sequence[Packed]) -> Entries:
    """Write decisions, each with its packed trace, its binding, its reservations and its answer.

    The ledgers are locked. The ``scheduled`` of the attempts holds once this is committed. Roll the
    transaction back if it raises. Raises Conflict if the name of a new binding was taken meanwhile,
    or the same request was answered, and Unavailable if an id does not fit the database's clock.
    """
    if not attempts:
        return (), ()
    settled = await tx.decisions.add_all(list(map(_new_decision, attempts, traces)))
    if len(settled.bindings) < len(attempts):
        raise Conflict("A binding of that name was made meanwhile: try again.")
    DECISION_IDS.check((attempt.id for attempt in attempts), settled.at)
    changes = list(map(_change, attempts))
    versions, nonces = await _write_reservations(tx, attempts), nonces_by_cluster(changes)
    await _write_waits(tx, attempts, settled)
    changes += await settle_gangs(tx, attempts)
    await _count_losses(tx, attempts)
    for attempt in attempts:
        attempt.scheduled = Scheduled(
            record=decision_record(attempt, attempt.id, settled.at),
            binding=settled.bindings[attempt.key].binding,
            queued=attempt.leaves_waiting,
        )
    for attempt in attempts:
        if attempt.gang.companions:
            companions = [member for member in attempt.gang.companions if member in attempts]
            scheduled = tuple(member.scheduled for member in companions)
            attempt.scheduled = replace(attempt.scheduled, others=scheduled)
    await keep_answers(tx, attempts)
    entries = await tx.journal.append(changes, versions, nonces)
    await _record_calls(tx, attempts)
    return entries, changes


async def _record_calls(tx: Transaction, attempts: Sequence[Attempt]) -> None:
    """Record the calls in the audit, each with the bindings that it asked for."""
    bindings = dict[AuditedCall, list[str]]()
    for attempt in attempts:
        if attempt.call is not None:
            bindings.setdefault(attempt.call, []).append(binding_key(*attempt.key))
    if bindings:
        await tx.audit.add([call.record(keys) for call, keys in bindings.items()])


async def _unchanged(tx: Transaction, attempts: Sequence[Attempt]) -> list[Attempt]:
    """Lock the bindings. Return the attempts whose bindings, groups and gangs are as read."""
    keys = [attempt.key for attempt in attempts if attempt.facts.stored is not None]
    try:
        current = await tx.bindings.lock_all(keys) if keys else {}
    except NewerBody:
        # A newer release wrote one of them since it was read: all are read again.
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


async def _all_fit(
    tx: Transaction,
    attempts: Sequence[Attempt],
    fitting: Sequence[Attempt],
    standing: Sequence[Attempt],
) -> bool:
    """Tell whether each of an atomic batch can be written, or stands as it was read."""
    return len(fitting) == len(attempts) and len(await _unchanged(tx, standing)) == len(standing)


def _is_as_read(stored: StoredBinding | None, current: StoredBinding | None) -> bool:
    if stored is None:
        return True
    return (
        current is not None
        and current.id == stored.id
        and current.binding.resource_version == stored.binding.resource_version
    )


def _reserve_again(
    working: WorkingCopy, attempts: Sequence[Attempt]
) -> tuple[list[Attempt], list[Packed]]:
    """Return the attempts whose shares fit on a newer fleet, and their packed traces.

    An attempt that waits for victims to leave may find room without them: it is decided again.
    """
    fitting = [
        attempt
        for attempt in attempts
        if not attempt.result.nominated and reserve(working, attempt) is None
    ]
    # Computed here: the ledgers of all clusters would hold up the event loop.
    _ = working.after_commit
    return fitting, packed_traces([attempt.result.verdict for attempt in fitting])


def _new_decision(attempt: Attempt, trace: Packed) -> NewDecision:
    placed, stored = attempt.is_placed, attempt.facts.stored
    group = attempt.decision.trace.affinity_group
    return NewDecision(
        id=attempt.id,
        binding_id=stored.id if stored else None,
        binding=attempt.decided,
        verdict=attempt.result.verdict,
        trace=trace,
        placed=placed,
        observed_affinity=group if placed else attempt.observed_affinity,
    )


def _change(attempt: Attempt) -> BindingChanged:
    """Return the change for the journal, with a new nonce each time."""
    return BindingChanged.of(
        attempt.candidate,
        decision=attempt.id,
        clusters=attempt.result.reserved.clusters if attempt.result.reserved else {},
        waits=attempt.leaves_waiting,
        is_first=not attempt.facts.holding.clusters,
    )


async def _write_waits(tx: Transaction, attempts: Sequence[Attempt], settled: Settled) -> None:
    """Let bindings wait that lack room and may wait, and end the waits of those that have it."""
    lacking = [attempt for attempt in attempts if attempt.leaves_waiting]
    for attempt in attempts:
        attempt.waiting = None
    if lacking:
        waits = [_new_wait(attempt, settled.bindings[attempt.key].id) for attempt in lacking]
        await tx.waiting.put(waits)
        for attempt, wait in zip(lacking, waits, strict=True):
            # The rows of other waits have more than this transaction knows.
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
    """Count preempted replicas. Raises Conflict beyond the limits of a minute."""
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
    """Write the reservations. Return the versions of the ledgers with them."""
    # The last of several decisions about one cluster has the version of its ledger.
    newest: dict[str, ClusterShares] = {}
    rows = []
    leases: dict[str, int | None] = {}
    for attempt in attempts:
        if attempt.result.reserved is None:
            continue
        newest.update(attempt.result.reserved.clusters)
        candidate, former = attempt.candidate, attempt.former
        rows.append(
            StoredReservations(
                namespace=candidate.namespace,
                name=candidate.name,
                uid=candidate.uid,
                owner=owner_of(candidate),
                reservations=attempt.result.reserved.reservations,
            )
        )
        had_lease = former is not None and former.lease_seconds is not None
        if candidate.lease_seconds is not None or had_lease:
            leases[candidate.key] = candidate.lease_seconds
    if rows:
        await tx.reservations.put(rows, leases)
    return {name: shares.version for name, shares in newest.items()}
