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
        """The plan under the id that it is kept by."""
        ...

    async def get(self, plan_id: int) -> Plan | None: ...

    async def lock(self, plan_id: int) -> Plan | None:
        """Held until the end of the transaction."""
        ...

    async def lock_running(self) -> Plan | None:
        """The plan that runs, None where there is none; no other begins to run until the end of
        the transaction.
        """
        ...

    async def put(self, plan: Plan, steps: Sequence[PlanStep] = ()) -> None:
        """In place of the one that is locked, and of its steps of these numbers."""
        ...

    async def active(self) -> Sequence[Plan]:
        """Those that run, and those of which a step is moving still, by ascending id."""
        ...

    async def page(self, before_id: int | None, limit: int) -> Sequence[Plan]:
        """By descending id, of those below ``before_id``, None: of all; without what they leave."""
        ...

    async def steps(
        self, plan_id: int, *, states: Collection[StepState] = (), after: int = 0, limit: int
    ) -> Sequence[PlanStep]:
        """By ascending number, of those above ``after``; in some states, none: in any."""
        ...

    async def steps_since(self, plan_id: int, version: int, limit: int) -> Sequence[PlanStep]:
        """Those that changed in later versions of the plan, in the order of those."""
        ...

    async def away(self, after: BindingName | None, limit: int) -> Sequence[Binding]:
        """Bindings that are placed, and not in the first of their affinity groups, by ascending
        (namespace, name); without those that only a newer release can read.
        """
        ...

    async def prune(self, older_than_seconds: float, limit: int) -> int:
        """Forgets old plans that do not run; how many."""
        ...


class Clock(Protocol):
    """The time, in Unix seconds."""

    def now(self) -> float: ...


class Timer(Clock, Protocol):
    """A clock by which background loops pause."""

    async def sleep(self, seconds: float) -> None:
        """Return when the clock has moved on by ``seconds``, or a little later."""
        ...


# Told, after the commit, of a cluster whose resource model in force changed.
ModelObserver = Callable[[str], None]


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
        self,
        clusters: Collection[str],
        after: BindingName | None,
        limit: int,
        *,
        is_strict: bool = False,
    ) -> Sequence[Binding]:
        """Bindings that are in one of the clusters, by ascending (namespace, name).

        Without one that only a newer release can read: ``is_strict`` raises NewerBody there.
        """
        ...

    async def evicted(self, after: BindingName | None, limit: int) -> Sequence[Binding]:
        """Bindings with graceful evictions of ours that this release can read, by ascending
        (namespace, name).
        """
        ...

    async def evictions(self) -> int:
        """How many graceful evictions of ours there are."""
        ...

    async def put_evictions(self, tasks: Mapping[int, Sequence[EvictionTask]]) -> None:
        """All that bindings have, by their ids, in place of what they had; they are locked."""
        ...

    async def leave(self, cluster: str, binding_ids: Collection[int]) -> None:
        """Take the cluster out of the placements of these bindings, which are locked."""
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


class CheckedStore(Store, Protocol):
    """A store that knows whether it is of use."""

    async def check(self) -> None:
        """Raise Unavailable, saying why, when the store cannot be used in full."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class NewToken:
    """A token to be kept: whose it is, what it may do and see, where from, and for how long."""

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
        """How many are neither expired nor revoked."""
        ...

    async def find(self, token_id: str) -> StoredToken | None:
        """Expired or revoked as well, until it is forgotten."""
        ...

    async def page(self, after: str, limit: int) -> Sequence[StoredToken]:
        """By ascending id, those that come after ``after``."""
        ...

    async def revoke(self, token_id: str) -> StoredToken | None:
        """Ends it, unless it was revoked before; None where there is none."""
        ...

    async def unrevoked(self, token_ids: Collection[str]) -> Collection[str]:
        """Those of the ids that are there and not revoked."""
        ...

    async def put_uses(self, uses: Mapping[str, TokenUse]) -> None:
        """Keeps the last use of each by id, where it is later than what is kept."""
        ...

    async def prune(self, limit: int) -> int:
        """Forgets those that ended a while ago; how many."""
        ...


class NamespaceQuotas(Protocol):
    """How much namespaces may hold promised, and what they hold; amounts as the model has them."""

    async def put(self, quota: NamespaceQuota) -> None:
        """In place of the one before; one without limits is forgotten."""
        ...

    async def count(self) -> int: ...

    async def page(self, after: str, limit: int) -> Sequence[NamespaceQuota]:
        """By ascending namespace, those that come after ``after``."""
        ...

    async def namespaces(self) -> Collection[str]:
        """Those that have one."""
        ...

    async def version(self) -> str:
        """Another one after every change."""
        ...

    async def find(
        self, namespaces: Collection[str], *, lock: bool = False
    ) -> Mapping[str, NamespaceQuota]:
        """Those of these namespaces; ``lock``: nobody else has them until the transaction ends."""
        ...

    async def used(self, namespaces: Collection[str]) -> Mapping[str, Mapping[str, int]]:
        """What all bindings of each hold."""
        ...

    async def held(
        self, keys: Collection[tuple[str, str]]
    ) -> Mapping[tuple[str, str], Mapping[str, int]]:
        """What each of these bindings holds, where it holds something."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditFilter:
    """Which records; times are Unix seconds, from ``since`` on, before ``until``."""

    since: float | None = None
    until: float | None = None
    credential_id: str = ""


class Audit(Protocol):
    """Records of changes and refusals. They are sealed in the order of a chain, some time later."""

    async def add(self, records: Sequence[AuditRecord]) -> None: ...

    async def page(
        self, wanted: AuditFilter, after: tuple[int, int] | None, limit: int
    ) -> Sequence[AuditRecord]:
        """The newest first, those that come after a time in microseconds and an id."""
        ...

    async def head(self) -> AuditHead: ...

    async def chain(self, after: int, limit: int) -> Sequence[AuditRecord]:
        """By ascending seal, those that come after ``after``."""
        ...

    async def seal(self, limit: int) -> int:
        """Seals the oldest that are not; how many. One transaction at a time does."""
        ...

    async def prune(self, keep_seconds: float, limit: int) -> int:
        """Forgets sealed ones that are older, the first in the chain first; how many."""
        ...
