"""An attempt at a decision: what is asked, and what every stage adds.

Must not decide anything. Belongs to one event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import TypeAlias
from uuid import uuid4

from federation.failover.evictions import taken_back
from federation.model.arrays import IntArray
from federation.model.errors import FederationError, PreconditionFailed
from federation.model.estimate import Estimates
from federation.model.namespace_quotas import NamespaceQuota
from federation.model.placement import Binding, BindingName, EvictionTask
from federation.model.reason_codes import ReasonCode
from federation.model.reasons import NO_REASON, ClusterName, Reason, Text
from federation.model.waiting import Nomination
from federation.model.workload import TargetCluster
from federation.runtime import spans
from federation.runtime.futures import fail
from federation.scheduler.decision import Decision, Outcome
from federation.scheduler.plugins.profile import DEFAULT_PROFILE, Profile, Reserve
from federation.scheduler.scarcity import short_of
from federation.scheduler.state import CycleState
from federation.scheduler.triggers import is_settled
from federation.scheduler.waiting.gangs import GangMember
from federation.scheduler.waiting.queue import NOTHING, Seen
from federation.services.audited_calls import AuditedCall, current_call
from federation.services.binding_ports import Peers, StoredBinding
from federation.services.decision_ports import PackedDecision
from federation.services.journal_ports import Holding, PreemptionLimits
from federation.services.scheduling.planned import PlannedMove, StatedMove
from federation.services.scheduling.retaking import Retaking
from federation.services.scheduling.shares import ReservationRequest, Reserved
from federation.services.values import DecisionRecord, Once, Scheduled, Verdict


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class UndoneEviction:
    """The binding has the share of a task again in place of its replacement, or stays as it is."""

    task: EvictionTask

    @property
    def why(self) -> Mapping[str, str]:
        """It leaves no cluster."""
        return {}

    @property
    def triggers(self) -> tuple[Reason, ...]:
        cluster = ClusterName(self.task.from_cluster)
        return (Reason.of(ReasonCode.EVICTION_UNDONE, cluster),)

    def candidate(self, binding: Binding) -> Binding:
        """The binding as it is to be decided. Raises PreconditionFailed once the task is over."""
        if self.task not in binding.eviction_tasks:
            text = f"its eviction from {self.task.from_cluster} is over"
            raise PreconditionFailed(text, reason="NOT_FEASIBLE")
        return taken_back(binding, self.task)

    def whole(self, binding: Binding) -> Binding:
        """What the cycle decides."""
        return binding

    def within(self, available: Estimates, positions: Mapping[str, int]) -> Estimates:  # noqa: ARG002 - others look at positions
        """What of that the binding may use."""
        return available

    def check(self, binding: Binding, decision: Decision) -> None:
        """Raises PreconditionFailed where the share that runs would not stay, unless the placement
        leaves its cluster out by now: people want it gone.
        """
        name = self.task.from_cluster
        wanted = {each.name: each.replicas for each in binding.clusters}.get(name)
        after = {each.name: each.replicas for each in decision.clusters}.get(name, -1)
        if wanted is not None and after < wanted and not _is_left_out(name, decision):
            text = f"it would not have its share in {name} again"
            raise PreconditionFailed(text, reason="NOT_FEASIBLE")

    def evictions(
        self,
        before: Binding,
        placed: Iterable[TargetCluster],  # noqa: ARG002 - others look at these
        now: float,  # noqa: ARG002 - no task is made
    ) -> tuple[EvictionTask, ...]:
        """The tasks of the binding once it is placed there."""
        return tuple(task for task in before.eviction_tasks if task != self.task)


def _is_left_out(name: str, decision: Decision) -> bool:
    """Whether the placement does not allow the cluster, in any affinity group."""
    trace = decision.trace
    if name not in trace.clusters:
        return False
    number = int(trace.filtering.refusal_c[trace.clusters.index(name)])
    return number >= 0 and trace.filtering.refusals[number].filter == "ClusterAffinity"


# After so many tries a request takes all locks first: then nobody can win against it.
TRIES_WITHOUT_LOCKS = 3

PLACED = frozenset({Outcome.SCHEDULED, Outcome.PARTIAL})

# Its kind, and which one.
Mark: TypeAlias = tuple[str, ...]


def _unanswered() -> asyncio.Future[Scheduled]:
    return asyncio.get_running_loop().create_future()


@dataclass(frozen=True, slots=True, kw_only=True)
class RoomClaims:
    """What is kept for bindings that wait, each with its profile: for ``earmarked`` ones, and for
    those that are ``first`` in strict profiles.
    """

    earmarked: Sequence[tuple[StoredBinding, Profile]] = ()
    first: Sequence[tuple[StoredBinding, Profile]] = ()


NO_CLAIMS = RoomClaims()
NO_HOLDING, NO_PEERS = Holding(), Peers()


@dataclass(kw_only=True, eq=False)
class QuotaRoom:
    """What a namespace held when it was read, and holds with what was decided since."""

    quota: NamespaceQuota
    read: Mapping[str, int]
    used: Mapping[str, int]


@dataclass(kw_only=True, eq=False)
class Attempt:
    """The attempt to decide about a binding; every stage adds what it finds out.

    It is asked with ``binding`` and all that stands before ``answer``, and answered with that.
    Reading adds what the store knows; deciding adds ``verdict`` or ``error``; committing adds
    ``scheduled``. One that is tried again goes through all stages again.
    """

    # Asked.
    binding: Binding
    adopt: bool = False
    wait: bool = True
    once: Once | None = None
    # Among those of the same request, from 1; 0: it is alone.
    place: int = 0
    # Those of one atomic batch have the same: all of them are placed, or none. "": of no such one.
    atomic: str = ""
    # The binding waits, and is decided as it is stored: what is asked for is not news.
    again: bool = False
    # The same of one that is to be divided anew, since then (Unix seconds).
    rescheduled_at: float | None = None
    # Whether others are to make room where it finds none, or it is one of those that make some.
    is_preempting: bool = False
    is_victim: bool = False
    # Whether it was to be refused, and waited for fresh reports first.
    has_waited_for_reports: bool = False
    # Whether it is decided with its gang, or is one of those that are decided with it.
    is_joining: bool = False
    is_companion: bool = False
    # The same of one that has to leave clusters; with an eviction to take back: that is to be where
    # it was before. Where it cannot be, nothing is stored.
    is_moved: bool = False
    takes_back: EvictionTask | None = None
    # The same of one that a plan moves, or of which replicas run nowhere.
    planned: PlannedMove | None = None
    retaking: Retaking | None = None
    answer: asyncio.Future[Scheduled] = field(default_factory=_unanswered)
    # Asked by: None where nobody called for it.
    call: AuditedCall | None = field(default_factory=current_call)
    # Within which span; None where nobody traces it.
    trace: object | None = field(default_factory=spans.current)
    # Queued: an atomic batch is as urgent as its most urgent one.
    urgency: int = 0
    turn: int = 0
    tries: int = 0
    has_lost_connection: bool = False
    # Read: the binding as it is to be decided, as it is stored (None: new), and where it holds
    # something by the store: this control plane may not have heard of it yet. ``newest`` is the
    # last decision, read only where the candidate says nothing new.
    id: str = field(default_factory=lambda: str(uuid4()))
    profile: Profile = DEFAULT_PROFILE
    candidate: Binding = field(init=False)
    known: StoredBinding | None = None
    holding: Holding = NO_HOLDING
    peers: Peers = NO_PEERS
    # Who else is of the gang that it joins, and what that waits for; then who is placed with it.
    roster: tuple[GangMember, ...] | None = None
    gate: Reason = NO_REASON
    companions: tuple[Attempt, ...] = ()
    newest: PackedDecision | None = None
    claims: RoomClaims = NO_CLAIMS
    # Where its namespace has a quota, and what it holds of that.
    quota: QuotaRoom | None = None
    held: Mapping[str, int] = field(default_factory=dict)
    # Decided: ``evictions`` are the binding's where the decision places it; ``standing`` is the
    # newest decision where it says the same and is held still.
    verdict: Verdict = field(init=False)
    evictions: tuple[EvictionTask, ...] | None = None
    # Whether a second look granted some of its shares.
    is_refined: bool = False
    requested: ReservationRequest | None = None
    is_beyond_quota: bool = False
    reserved: Reserved | None = None
    standing: DecisionRecord | None = None
    # Of one that finds no room: clusters where reports do not show yet all that is promised.
    unseen_in: tuple[str, ...] = ()
    # Of one that was tried again and refused: what there was for it.
    seen: Seen = NOTHING
    # Replicas that it takes from others, by their namespaces, and how many may be taken; room that
    # is kept for it until they have left; and who has not left yet, where that was so before.
    losses: Mapping[str, int] = field(default_factory=dict)
    limits: PreemptionLimits | None = None
    nominated: Nomination | None = None
    awaits: Reason = NO_REASON
    # What plugins were shown of the decision, and those that keep something for it.
    shown: tuple[CycleState, IntArray] | None = None
    kept: list[Reserve] = field(default_factory=list)
    error: FederationError | None = None
    # Written; and as it is stored, where it did not wait before and does.
    scheduled: Scheduled = field(init=False)
    waiting: StoredBinding | None = None

    def __post_init__(self) -> None:
        self.candidate = self.binding
        # The share that is taken back runs still.
        self.adopt = self.adopt or self.takes_back is not None

    @property
    def key(self) -> BindingName:
        return self.binding.namespace, self.binding.name

    @cached_property
    def marks(self) -> frozenset[Mark]:
        """Attempts that share one must see what came of each other: the binding, the idempotency
        key, a gang, a group of workloads that go together or apart.
        """
        binding, placement = self.binding, self.binding.placement
        marks: set[Mark] = {("binding", *self.key)}
        if self.once is not None:
            marks.add(("once", self.once.caller, self.once.key))
        if binding.gang is not None:
            marks.add(("gang", binding.namespace, binding.gang.name))
        for label in (placement.workload_affinity_key, placement.workload_anti_affinity_key):
            if label and label in binding.labels:
                marks.add(("group", binding.namespace, label, binding.labels[label]))
        return frozenset(marks)

    @property
    def joined_gang(self) -> Mark | None:
        """The gang that it is asked to join: all that are go together."""
        gang = self.binding.gang if self.is_joining and not self.again else None
        return ("gang", self.binding.namespace, gang.name) if gang else None

    @property
    def stated(self) -> StatedMove | None:
        """What leaves where, if somebody said so."""
        if self.takes_back is not None:
            return UndoneEviction(task=self.takes_back)
        return self.planned or self.retaking

    @property
    def is_hindered(self) -> bool:
        """Whether others kept winning against it."""
        return self.tries >= TRIES_WITHOUT_LOCKS

    @property
    def adopts(self) -> bool:
        """Whether nobody but a caller says that it runs where ``candidate.clusters`` are."""
        return self.known is None or self.adopt or self.known.binding.clusters_are_stated

    @property
    def unpromised(self) -> Sequence[TargetCluster]:
        """The shares that it was placed with and for which nothing is held any more."""
        if self.adopts or self.stated is not None or self.holding.has_expired:
            return ()
        held = self.holding.clusters
        return [each for each in self.candidate.clusters if each.replicas and each.name not in held]

    @property
    def is_placed(self) -> bool:
        return self.verdict.decision.outcome in PLACED

    @property
    def has_progressed(self) -> bool:
        """Whether replicas have a place that had none."""
        return self.is_placed and self.standing is None

    @property
    def is_stored(self) -> bool:
        """Whether a new decision is kept: not one about a binding that is nowhere and does not
        want to wait, nor one of an atomic batch of callers that was not placed, nor one that does
        not take an eviction back, or does not move as planned.
        """
        is_of_callers = bool(self.atomic) and not self.is_moved
        is_all_or_nothing = is_of_callers or self.stated is not None
        return self.is_placed or (not is_all_or_nothing and bool(self.known or self.wait))

    @property
    def short_of(self) -> Reason:
        """What there is too little of for what has no place, or who has to leave first."""
        return self.awaits or self.verdict.short_of or short_of(self.verdict.decision)

    @property
    def lack(self) -> Reason:
        """What others are told that are not placed because of this one."""
        if self.error is not None:
            return Reason.of(ReasonCode.ERROR_TEXT, Text(self.error.message))
        return short_of(self.verdict.decision)

    @property
    def leaves_waiting(self) -> bool:
        """Whether the binding waits from now on for what has no place. One that cannot be moved
        has a place, and is moved once it can be.
        """
        stays = self.is_moved and not self.is_placed and not (self.known and self.known.wait)
        is_whole = self.verdict.decision.outcome is Outcome.SCHEDULED
        return self.wait and not is_whole and not stays

    @property
    def decided(self) -> Binding:
        """The binding with the evictions that the decision leaves it, and whether it asks for more
        than that; its clusters are as before the decision.
        """
        candidate, tasks = self.candidate, self.candidate.eviction_tasks
        if self.is_placed and self.evictions is not None:
            tasks = self.evictions
        before = self.known.binding if self.known else None
        has_changed = bool(candidate.clusters) and not is_settled(before, candidate)
        is_unsettled = has_changed and not self.is_placed
        is_stated = bool(candidate.clusters) and self.adopts and not self.is_placed
        current = candidate.eviction_tasks, candidate.is_unsettled, candidate.clusters_are_stated
        if (tasks, is_unsettled, is_stated) == current:
            return candidate
        return replace(
            candidate,
            eviction_tasks=tasks,
            is_unsettled=is_unsettled,
            clusters_are_stated=is_stated,
        )

    @property
    def is_to_write(self) -> bool:
        return self.error is None and self.standing is None and self.is_stored

    @property
    def touched(self) -> Iterable[str]:
        """The clusters whose ledgers it changes."""
        return self.reserved.clusters if self.reserved else ()

    @property
    def named_clusters(self) -> Iterator[str]:
        """The clusters where the store says that it is, was, holds something or waits for others to
        leave, with those of its affinity groups.
        """
        candidate, known = self.candidate, self.known
        yield from (target.name for target in candidate.clusters)
        if known is not None and known.binding.clusters is not candidate.clusters:
            yield from (target.name for target in known.binding.clusters)
        yield from (task.from_cluster for task in candidate.eviction_tasks)
        yield from self.holding.clusters
        for names in self.peers.affinity + self.peers.anti_affinity:
            yield from names
        wait = known.wait if known else None
        if wait is not None and wait.nominated is not None:
            yield from (each.cluster for each in wait.nominated.leaving)

    @property
    def was_placed(self) -> bool:
        """Whether it is answered, with a decision that placed it."""
        answer = self.answer
        if not answer.done() or answer.cancelled() or answer.exception():
            return False
        return answer.result().record.decision.outcome in PLACED

    def fail(self, error: Exception) -> None:
        fail(self.answer, error)

    def succeed(self, scheduled: Scheduled) -> None:
        if not self.answer.done():
            self.answer.set_result(scheduled)


def named_clusters(attempts: Iterable[Attempt]) -> frozenset[str]:
    """The clusters that one of them names; one that could not be read names none."""
    readable = (each for each in attempts if each.error is None)
    return frozenset(chain.from_iterable(each.named_clusters for each in readable))


def marks_of(batch: Iterable[Attempt]) -> frozenset[Mark]:
    return frozenset[Mark]().union(*(attempt.marks for attempt in batch))
