"""An attempt at a decision about a binding, and the state that each stage adds to it.

Must not decide anything. Belongs to one event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from functools import cached_property
from itertools import chain
from typing import Self, TypeAlias

from federation.model.arrays import IntArray
from federation.model.errors import FederationError
from federation.model.namespace_quotas import NamespaceQuota
from federation.model.placement import Binding, BindingName, EvictionTask
from federation.model.reason_codes import ReasonCode
from federation.model.reasons import NO_REASON, Reason, Text
from federation.model.waiting import Nomination, Wait
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
from federation.services.scheduling.decision_ids import DECISION_IDS
from federation.services.scheduling.shares import ReservationRequest, Reserved
from federation.services.scheduling.stated_moves import PlannedMove, StatedMove, UndoneEviction
from federation.services.values import DecisionRecord, IdempotencyKey, Scheduled, Verdict

# An attempt that lost so many races locks all its clusters before it decides: nobody can win
# against it then.
MAX_TRIES_WITHOUT_LOCKS = 3

PLACED = frozenset({Outcome.SCHEDULED, Outcome.PARTIAL})

# The kind of a conflict, and its subject.
Mark: TypeAlias = tuple[str, ...]


class AttemptCause(Enum):
    """The cause of an attempt."""

    # A caller states the binding.
    STATED = auto()
    # The queue tries the stored binding again, which waits.
    RETRIED = auto()
    # The stored binding is divided anew, as if nothing had to stay.
    RESCHEDULED = auto()
    # The stored binding leaves clusters.
    MOVED = auto()


class AttemptRole(Enum):
    """The part that an attempt has in its batch."""

    ALONE = auto()
    # It joins a gang, and is decided with all members that have no place yet.
    JOINING = auto()
    # It waits in the gang that others join, and is decided with these.
    COMPANION = auto()
    # It found no room, and may take some from bindings of lower priority.
    PREEMPTING = auto()
    # It loses replicas to a preempting one.
    VICTIM = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class EarmarkedBindings:
    """Waiting bindings that room is kept for, each with its profile.

    They are ``earmarked``, or ``first`` in the queue of a strict profile.
    """

    earmarked: Sequence[tuple[StoredBinding, Profile]] = ()
    first: Sequence[tuple[StoredBinding, Profile]] = ()


NO_EARMARKED = EarmarkedBindings()
NO_HOLDING, NO_PEERS = Holding(), Peers()


@dataclass(kw_only=True, eq=False)
class QuotaRoom:
    """The amounts that a namespace held when it was read, and holds after decisions since."""

    quota: NamespaceQuota
    read: Mapping[str, int]
    used: Mapping[str, int]


@dataclass(slots=True, kw_only=True, eq=False)
class StoredFacts:
    """The facts about a binding that the store had when the attempt was read.

    ``stored`` is None for a new binding. ``newest`` is its last decision, read only if the
    candidate asks for nothing new. ``quota_held`` is what it holds of the ``quota`` of its
    namespace. This control plane may not have read the journal entry of ``holding`` yet.
    """

    stored: StoredBinding | None = None
    holding: Holding = NO_HOLDING
    peers: Peers = NO_PEERS
    newest: PackedDecision | None = None
    earmarks: EarmarkedBindings = NO_EARMARKED
    quota: QuotaRoom | None = None
    quota_held: Mapping[str, int] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True, eq=False)
class GangState:
    """The gang that an attempt joins.

    ``roster`` has all members, on the attempt that stands for all of them. ``gate`` tells what the
    gang waits for. ``companions`` are attempts at the members that wait.
    """

    roster: tuple[GangMember, ...] | None = None
    gate: Reason = NO_REASON
    companions: tuple[Attempt, ...] = ()


@dataclass(slots=True, kw_only=True, eq=False)
class Result:
    """The result of deciding: what is written if it is committed.

    ``evictions`` are the binding's tasks if it is placed. ``standing`` is the newest decision if
    that still says the same. ``unseen_in`` are clusters whose reports do not show all promises
    yet, for a binding without room. ``seen`` is the room for a binding that was tried again in
    vain. ``awaits`` names the pods that have to leave first.
    """

    verdict: Verdict = field(init=False)
    evictions: tuple[EvictionTask, ...] | None = None
    # Whether a second look granted some of its shares.
    is_refined: bool = False
    requested: ReservationRequest | None = None
    is_beyond_quota: bool = False
    reserved: Reserved | None = None
    standing: DecisionRecord | None = None
    unseen_in: tuple[str, ...] = ()
    seen: Seen = NOTHING
    awaits: Reason = NO_REASON
    # The replicas that it takes from others, by their namespaces, and the limits for that; room
    # that is kept for it until they have left.
    losses: Mapping[str, int] = field(default_factory=dict)
    limits: PreemptionLimits | None = None
    nominated: Nomination | None = None
    # The state that plugins were shown, and the plugins that keep something for the decision.
    shown: tuple[CycleState, IntArray] | None = None
    keeping: list[Reserve] = field(default_factory=list)


def _unanswered() -> asyncio.Future[Scheduled]:
    return asyncio.get_running_loop().create_future()


@dataclass(kw_only=True, eq=False)
class Attempt:
    """An attempt to decide about a binding, from the queue to its answer.

    Reading adds ``facts``, deciding adds ``result`` or ``error``, committing adds ``scheduled``.
    An attempt that is tried again goes through all stages again.
    """

    # Asked. ``place`` is its place in a request of several bindings, from 1 (0: it is alone).
    # Attempts of one ``atomic`` batch have the same id there: all are placed, or none.
    binding: Binding
    cause: AttemptCause = AttemptCause.STATED
    adopt: bool = False
    wait: bool = True
    once: IdempotencyKey | None = None
    place: int = 0
    atomic: str = ""
    rescheduled_at: float | None = None
    stated: StatedMove | None = None
    answer: asyncio.Future[Scheduled] = field(default_factory=_unanswered)
    # The caller's call and trace, None without one.
    call: AuditedCall | None = field(default_factory=current_call)
    trace: object | None = field(default_factory=spans.current)

    # Queued. The urgency of an atomic batch is that of its most urgent member.
    role: AttemptRole = AttemptRole.ALONE
    urgency: int = 0
    turn: int = 0
    tries: int = 0
    has_lost_connection: bool = False
    has_waited_for_reports: bool = False

    # Read. ``candidate`` is the binding as it is to be decided.
    id: str = field(default_factory=DECISION_IDS.new)
    profile: Profile = DEFAULT_PROFILE
    candidate: Binding = field(init=False)
    facts: StoredFacts = field(default_factory=StoredFacts)
    gang: GangState = field(default_factory=GangState)

    # Decided.
    result: Result = field(default_factory=Result)
    error: FederationError | None = None

    # Written. ``waiting`` is the binding as it is stored if it begins to wait.
    scheduled: Scheduled = field(init=False)
    waiting: StoredBinding | None = None

    def __post_init__(self) -> None:
        self.candidate = self.binding
        # The share that is taken back still runs.
        self.adopt = self.adopt or isinstance(self.stated, UndoneEviction)

    def trial(self) -> Self:
        """Return a copy whose result is its own."""
        trial = copy(self)
        trial.result = copy(self.result)
        return trial

    @property
    def key(self) -> BindingName:
        return self.binding.namespace, self.binding.name

    @cached_property
    def marks(self) -> frozenset[Mark]:
        """The marks that attempts must not share in one batch.

        They are the binding, the idempotency key, the gang, and groups of workloads that are
        placed together or apart.
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
    def is_retried(self) -> bool:
        return self.cause is AttemptCause.RETRIED

    @property
    def is_moved(self) -> bool:
        return self.cause is AttemptCause.MOVED

    @property
    def is_joining(self) -> bool:
        return self.role is AttemptRole.JOINING

    @property
    def is_companion(self) -> bool:
        return self.role is AttemptRole.COMPANION

    @property
    def is_preempting(self) -> bool:
        return self.role is AttemptRole.PREEMPTING

    @property
    def is_hindered(self) -> bool:
        """Whether others won against it too often."""
        return self.tries >= MAX_TRIES_WITHOUT_LOCKS

    @property
    def joined_gang(self) -> Mark | None:
        """The gang that a caller wants it to join: all such attempts go together."""
        gang = self.binding.gang if self.is_joining and not self.is_retried else None
        return ("gang", self.binding.namespace, gang.name) if gang else None

    @property
    def planned(self) -> PlannedMove | None:
        """The move that a plan states."""
        return self.stated if isinstance(self.stated, PlannedMove) else None

    @property
    def adopts(self) -> bool:
        """Whether nobody but a caller says that it runs in ``candidate.clusters``."""
        former = self.former
        return former is None or self.adopt or former.clusters_are_stated

    @property
    def unpromised(self) -> Sequence[TargetCluster]:
        """The shares of its last decision that nothing is reserved for any more."""
        holding = self.facts.holding
        if self.adopts or self.stated is not None or holding.has_expired:
            return ()
        return [
            target
            for target in self.candidate.clusters
            if target.replicas and target.name not in holding.clusters
        ]

    @property
    def former(self) -> Binding | None:
        """The binding as it is stored."""
        return self.facts.stored.binding if self.facts.stored else None

    @property
    def stored_wait(self) -> Wait | None:
        """The wait of the stored binding, None if it does not wait."""
        return self.facts.stored.wait if self.facts.stored else None

    @property
    def observed_affinity(self) -> str:
        """The affinity group of the stored binding, "" without one."""
        return self.facts.stored.observed_affinity if self.facts.stored else ""

    @property
    def decision(self) -> Decision:
        return self.result.verdict.decision

    @property
    def is_placed(self) -> bool:
        return self.decision.outcome in PLACED

    @property
    def has_progressed(self) -> bool:
        """Whether replicas got a place that had none."""
        return self.is_placed and self.result.standing is None

    @property
    def is_stored(self) -> bool:
        """Whether a new decision is stored.

        A decision that places nothing is not stored if the binding is new and does not wait. Nor
        is it stored if a caller wants all or nothing, or if the outcome of a move was stated.
        """
        is_of_callers = bool(self.atomic) and not self.is_moved
        is_all_or_nothing = is_of_callers or self.stated is not None
        return self.is_placed or (not is_all_or_nothing and bool(self.facts.stored or self.wait))

    @property
    def short_of(self) -> Reason:
        """The scarce resource of what has no place, or the pods that have to leave first."""
        verdict = self.result.verdict
        return self.result.awaits or verdict.short_of or short_of(verdict.decision)

    @property
    def lack(self) -> Reason:
        """The reason that others are given if they are not placed because of this one."""
        if self.error is not None:
            return Reason.of(ReasonCode.ERROR_TEXT, Text(self.error.message))
        return short_of(self.decision)

    @property
    def leaves_waiting(self) -> bool:
        """Whether the binding waits from now on.

        A binding that cannot be moved has a place, and is moved once that is possible.
        """
        stays = self.is_moved and not self.is_placed and not self.stored_wait
        is_whole = self.decision.outcome is Outcome.SCHEDULED
        return self.wait and not is_whole and not stays

    @property
    def decided(self) -> Binding:
        """The binding to store: its evictions, and whether it asks for more than it has.

        Its clusters are as they were before the decision.
        """
        candidate, tasks = self.candidate, self.candidate.eviction_tasks
        if self.is_placed and self.result.evictions is not None:
            tasks = self.result.evictions
        has_changed = bool(candidate.clusters) and not is_settled(self.former, candidate)
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
        return self.error is None and self.result.standing is None and self.is_stored

    @property
    def touched(self) -> Iterable[str]:
        """The clusters whose ledgers it changes."""
        return self.result.reserved.clusters if self.result.reserved else ()

    @property
    def named_clusters(self) -> Iterator[str]:
        """The clusters that the store names for the binding and for its affinity groups.

        There it is, was, holds something, or waits for pods to leave.
        """
        candidate, former, wait = self.candidate, self.former, self.stored_wait
        yield from (target.name for target in candidate.clusters)
        if former is not None and former.clusters is not candidate.clusters:
            yield from (target.name for target in former.clusters)
        yield from (task.from_cluster for task in candidate.eviction_tasks)
        yield from self.facts.holding.clusters
        for names in self.facts.peers.affinity + self.facts.peers.anti_affinity:
            yield from names
        if wait is not None and wait.nominated is not None:
            yield from (victim.cluster for victim in wait.nominated.leaving)

    @property
    def was_placed(self) -> bool:
        """Whether it is answered with a decision that placed it."""
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
    """Return the clusters that the attempts name. One that could not be read names none."""
    readable = (attempt for attempt in attempts if attempt.error is None)
    return frozenset(chain.from_iterable(attempt.named_clusters for attempt in readable))


def marks_of(batch: Iterable[Attempt]) -> frozenset[Mark]:
    return frozenset[Mark]().union(*(attempt.marks for attempt in batch))
