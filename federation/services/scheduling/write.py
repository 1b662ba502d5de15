"""Writing decisions with their reservations: locks, what moved meanwhile, rows, the journal.

Must not decide anything, nor commit: the transaction is the caller's, and what it wrote counts only
after it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from federation.model.echoes import Owner
from federation.model.errors import Conflict
from federation.model.placement import Binding
from federation.services.fleet.journal_reader import Following
from federation.services.fleet.registry import FleetOwner
from federation.services.journal import (
    BindingChanged,
    ClusterShares,
    StoredReservations,
    new_nonce,
    nonces_by_cluster,
)
from federation.services.ports import NewDecision, StoredBinding, Transaction
from federation.services.scheduling.decide import PLACED
from federation.services.scheduling.working_copy import Kept
from federation.services.values import DecisionRecord, Scheduled, Verdict

Key = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """A decision that is to be written under ``id``; ``kept`` is None where nothing is reserved.

    ``known`` is the binding as it is now, None when it is new.
    """

    id: str
    known: StoredBinding | None
    candidate: Binding
    verdict: Verdict
    kept: Kept | None = None

    @property
    def key(self) -> Key:
        return self.candidate.namespace, self.candidate.name

    @property
    def is_placed(self) -> bool:
        return self.verdict.decision.outcome in PLACED

    def new(self, trace: bytes) -> NewDecision:
        placed, known = self.is_placed, self.known
        group = self.verdict.decision.trace.affinity_group
        return NewDecision(
            id=self.id,
            binding_id=known.id if known else None,
            binding=self.candidate,
            verdict=self.verdict,
            trace=trace,
            placed=placed,
            observed_affinity=group if placed else known.observed_affinity if known else "",
        )

    def change(self) -> BindingChanged:
        """Another one, by its nonce, each time."""
        return BindingChanged(
            namespace=self.candidate.namespace,
            name=self.candidate.name,
            uid=self.candidate.uid,
            owner=owner_of(self.candidate),
            decision=self.id,
            clusters=self.kept.clusters if self.kept else {},
            nonce=new_nonce(),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What a transaction wrote, to be applied and answered once it is committed.

    ``entries`` are the changes' ids in the journal.
    """

    answers: Mapping[Key, Scheduled] = field(default_factory=dict)
    changes: Sequence[BindingChanged] = ()
    entries: Sequence[int] = ()


async def lock_clusters(
    tx: Transaction, fleet: FleetOwner, following: Following, names: Collection[str]
) -> frozenset[str]:
    """Hold the clusters' ledgers, as they are in the store, until the transaction ends.

    Answers which of them had moved on: the fleet in memory has caught up with those. Clusters that
    are gone count as moved, and are gone from the fleet.
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


async def write(tx: Transaction, ready: Sequence[Ready], traces: Sequence[bytes]) -> Written:
    """Write decisions, each with its packed trace, its binding and its reservations. The ledgers
    involved are locked.

    Raises Conflict when somebody took the name of a new binding meanwhile: nothing may be kept
    then.
    """
    if not ready:
        return Written()
    settled = await tx.decisions.add_all(
        [each.new(trace) for each, trace in zip(ready, traces, strict=True)]
    )
    if len(settled.bindings) < len(ready):
        raise Conflict("A binding of that name was made meanwhile: try again.")
    changes = [each.change() for each in ready]
    await _write_reservations(tx, ready, nonces_by_cluster(changes))
    entries = await tx.journal.append(changes)
    answers = {
        each.key: Scheduled(
            record=record_of(each, settled.at), binding=settled.bindings[each.key].binding
        )
        for each in ready
    }
    return Written(answers=answers, changes=changes, entries=entries)


async def _write_reservations(
    tx: Transaction, ready: Sequence[Ready], nonces: Mapping[str, int]
) -> None:
    # Of what several decisions change in a cluster the last one has its version.
    newest: dict[str, ClusterShares] = {}
    rows = []
    leases: dict[str, int | None] = {}
    for each in ready:
        if each.kept is None:
            continue
        newest.update(each.kept.clusters)
        candidate = each.candidate
        rows.append(
            StoredReservations(
                namespace=candidate.namespace,
                name=candidate.name,
                uid=candidate.uid,
                owner=owner_of(candidate),
                reservations=each.kept.reservations,
            )
        )
        had_lease = each.known is not None and each.known.binding.lease_seconds is not None
        if candidate.lease_seconds is not None or had_lease:
            leases[candidate.key] = candidate.lease_seconds
    if rows:
        await tx.reservations.put(rows, leases)
    if newest:
        await tx.journal.advance({name: given.version for name, given in newest.items()}, nonces)


def owner_of(binding: Binding) -> Owner | None:
    """The workload whose pods stand for the binding; None where nothing is named."""
    resource = binding.resource
    if not (resource.kind and resource.name):
        return None
    return Owner(
        api_version=resource.api_version,
        kind=resource.kind,
        namespace=resource.namespace or binding.namespace,
        name=resource.name,
    )


def record_of(ready: Ready, created_at: float) -> DecisionRecord:
    return DecisionRecord(
        id=ready.id,
        namespace=ready.candidate.namespace,
        name=ready.candidate.name,
        binding_generation=ready.candidate.generation,
        created_at=created_at,
        decision=ready.verdict.decision,
        evidence=ready.verdict.evidence,
        promises=ready.verdict.promises,
    )
