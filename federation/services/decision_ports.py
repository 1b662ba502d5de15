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
    def at(self) -> int:
        """When it was committed, in microseconds since 1970."""
        ...

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


# Where a list goes on: microseconds since 1970, and the id among what was decided together.
DecisionPlace: TypeAlias = tuple[int, str]


# Before every decision.
FIRST_PLACE: Final[DecisionPlace] = (0, "0" * 32)


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionFilter:
    """Which decisions; what is empty or None leaves all.

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
    """A decision without what its trace says, but for why it was made."""

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
