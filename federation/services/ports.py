"""The store as a whole, its transactions, plans, failover and access, and the time.

Protocols only. Must not name a technology.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from federation.failover.breaker import Breaker
from federation.model.access import NO_LIMITS, CallerLimits, Role, Scope
from federation.model.audit import AuditHead, AuditRecord
from federation.model.namespace_quotas import NamespaceQuota
from federation.model.placement import Binding, BindingName, EvictionTask
from federation.plans.plan import Plan, PlanStep, StepState
from federation.services.binding_ports import Bindings, Waits
from federation.services.decision_ports import Decisions, StoredPreviews
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
from federation.services.member_ports import Clusters, Credentials, KeptReports, Reports


class StoredPlans(Protocol):
    """Plans and their steps."""

    async def add(self, plan: Plan, steps: Sequence[PlanStep]) -> Plan:
        """Store a plan; return it with its id."""
        ...

    async def get(self, plan_id: int) -> Plan | None: ...

    async def lock(self, plan_id: int) -> Plan | None:
        """Held until the end of the transaction."""
        ...

    async def lock_running(self) -> Plan | None:
        """Return the running plan, if any; until the end of the transaction no other begins."""
        ...

    async def put(self, plan: Plan, steps: Sequence[PlanStep] = ()) -> None:
        """Replace the plan that is locked, and its steps of these numbers."""
        ...

    async def active(self) -> Sequence[Plan]:
        """Return plans that run, or have moving steps, by ascending id."""
        ...

    async def page(self, before_id: int | None, limit: int) -> Sequence[Plan]:
        """Return plans by descending id, below ``before_id`` if given, without unfixed bindings."""
        ...

    async def steps(
        self, plan_id: int, *, states: Collection[StepState] = (), after: int = 0, limit: int
    ) -> Sequence[PlanStep]:
        """Return steps by ascending number above ``after``; in some states, none: in any."""
        ...

    async def steps_since(self, plan_id: int, version: int, limit: int) -> Sequence[PlanStep]:
        """Return the steps that changed in later versions of the plan, in their order."""
        ...

    async def away(self, after: BindingName | None, limit: int) -> Sequence[Binding]:
        """Return placed bindings that are not in the first of their affinity groups.

        They come by ascending (namespace, name), without those that only a newer release can read.
        """
        ...

    async def prune(self, older_than_seconds: float, limit: int) -> int:
        """Forget old plans that do not run; return how many."""
        ...


class Clock(Protocol):
    """The time, in Unix seconds."""

    def now(self) -> float: ...


class Timer(Clock, Protocol):
    """A clock by which background loops pause."""

    async def sleep(self, seconds: float) -> None:
        """Return when the clock has moved on by ``seconds``, or a little later."""
        ...


# It is called, after the commit, with a cluster whose resource model in force changed.
ModelObserver = Callable[[str], None]


class StoredFailover(Protocol):
    """The breaker of failover, bindings that have to move, and graceful evictions."""

    async def get(self) -> Breaker: ...

    async def lock(self) -> Breaker:
        """Held until the end of the transaction."""
        ...

    async def put(self, breaker: Breaker) -> None:
        """Replace the breaker that is locked."""
        ...

    async def in_clusters(
        self, clusters: Collection[str], after: BindingName | None, limit: int
    ) -> Sequence[Binding]:
        """Return readable bindings that are in a cluster, by ascending (namespace, name)."""
        ...

    async def evicted(self, after: BindingName | None, limit: int) -> Sequence[Binding]:
        """Return readable bindings with evictions of ours, by ascending (namespace, name)."""
        ...

    async def evictions(self) -> int:
        """Count the graceful evictions of ours."""
        ...

    async def put_evictions(self, tasks: Mapping[int, Sequence[EvictionTask]]) -> None:
        """Replace all evictions of locked bindings, by their ids."""
        ...

    async def leave(self, cluster: str, binding_ids: Collection[int]) -> None:
        """Take the cluster out of the placements of these bindings, which are locked."""
        ...

    async def replicas(self) -> int:
        """Count the replicas of all bindings in clusters; looks at all of them."""
        ...


class Partitions(Protocol):
    """Partitions of tables by day."""

    async def make(self) -> int:
        """Create those of the days to come; return how many.

        Raises Conflict if others change the tables meanwhile: it is to be tried again.
        """
        ...

    async def days_left(self) -> int:
        """Return the number of days that have partitions, from today on."""
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
    def kept_reports(self) -> KeptReports: ...

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

    @property
    def partitions(self) -> Partitions: ...


# The reason of Unavailable where a connection ended before what was asked on it was committed:
# another one may work at once.
CONNECTION_LOST = "CONNECTION_LOST"


class Store(Protocol):
    """The database. Raises Unavailable when it cannot be reached in time."""

    def transaction(self) -> AbstractAsyncContextManager[Transaction]:
        """Commit when the block ends, and roll back when it raises.

        When the connection is lost while committing, Unavailable says that the outcome is unknown.
        """
        ...

    def reading(self) -> AbstractAsyncContextManager[Transaction]:
        """Read only: every statement by itself, nothing to commit."""
        ...


class CheckedStore(Store, Protocol):
    """A store that can check whether it is usable."""

    async def check(self) -> None:
        """Raise Unavailable, saying why, when the store cannot be used in full."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class NewToken:
    """A token to be stored: its owner, rights, addresses, and lifetime."""

    name: str
    role: Role
    scope: Scope
    networks: tuple[str, ...]
    limits: CallerLimits = NO_LIMITS
    ttl_seconds: int
    created_by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredToken:
    """A token without its secret. Times are Unix seconds; ``is_expired`` by the store's clock."""

    id: str
    name: str
    role: Role
    scope: Scope
    networks: tuple[str, ...]
    limits: CallerLimits
    secret_hash: bytes = field(repr=False)
    created_by: str
    created_at: float
    expires_at: float
    is_expired: bool
    revoked_at: float | None = None
    last_used_at: float | None = None
    last_used_from: str = ""

    @property
    def has_ended(self) -> bool:
        return self.is_expired or self.revoked_at is not None


class TokenUse(NamedTuple):
    """When a token was used last, in Unix seconds, and from which address."""

    at: float
    address: str


class AccessTokens(Protocol):
    """Tokens with roles, as hashes."""

    async def add(self, token_id: str, secret_hash: bytes, token: NewToken) -> StoredToken: ...

    async def count(self) -> int:
        """Count the tokens that are neither expired nor revoked."""
        ...

    async def find(self, token_id: str) -> StoredToken | None:
        """Return a token, even expired or revoked, until it is forgotten."""
        ...

    async def page(self, after: str, limit: int) -> Sequence[StoredToken]:
        """Return tokens by ascending id, behind ``after``."""
        ...

    async def revoke(self, token_id: str) -> StoredToken | None:
        """Revoke a token, unless it was revoked already; None: there is none."""
        ...

    async def unrevoked(self, token_ids: Collection[str]) -> Collection[str]:
        """Return the ids whose tokens exist and are not revoked."""
        ...

    async def put_uses(self, uses: Mapping[str, TokenUse]) -> None:
        """Store the last use of tokens by id, if it is later than the stored one."""
        ...

    async def prune(self, limit: int) -> int:
        """Forget tokens that ended a while ago; return how many."""
        ...


class NamespaceQuotas(Protocol):
    """Quotas of namespaces, and the amounts that they hold, as in the model."""

    async def put(self, quota: NamespaceQuota) -> None:
        """Replace the quota of a namespace; one without limits is deleted."""
        ...

    async def count(self) -> int: ...

    async def page(self, after: str, limit: int) -> Sequence[NamespaceQuota]:
        """Return quotas by ascending namespace, behind ``after``."""
        ...

    async def namespaces(self) -> Collection[str]:
        """Return the namespaces that have a quota."""
        ...

    async def version(self) -> str:
        """Return a version, which is another one after every change."""
        ...

    async def find(
        self, namespaces: Collection[str], *, lock: bool = False
    ) -> Mapping[str, NamespaceQuota]:
        """Return the quotas of namespaces; ``lock`` holds them until the transaction ends."""
        ...

    async def used(self, namespaces: Collection[str]) -> Mapping[str, Mapping[str, int]]:
        """Return the amounts that all bindings of namespaces hold."""
        ...

    async def held(
        self, keys: Collection[tuple[str, str]]
    ) -> Mapping[tuple[str, str], Mapping[str, int]]:
        """Return the amounts of these bindings, without empty ones."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditFilter:
    """A filter of records; times are Unix seconds, from ``since`` on, before ``until``."""

    since: float | None = None
    until: float | None = None
    credential_id: str = ""


class Audit(Protocol):
    """Records of changes and refusals. They are sealed in the order of a chain, some time later."""

    async def add(self, records: Sequence[AuditRecord]) -> None: ...

    async def page(
        self, query: AuditFilter, after: tuple[int, int] | None, limit: int
    ) -> Sequence[AuditRecord]:
        """Return records, the newest first, behind a time in microseconds and an id."""
        ...

    async def head(self) -> AuditHead: ...

    async def chain(self, after: int, limit: int) -> Sequence[AuditRecord]:
        """Return sealed records by ascending seal, behind ``after``."""
        ...

    async def seal(self, limit: int) -> int:
        """Seal the oldest unsealed records; return how many. One transaction at a time does."""
        ...

    async def prune(self, keep_seconds: float) -> int:
        """Forget the records of the oldest day that is so long over and sealed; return 1 if so."""
        ...
