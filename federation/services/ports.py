"""What the use cases need from below: storage in transactions, and the time.

Protocols only. Must not name a technology.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from federation.failover.breaker import Breaker
from federation.history.packed_inputs import Packed
from federation.history.trace_files import TracedDecision, TracedDeletion
from federation.model.node_plans import NodePlan
from federation.model.placement import Binding, BindingName, EvictionTask
from federation.model.waiting import Wait
from federation.model.workload import TargetCluster
from federation.scheduler.decision import Outcome
from federation.services.access_ports import AccessTokens, Audit, NamespaceQuotas
from federation.services.journal_ports import (
    Histories,
    Journal,
    Preemptions,
    Requests,
    Reservations,
    StoredDuties,
    StoredPresences,
    StoredReplicas,
)
from federation.services.listed_decisions import DecisionFilter, DecisionPage, DecisionPlace
from federation.services.member_ports import Clusters, Credentials, Reports
from federation.services.plan_ports import StoredPlans
from federation.services.values import DecisionRecord, Verdict
from federation.services.waiting_ports import Waits


class Clock(Protocol):
    """The time, in Unix seconds."""

    def now(self) -> float: ...


# Told, after the commit, of a cluster whose resource model in force changed.
ModelObserver = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredBinding:
    """A binding as committed and the id of its newest decision (empty before the first).

    ``observed_affinity`` names the group of cluster affinities its placement came from. ``wait``
    says how it waits for room, None where it does not.
    """

    id: int
    binding: Binding
    decision_id: str = ""
    observed_affinity: str = ""
    wait: Wait | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewPreview:
    """What a preview's token will commit: the binding as it was decided, on ``base``.

    ``base`` is the binding as stored at the time, None when it was new. ``body`` is what
    ``packed_preview`` makes of the rest.
    """

    id: str
    secret_hash: bytes
    base: StoredBinding | None
    body: Packed


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPreview:
    """A preview as kept; ``decision_id`` is empty until it is committed.

    ``binding_id`` and ``binding_generation`` are those of the base, None when it was new.
    """

    id: str
    secret_hash: bytes
    binding_id: int | None
    binding_generation: int | None
    binding: Binding
    verdict: Verdict
    wait: bool
    decision_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewDecision:
    """A decision that is to be kept under ``id``, a UUID, with its binding as it was decided.

    ``binding_id`` is None for a new binding. ``placed`` False leaves the binding where it was.
    ``trace`` is what ``packed_traces`` makes of the verdict.
    """

    id: str
    binding_id: int | None
    binding: Binding
    verdict: Verdict
    trace: Packed
    placed: bool
    observed_affinity: str = ""


class Settled(NamedTuple):
    """Bindings as stored with their newest decisions, by (namespace, name), and since when."""

    bindings: Mapping[tuple[str, str], StoredBinding]
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Peers:
    """The clusters of each other binding in the same workload (anti-)affinity group."""

    affinity: tuple[frozenset[str], ...] = ()
    anti_affinity: tuple[frozenset[str], ...] = ()


class BindingsToDecide(NamedTuple):
    """Bindings by (namespace, name), where they exist; whether room may be kept for some that wait,
    and whether one of the namespaces has a quota.
    """

    known: Mapping[tuple[str, str], StoredBinding]
    room_is_kept: bool
    has_quotas: bool


class Bindings(Protocol):
    """Bindings and where they run."""

    async def get(self, namespace: str, name: str) -> StoredBinding | None: ...

    async def peers(self, binding: Binding) -> Peers:
        """Where the other bindings of its workload affinity groups are."""
        ...

    async def lock_groups(self, bindings: Sequence[Binding]) -> None:
        """Until the end of the transaction nobody else locks their workload affinity groups, nor
        their gangs.
        """
        ...

    async def of_gang(self, namespace: str, gang: str) -> Sequence[StoredBinding]:
        """By ascending name."""
        ...

    async def lock(self, namespace: str, name: str) -> StoredBinding | None:
        """The binding, held until the end of the transaction."""
        ...

    async def page(
        self,
        namespace: str,
        after: tuple[str, str] | None,
        limit: int,
        *,
        among: Collection[str] = (),
    ) -> Sequence[Binding]:
        """By ascending (namespace, name), of one namespace unless it is empty.

        ``among`` are patterns of namespaces, as in ``Scope``: only of these; none: of all.
        """
        ...

    async def names(
        self, namespace: str, after: BindingName | None, limit: int
    ) -> Sequence[BindingName]:
        """The names alone, as ``page`` otherwise."""
        ...

    async def delete(self, binding_id: int) -> None: ...

    async def touch(self, binding_id: int) -> None:
        """Another resource version: who decides about it reads it again."""
        ...

    async def find(
        self, keys: Collection[tuple[str, str]]
    ) -> Mapping[tuple[str, str], StoredBinding]:
        """Those of the (namespace, name) that exist."""
        ...

    async def to_decide(self, keys: Collection[tuple[str, str]]) -> BindingsToDecide:
        """What ``find`` says, and what else is to be read for decisions about all of them."""
        ...

    async def lock_all(
        self, keys: Collection[tuple[str, str]]
    ) -> Mapping[tuple[str, str], StoredBinding]:
        """``find``, held until the end of the transaction, taken in ascending order of the keys."""
        ...

    async def waiting(self, after: int, limit: int) -> Sequence[StoredBinding]:
        """Those that wait, by ascending id, from behind ``after`` on."""
        ...

    async def preemptible(
        self, keys: Collection[tuple[str, str]], below: int, limit: int
    ) -> Mapping[tuple[str, str], StoredBinding]:
        """Of the (namespace, name) those of a lower priority that may be preempted, the least
        urgent first.
        """
        ...

    async def earmarked(self, limit: int, nominated: int = 0) -> Sequence[StoredBinding]:
        """Those that room is kept for, and that may be tried; who came first is first. So many that
        were overtaken, and so many for whom others leave, those whose time ends last.
        """
        ...

    async def first_waiting(self, scheduler_names: Collection[str]) -> Sequence[StoredBinding]:
        """Of those that wait and may be tried, the first of each scheduler name."""
        ...

    async def holding(self, cluster: str, limit: int) -> Sequence[tuple[str, str]]:
        """(namespace, name) of the first bindings, by name, with replicas in a cluster."""
        ...


class PackedResult(NamedTuple):
    """What was decided, its trace as ``packed_traces`` made it."""

    outcome: Outcome
    clusters: tuple[TargetCluster, ...]
    remainder: int
    reason: str
    trace: bytes


class PackedDecision(Protocol):
    """A decision as it is stored."""

    @property
    def plans(self) -> tuple[NodePlan, ...]:
        """What agents answered, by cluster."""
        ...

    @property
    def packed(self) -> PackedResult:
        """Its result, and its trace as ``packed_traces`` made it."""
        ...

    def unpacked(self) -> DecisionRecord:
        """With the trace and the node plans; of a large fleet that takes too long for an event
        loop.
        """
        ...


class Decisions(Protocol):
    """Decisions with their traces; they outlive their bindings."""

    async def add_all(self, decisions: Sequence[NewDecision]) -> Settled:
        """Keeps decisions, and their bindings as they are then.

        New bindings whose names are taken are left out with their decisions.
        """
        ...

    async def get(self, decision_id: str) -> PackedDecision | None:
        """None also for what cannot be an id."""
        ...

    async def find(self, decision_ids: Collection[str]) -> Mapping[str, PackedDecision]:
        """Those that are there, read together."""
        ...

    async def shared(self, names: Collection[bytes]) -> Mapping[bytes, bytes]:
        """The bodies of these names that are there still."""
        ...

    async def prune_shared(self, unused_seconds: float, limit: int) -> int:
        """Forgets bodies that no decision was made on for so long; how many."""
        ...

    async def page(
        self, wanted: DecisionFilter, after: DecisionPlace | None, limit: int
    ) -> DecisionPage:
        """The newest first, those that come after ``after``; costs no more however many there are.

        Where clusters or outcomes are asked for, a page may hold fewer before the last one.
        """
        ...

    async def recorded_after(
        self, wanted: DecisionFilter, after: DecisionPlace, most_bytes: int
    ) -> Sequence[TracedDecision]:
        """The oldest of these times that come after ``after``, the oldest first: one at least,
        where there is any, and no more than have so many bytes.
        """
        ...

    async def deletions_between(self, since: int, until: int) -> Sequence[TracedDeletion]:
        """The bindings that were deleted after one time and no later than another one, both in
        microseconds since 1970, in order.
        """
        ...

    async def put_node_plans(self, plans: Mapping[str, Sequence[NodePlan]]) -> None:
        """Keeps agents' answers by decision; a cluster's later answer replaces its earlier one.

        Answers to decisions that are not there any more are left out.
        """
        ...

    async def make_partitions(self) -> int:
        """Makes room for the decisions of the days to come; of how many days.

        Raises Conflict where that would hold others up: it is to be tried again.
        """
        ...

    async def prune(self, older_than_seconds: float, limit: int) -> int:
        """Forgets the oldest day of which everything is old, but for the newest decision of each
        binding that is there; ``limit`` as long as there may be more to do.

        Raises Conflict where that would hold others up: it is to be tried again.
        """
        ...


class StoredPreviews(Protocol):
    """Decisions that were shown and may be committed for a while. Times are the store's own."""

    async def add(self, preview: NewPreview, ttl_seconds: int) -> float:
        """Keeps a preview; when it expires, in Unix seconds."""
        ...

    async def lock(self, preview_id: str) -> StoredPreview | None:
        """A preview that has not expired, held until the end of the transaction."""
        ...

    async def settle(self, preview_id: str, decision_id: str) -> None:
        """The preview was committed as this decision."""
        ...


class StoredFailover(Protocol):
    """Whether failover is frozen, who has to move, and the graceful evictions."""

    async def get(self) -> Breaker: ...

    async def lock(self) -> Breaker:
        """Held until the end of the transaction."""
        ...

    async def put(self, breaker: Breaker) -> None:
        """In place of the one that is locked."""
        ...

    async def in_clusters(
        self, clusters: Collection[str], after: BindingName | None, limit: int
    ) -> Sequence[Binding]:
        """Bindings that are in one of the clusters, by ascending (namespace, name)."""
        ...

    async def evicted(self, after: BindingName | None, limit: int) -> Sequence[Binding]:
        """Bindings with graceful evictions of ours, by ascending (namespace, name)."""
        ...

    async def evictions(self) -> int:
        """How many graceful evictions of ours there are."""
        ...

    async def put_evictions(self, tasks: Mapping[int, Sequence[EvictionTask]]) -> None:
        """All that bindings have, by their ids, in place of what they had; they are locked."""
        ...

    async def replicas(self) -> int:
        """How many replicas all bindings have in clusters; looks at all of them."""
        ...


class Transaction(Protocol):
    """Everything done through one of these is committed together, or not at all."""

    @property
    def credentials(self) -> Credentials: ...

    @property
    def tokens(self) -> AccessTokens: ...

    @property
    def audit(self) -> Audit: ...

    @property
    def quotas(self) -> NamespaceQuotas: ...

    @property
    def clusters(self) -> Clusters: ...

    @property
    def reports(self) -> Reports: ...

    @property
    def bindings(self) -> Bindings: ...

    @property
    def decisions(self) -> Decisions: ...

    @property
    def previews(self) -> StoredPreviews: ...

    @property
    def journal(self) -> Journal: ...

    @property
    def reservations(self) -> Reservations: ...

    @property
    def requests(self) -> Requests: ...

    @property
    def preemptions(self) -> Preemptions: ...

    @property
    def duties(self) -> StoredDuties: ...

    @property
    def presences(self) -> StoredPresences: ...

    @property
    def replicas(self) -> StoredReplicas: ...

    @property
    def failover(self) -> StoredFailover: ...

    @property
    def histories(self) -> Histories: ...

    @property
    def plans(self) -> StoredPlans: ...

    @property
    def waiting(self) -> Waits: ...


# The reason of Unavailable where a connection ended before what was asked on it was committed:
# another one may work at once.
CONNECTION_LOST = "CONNECTION_LOST"


class Store(Protocol):
    """Where everything is kept. Raises Unavailable when it cannot be reached in time."""

    def transaction(self) -> AbstractAsyncContextManager[Transaction]:
        """Commits when the block ends, and rolls back when it raises.

        When the connection is lost while committing, Unavailable says that the outcome is unknown.
        """
        ...

    def reading(self) -> AbstractAsyncContextManager[Transaction]:
        """For reads alone: every statement by itself, nothing to commit."""
        ...
