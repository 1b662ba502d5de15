"""What the use cases need from below: storage in transactions, and the time.

Protocols only. Must not name a technology.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from federation.failover.breaker import Breaker
from federation.model.placement import Binding, BindingName, EvictionTask
from federation.plans.plan import Plan, PlanStep, StepState
from federation.services.access_ports import AccessTokens, Audit, NamespaceQuotas
from federation.services.binding_ports import Bindings
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
from federation.services.waiting_ports import Waits


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
