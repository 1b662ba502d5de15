"""A plan, its steps, and what becomes of them.

Must not move anything: it says what may follow.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from federation.model.errors import PreconditionFailed
from federation.model.placement import Binding, BindingName, binding_key
from federation.model.workload import TargetCluster

# An annotation, or a label, of a binding that no plan may move.
DO_NOT_MOVE: Final = "fedsched.io/do-not-move"


# What a gain is of.
REPLICAS: Final = "replicas"
CLUSTERS: Final = "clusters"


class PlanKind(StrEnum):
    """DRAIN: nothing is left in some clusters. FAILBACK: bindings go back to affinity groups that
    they prefer. BALANCE: no cluster is much fuller than the others. CONSOLIDATE: as many clusters
    as can be are empty. UNSCHEDULABLE: what has no room gets some.
    """

    DRAIN = "drain"
    FAILBACK = "failback"
    BALANCE = "balance"
    CONSOLIDATE = "consolidate"
    UNSCHEDULABLE = "unschedulable"


class PlanState(StrEnum):
    """RUNNING from its approval on; DONE and STOPPED are for good."""

    DRAFT = "draft"
    RUNNING = "running"
    DONE = "done"
    STOPPED = "stopped"


class StepState(StrEnum):
    """MOVING: room elsewhere is promised, and the old share is there until that is used.

    SKIPPED: it could not be begun any more; FAILED: what was to replace the share did not run.
    """

    PENDING = "pending"
    MOVING = "moving"
    DONE = "done"
    SKIPPED = "skipped"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanStep:
    """One binding goes from ``before`` to ``after``, ``number`` from 1 on.

    ``leaves`` are the clusters where it is no more then, and ``leaves_group`` the affinity group
    that it leaves for one that it prefers, "" where it leaves none. Times are Unix seconds;
    ``message`` says why a step ended as it did, and ``version`` in which version of the plan it
    last changed.
    """

    number: int
    namespace: str
    name: str
    before: tuple[TargetCluster, ...]
    after: tuple[TargetCluster, ...]
    reason: str
    state: StepState = StepState.PENDING
    message: str = ""
    leaves_group: str = ""
    began_at: float | None = None
    ended_at: float | None = None
    version: int = 1

    @property
    def binding(self) -> BindingName:
        return self.namespace, self.name

    @property
    def key(self) -> str:
        return binding_key(self.namespace, self.name)

    @property
    def leaves(self) -> tuple[TargetCluster, ...]:
        stays = {target.name for target in self.after}
        return tuple(target for target in self.before if target.name not in stays)

    @property
    def touches(self) -> frozenset[str]:
        """The clusters that it leaves, and those that get more by it."""
        before = {target.name: target.replicas for target in self.before}
        gets = {each.name for each in self.after if each.replicas > before.get(each.name, 0)}
        return frozenset(gets.union(target.name for target in self.leaves))

    @property
    def replicas(self) -> int:
        """How many it takes away from clusters."""
        return sum(target.replicas for target in self.leaves)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unfixed:
    """A binding that the plan leaves where it is, and why."""

    namespace: str
    name: str
    replicas: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """Of what is ``wanted`` the plan does ``moved``; more than ``bound`` could not be by any.

    ``unit`` says of what: replicas, clusters, or the resource that is evened out, in base units.
    """

    wanted: int
    moved: int
    bound: int
    unit: str = REPLICAS

    @property
    def gap_percent(self) -> float:
        """How far it may be from the best possible plan, in percent of that."""
        return (self.bound - self.moved) * 100 / self.bound if self.bound else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanLimits:
    """What a plan may do: how many steps it may have, how many of them may be moving at once, in
    all and out of or into one cluster (0: as many), and how many percent of a binding's replicas
    it may move.

    Of bindings only those with the labels of ``selector`` move. ``headroom_percent`` of each
    cluster stays free where others are emptied into it; ``tolerance_percent`` of a cluster it may
    be fuller than all are together.
    """

    moves_at_once: int = 10
    moves_per_cluster: int = 0
    most_moves: int = 5000
    moved_percent: int = 100
    selector: Mapping[str, str] = field(default_factory=dict)
    headroom_percent: int = 20
    tolerance_percent: int = 5

    def selects(self, binding: Binding) -> bool:
        return self.selector.items() <= binding.labels.items()


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What people see and approve; ``steps`` are kept beside it.

    ``id`` is 0 until it is kept. At most ``moves_at_once`` steps are moving. ``unfixed`` are the
    first of ``unfixed_count``. ``version`` grows with everything that changes.
    """

    id: int
    kind: PlanKind
    clusters: tuple[str, ...]
    limits: PlanLimits
    step_count: int
    gain: Gain
    unfixed: tuple[Unfixed, ...] = ()
    unfixed_count: int = 0
    created_at: float
    created_by: str
    state: PlanState = PlanState.DRAFT
    approved_at: float | None = None
    approved_by: str = ""
    ended_at: float | None = None
    ended_by: str = ""
    reason: str = ""
    version: int = 1

    def approved(self, by: str, now: float) -> Plan:
        """Raises PreconditionFailed where it is no draft any more."""
        if self.state is not PlanState.DRAFT:
            was = f"approved already, by {self.approved_by}" if self.approved_by else "stopped"
            raise PreconditionFailed(f"Plan {self.id} was {was}.", reason="NOT_A_DRAFT")
        return replace(
            self,
            state=PlanState.RUNNING,
            approved_at=now,
            approved_by=by,
            version=self.version + 1,
        )

    def stopped(self, by: str, now: float, reason: str) -> Plan:
        """Raises PreconditionFailed where it has ended."""
        if self.has_ended:
            raise PreconditionFailed(f"Plan {self.id} is {self.state} already.", reason="ENDED")
        return self._ended(PlanState.STOPPED, by, now, reason)

    def done(self, now: float) -> Plan:
        return self._ended(PlanState.DONE, "", now, "")

    @property
    def has_ended(self) -> bool:
        return self.state in (PlanState.DONE, PlanState.STOPPED)

    def _ended(self, state: PlanState, by: str, now: float, reason: str) -> Plan:
        return replace(
            self, state=state, ended_at=now, ended_by=by, reason=reason, version=self.version + 1
        )


def cordoned_by(plan: Plan, steps: Iterable[PlanStep]) -> Sequence[str]:
    """The clusters that get nothing more once the plan is approved: those that it empties."""
    if plan.kind is PlanKind.CONSOLIDATE:
        return sorted({target.name for step in steps for target in step.leaves})
    return plan.clusters if plan.kind is PlanKind.DRAIN else ()


def steps_to_begin(
    limits: PlanLimits, moving: Sequence[PlanStep], pending: Iterable[PlanStep]
) -> list[PlanStep]:
    """The first of those that are pending, as many as may be moving beside those that are."""
    busy = Counter(name for step in moving for name in step.touches)
    most = limits.moves_per_cluster or limits.moves_at_once
    begun: list[PlanStep] = []
    for step in pending:
        if len(moving) + len(begun) >= limits.moves_at_once:
            break
        if all(busy[name] < most for name in step.touches):
            begun.append(step)
            busy.update(step.touches)
    return begun


def is_pinned(binding: Binding) -> bool:
    """Whether people said that no plan may move it."""
    value = binding.annotations.get(DO_NOT_MOVE, binding.labels.get(DO_NOT_MOVE))
    return value is not None and value != "false"
