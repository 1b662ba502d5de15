"""What the use cases need from below: storage in transactions, the agents, the time.

Protocols only. Must not name a technology.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from federation.model.cluster import CapacityReport, Cluster
from federation.model.errors import FederationError
from federation.model.node_plans import NodePlan, PlaceOrder
from federation.model.placement import Binding
from federation.services.journal_ports import (
    Histories,
    Journal,
    Requests,
    Reservations,
    StoredDuties,
    StoredPresences,
    StoredReplicas,
)
from federation.services.values import (
    AgentFacts,
    DecisionRecord,
    ExactQuestion,
    PrincipalKind,
    Verdict,
)


class Clock(Protocol):
    """The time, in Unix seconds."""

    def now(self) -> float: ...


class AgentGateway(Protocol):
    """The agents that can be asked now."""

    def is_connected(self, cluster: str) -> bool: ...

    async def place(self, cluster: str, order: PlaceOrder, timeout_seconds: float) -> NodePlan:
        """The agent's answer. Raises Unavailable (not connected, gone) or DeadlineMissed."""
        ...


class AgentEstimates(Protocol):
    """The agents that can look up now what fits on their nodes."""

    def is_connected(self, cluster: str) -> bool: ...

    async def estimate(
        self, cluster: str, question: ExactQuestion, timeout_seconds: float
    ) -> tuple[int, ...]:
        """One number a shape, or one for sets, 0..MAX_REPLICAS.

        Raises Unavailable (not connected, gone, cannot tell, or no sense) or DeadlineMissed.
        """
        ...


class AgentStreams(Protocol):
    """The open streams of agents."""

    def dismiss(self, cluster: str, error: FederationError) -> None:
        """End the stream of a cluster's agent for good, telling it why, if there is one."""
        ...


class AgentReports(Protocol):
    """Agents that report more often when they are asked to."""

    def refresh(self, cluster: str, reason: str) -> None:
        """Ask a cluster's agent for a whole report now, if its stream is here."""
        ...


# Told, after the commit, of a cluster whose resource model in force changed.
ModelObserver = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredCluster:
    """A cluster as committed, with its newest report; ``id`` never changes.

    ``ledger_version`` counts what happened to its promises and reports, and ``history`` names it.
    ``reported`` are epoch and sequence of the newest report, None without one.
    """

    id: int
    cluster: Cluster
    facts: AgentFacts
    ledger_version: int = 0
    history: int = 0
    reported: tuple[int, int] | None = None
    report: CapacityReport | None = None
    received_at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredCredential:
    """A credential without its secret. ``cluster`` is empty for all but agents."""

    id: str
    kind: PrincipalKind
    cluster: str
    secret_hash: bytes
    expires_at: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredBinding:
    """A binding as committed and the id of its newest decision (empty before the first).

    ``observed_affinity`` names the group of cluster affinities its placement came from.
    """

    id: int
    binding: Binding
    decision_id: str = ""
    observed_affinity: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewPreview:
    """What a preview's token will commit: the binding as it was decided, on ``base``.

    ``base`` is the binding as stored at the time, None when it was new. ``body`` is what
    ``packed_preview`` makes of the rest.
    """

    id: str
    secret_hash: bytes
    base: StoredBinding | None
    body: bytes


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
    trace: bytes
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


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedReport:
    """A report and the cluster it is about; one with another uid is another cluster.

    ``nonce`` is that of the version of the ledger that it makes.
    """

    cluster: str
    cluster_uid: str
    report: CapacityReport
    nonce: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportVerdict:
    """What became of a report: ``received_at`` is None when it was not newer than the stored one.

    Unknown clusters have ``known`` False. ``ledger_version`` is the one that the report made.
    """

    cluster: str
    known: bool
    received_at: float | None
    ledger_version: int = 0


class Credentials(Protocol):
    """Secrets, as hashes. Times are the store's own."""

    async def add_join_token(
        self, *, token_id: str, secret_hash: bytes, cluster: str, ttl_seconds: int
    ) -> float:
        """Keeps a token; when it expires, in Unix seconds."""
        ...

    async def spend_join_token(self, token_id: str, cluster: str) -> bytes | None:
        """The hash of an unused, unexpired token of that cluster, which is used from now on."""
        ...

    async def add(
        self,
        *,
        credential_id: str,
        secret_hash: bytes,
        kind: PrincipalKind,
        cluster_id: int | None,
        ttl_seconds: int | None,
    ) -> float | None:
        """Keeps a credential; when it expires, in Unix seconds (None: never)."""
        ...

    async def find(self, credential_id: str) -> StoredCredential | None:
        """A credential that is neither expired nor revoked."""
        ...

    async def settle(self, cluster_id: int, credential_id: str) -> bool:
        """A cluster uses this one: those that it replaced end. False when it is not valid."""
        ...

    async def ages(self, credential_ids: Sequence[str]) -> Mapping[str, float]:
        """How old those are that are valid, in seconds by id."""
        ...

    async def keep_only(self, cluster_id: int, credential_id: str) -> None:
        """Revokes all other credentials of a cluster."""
        ...

    async def revoke_all(self, cluster: str) -> int:
        """Revokes all credentials of a cluster; how many there were."""
        ...

    async def cancel_join_tokens(self, cluster: str) -> None:
        """Join tokens made for a cluster until now cannot be used any more."""
        ...

    async def keep_newest(self, cluster_id: int, count: int) -> None:
        """Revokes all but the newest ``count`` credentials of a cluster."""
        ...

    async def discard(self, credential_ids: Sequence[str]) -> None:
        """Forgets credentials, valid or not."""
        ...

    async def prune(self, limit: int) -> int:
        """Forgets credentials of agents and replicas that ended a while ago; how many."""
        ...

    async def prune_join_tokens(self, limit: int) -> int:
        """Forgets those that were used, cancelled or expired a while ago; how many."""
        ...

    async def lock_admin(self) -> bool:
        """Whether an admin credential exists; no other caller can add one until the end."""
        ...


class Clusters(Protocol):
    """Member clusters and what their agents say of themselves."""

    async def all(self) -> Sequence[StoredCluster]: ...

    async def find(self, names: Collection[str]) -> Mapping[str, StoredCluster]:
        """Those of the names that exist, without their reports."""
        ...

    async def lock(self, name: str) -> StoredCluster | None:
        """The cluster, without its report, held until the end of the transaction."""
        ...

    async def add(self, cluster: Cluster, facts: AgentFacts) -> StoredCluster | None:
        """A new cluster; None when the name was taken meanwhile."""
        ...

    async def put(self, cluster_id: int, cluster: Cluster) -> Cluster:
        """Replaces the spec; the cluster with its new ``resource_version``."""
        ...

    async def put_facts(self, cluster_id: int, facts: AgentFacts) -> None: ...

    async def put_uid(self, cluster_id: int, uid: str, nonce: int = 0) -> Cluster:
        """Makes the row another Kubernetes cluster's, without a report or facts.

        The history of its ledger begins with the nonce.
        """
        ...

    async def delete(self, cluster_id: int) -> None:
        """With its report and its credentials."""
        ...


class Reports(Protocol):
    """The newest report of each cluster."""

    async def advance(self, reports: Sequence[NamedReport]) -> Sequence[ReportVerdict]:
        """Stores those that are newer by (epoch, sequence); at most one report per cluster.

        The journal tells of those that were.
        """
        ...

    async def get(self, names: Collection[str]) -> Mapping[str, tuple[CapacityReport, float]]:
        """The newest report of each that has one, and when it was received, in Unix seconds."""
        ...


class Bindings(Protocol):
    """Bindings and where they run."""

    async def get(self, namespace: str, name: str) -> StoredBinding | None: ...

    async def peers(self, binding: Binding) -> Peers:
        """Where the other bindings of its workload affinity groups are."""
        ...

    async def lock_groups(self, bindings: Sequence[Binding]) -> None:
        """Until the end of the transaction nobody else locks their workload affinity groups."""
        ...

    async def lock(self, namespace: str, name: str) -> StoredBinding | None:
        """The binding, held until the end of the transaction."""
        ...

    async def page(
        self, namespace: str, after: tuple[str, str] | None, limit: int
    ) -> Sequence[Binding]:
        """By ascending (namespace, name), of one namespace unless it is empty."""
        ...

    async def delete(self, binding_id: int) -> None: ...

    async def find(
        self, keys: Collection[tuple[str, str]]
    ) -> Mapping[tuple[str, str], StoredBinding]:
        """Those of the (namespace, name) that exist."""
        ...

    async def lock_all(
        self, keys: Collection[tuple[str, str]]
    ) -> Mapping[tuple[str, str], StoredBinding]:
        """``find``, held until the end of the transaction, taken in ascending order of the keys."""
        ...

    async def holding(self, cluster: str, limit: int) -> Sequence[tuple[str, str]]:
        """(namespace, name) of the first bindings, by name, with replicas in a cluster."""
        ...


class Decisions(Protocol):
    """Decisions with their traces; they outlive their bindings."""

    async def add_all(self, decisions: Sequence[NewDecision]) -> Settled:
        """Keeps decisions, and their bindings as they are then.

        New bindings whose names are taken are left out with their decisions.
        """
        ...

    async def get(self, decision_id: str) -> DecisionRecord | None:
        """With the trace and the node plans; None also for what cannot be an id."""
        ...

    async def find(self, decision_ids: Collection[str]) -> Mapping[str, DecisionRecord]:
        """Those that are there, read together."""
        ...

    async def put_node_plans(self, plans: Mapping[str, Sequence[NodePlan]]) -> None:
        """Keeps agents' answers by decision; a cluster's later answer replaces its earlier one.

        Answers to decisions that are not there any more are left out.
        """
        ...

    async def prune(self, older_than_seconds: float, limit: int) -> int:
        """Forgets old ones, but for the newest of each binding that is there; how many."""
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


class Transaction(Protocol):
    """Everything done through one of these is committed together, or not at all."""

    @property
    def credentials(self) -> Credentials: ...

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
    def duties(self) -> StoredDuties: ...

    @property
    def presences(self) -> StoredPresences: ...

    @property
    def replicas(self) -> StoredReplicas: ...

    @property
    def histories(self) -> Histories: ...


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
