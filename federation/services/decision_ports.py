"""The store of decisions and previews as use cases need it, and lists of decisions.

Must not name a technology, nor know how decisions are stored.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol, TypeAlias

from federation.history.packed_inputs import Packed
from federation.history.trace_files import TracedDecision, TracedDeletion
from federation.model.node_plans import NodePlan
from federation.model.placement import Binding
from federation.model.workload import TargetCluster
from federation.scheduler.decision import Outcome
from federation.services.binding_ports import StoredBinding
from federation.services.values import DecisionRecord, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class NewPreview:
    """The binding that a preview's token will commit, as decided on ``base``.

    ``base`` is the binding as stored at the time, None when it was new. ``body`` is what
    ``packed_preview`` makes of the rest.
    """

    id: str
    secret_hash: bytes
    base: StoredBinding | None
    body: Packed


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPreview:
    """A stored preview; ``decision_id`` is empty until it is committed.

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
    """A decision to be stored under ``id``, a UUID, with its binding as it was decided.

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
    """Bindings as stored with their newest decisions, by (namespace, name), and the time."""

    bindings: Mapping[tuple[str, str], StoredBinding]
    at: float


class PackedResult(NamedTuple):
    """The result of a decision, with its trace as ``packed_traces`` made it."""

    outcome: Outcome
    clusters: tuple[TargetCluster, ...]
    remainder: int
    reason: str
    trace: bytes


class PackedDecision(Protocol):
    """A decision as it is stored."""

    @property
    def at(self) -> int:
        """When it was committed, in microseconds since 1970."""
        ...

    @property
    def plans(self) -> tuple[NodePlan, ...]:
        """The answers of agents, by cluster."""
        ...

    @property
    def packed(self) -> PackedResult:
        """Its result, and its trace as ``packed_traces`` made it."""
        ...

    def unpacked(self) -> DecisionRecord:
        """Unpack the trace and the node plans, which may take too long for an event loop."""
        ...


class Decisions(Protocol):
    """Decisions with their traces; they outlive their bindings."""

    async def add_all(self, decisions: Sequence[NewDecision]) -> Settled:
        """Store decisions, and their bindings as they are then.

        New bindings whose names are taken are left out with their decisions.
        """
        ...

    async def get(self, decision_id: str) -> PackedDecision | None:
        """Return a decision; None also for a text that cannot be an id."""
        ...

    async def find(self, decision_ids: Collection[str]) -> Mapping[str, PackedDecision]:
        """Return the existing decisions of these ids."""
        ...

    async def shared(self, names: Collection[bytes]) -> Mapping[bytes, bytes]:
        """Return the existing bodies of these names."""
        ...

    async def prune_shared(self, unused_seconds: float, limit: int) -> int:
        """Forget bodies that no decision used for so long; return how many."""
        ...

    async def page(
        self, query: DecisionFilter, after: DecisionPlace | None, limit: int
    ) -> DecisionPage:
        """Return a page of decisions, the newest first, behind ``after``; the cost is bounded.

        With a filter of clusters or outcomes a page before the last may hold fewer.
        """
        ...

    async def recorded_after(
        self, query: DecisionFilter, after: DecisionPlace, max_bytes: int
    ) -> Sequence[TracedDecision]:
        """Return the oldest decisions behind ``after``, at most ``max_bytes`` or a single one."""
        ...

    async def deletions_between(self, since: int, until: int) -> Sequence[TracedDeletion]:
        """Return in order the deletions after one time and no later than another one.

        Times are microseconds since 1970.
        """
        ...

    async def prune_deletions(self, keep_seconds: float, limit: int) -> int:
        """Forget the oldest deletions, no more than ``limit``; return how many."""
        ...

    async def put_node_plans(self, plans: Mapping[str, Sequence[NodePlan]]) -> None:
        """Store agents' answers by decision; a cluster's later answer replaces its earlier one.

        Answers to decisions that are not there any more are left out.
        """
        ...

    async def prune(self, older_than_seconds: float, limit: int) -> int:
        """Forget the oldest day of old decisions, except the newest of each existing binding.

        Return ``limit`` as long as there may be more to do. Raises Conflict if that would block
        others: it is to be tried again.
        """
        ...


class StoredPreviews(Protocol):
    """Decisions that were shown and may be committed for a while. Times are the store's own."""

    async def add(self, preview: NewPreview, ttl_seconds: int) -> float:
        """Store a preview; return when it expires, in Unix seconds."""
        ...

    async def lock(self, preview_id: str) -> StoredPreview | None:
        """A preview that has not expired, held until the end of the transaction."""
        ...

    async def settle(self, preview_id: str, decision_id: str) -> None:
        """Note that the preview was committed as this decision."""
        ...


# The place where a list goes on: microseconds since 1970, and the id among decisions of one time.
DecisionPlace: TypeAlias = tuple[int, str]
# Before every decision.
FIRST_PLACE: Final[DecisionPlace] = (0, "0" * 32)


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionFilter:
    """A filter of decisions; a field that is empty or None lets all pass.

    ``name`` is that of a binding in exactly ``namespace``; ``among`` are patterns of namespaces, as
    in ``Scope``; ``cluster`` has a share. Times are Unix seconds: from ``since`` on, before
    ``until``.
    """

    namespace: str = ""
    among: tuple[str, ...] = ()
    name: str = ""
    cluster: str = ""
    outcomes: frozenset[Outcome] = frozenset()
    since: float | None = None
    until: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedDecision:
    """A decision without its trace, except its triggers."""

    id: str
    namespace: str
    name: str
    binding_generation: int
    created_at: float
    outcome: Outcome
    clusters: tuple[TargetCluster, ...]
    remainder: int
    reason: str
    algorithm_revision: int
    triggers: tuple[str, ...]

    @property
    def place(self) -> DecisionPlace:
        return round(self.created_at * 1_000_000), self.id


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionPage:
    """Decisions, the newest first; ``next_after`` is None on the last page."""

    decisions: tuple[ListedDecision, ...]
    next_after: DecisionPlace | None
