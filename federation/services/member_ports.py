"""The store of members, credentials and reports, and connected agents, as use cases need them.

Protocols only. Must not name a technology.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import NamedTuple, Protocol

from federation.model.cluster import CapacityReport, Cluster
from federation.model.errors import FederationError
from federation.model.node_plans import NodePlan, PlaceOrder
from federation.services.agent_values import AgentFacts
from federation.services.values import ExactQuestion, PrincipalKind


class StoredReport(NamedTuple):
    """The newest report of a cluster, when it was received (Unix seconds), and the ledger version
    that it made, 0 where an older release stored it.
    """

    report: CapacityReport
    received_at: float
    ledger_version: int = 0


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
    report: StoredReport | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredCredential:
    """A credential without its secret. ``cluster`` is empty for all but agents."""

    id: str
    kind: PrincipalKind
    cluster: str
    secret_hash: bytes
    expires_at: float | None


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
    """The result of a report: ``received_at`` is None when it was not newer than the stored one.

    Unknown clusters have ``known`` False. ``ledger_version`` is the one that the report made.
    """

    cluster: str
    known: bool
    received_at: float | None
    ledger_version: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredJoinToken:
    """A join token without its secret. Times are Unix seconds."""

    id: str
    cluster: str
    created_at: float
    expires_at: float


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

    async def join_tokens(self, after: str, limit: int) -> Sequence[StoredJoinToken]:
        """Return usable join tokens by ascending id, behind ``after``."""
        ...

    async def cancel_join_token(self, token_id: str) -> StoredJoinToken | None:
        """Ends one; None where it may not be used any more."""
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

    async def revoke_admins(self) -> None: ...


class Clusters(Protocol):
    """Member clusters and what their agents say of themselves."""

    async def all(self) -> Sequence[StoredCluster]: ...

    async def find(self, names: Collection[str]) -> Mapping[str, StoredCluster]:
        """Return the existing clusters of these names, without their reports."""
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

    async def get(self, names: Collection[str]) -> Mapping[str, StoredReport]:
        """Return the newest report of each cluster that has one."""
        ...


class DatabaseTime(NamedTuple):
    """The time by the database's clock, in microseconds since 1970, and its day in UTC."""

    at: int
    day: date


class KeptRound(NamedTuple):
    """A round of reports that were kept, and the day of its pictures."""

    day: date
    body: bytes


class KeptReports(Protocol):
    """Reports and promises, minute by minute; times are in microseconds since 1970."""

    async def now(self) -> DatabaseTime: ...

    async def add(self, day: date, body: bytes, pictures: Mapping[bytes, bytes]) -> None:
        """Keeps a round, and those pictures that are not kept yet on that day."""
        ...

    async def rounds(self, since: int, until: int) -> Sequence[KeptRound]:
        """Return rounds after one time and no later than another one, the newest first."""
        ...

    async def size(self, names: Collection[bytes], days: Collection[date]) -> int:
        """Count the bytes of the pictures of these names and days."""
        ...

    async def pictures(
        self, names: Collection[bytes], days: Collection[date]
    ) -> Mapping[bytes, bytes]:
        """Return the pictures of these names and days."""
        ...

    async def prune(self, older_than_seconds: float) -> int:
        """Forgets the oldest day that is so long over; 0: there was none.

        Raises Conflict where that would hold others up: it is to be tried again.
        """
        ...


class AgentGateway(Protocol):
    """The agents that can be asked now: those that are connected and see nodes."""

    def sees_nodes(self, cluster: str) -> bool: ...

    async def place(self, cluster: str, order: PlaceOrder, timeout_seconds: float) -> NodePlan:
        """The agent's answer. Raises Unavailable (not connected, gone) or DeadlineMissed."""
        ...


class AgentEstimates(Protocol):
    """The agents that can look up now what fits on their nodes."""

    def sees_nodes(self, cluster: str) -> bool: ...

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

    def refresh(self, cluster: str, reason: str) -> bool:
        """Ask a cluster's agent for a whole report now; whether its stream is here."""
        ...
