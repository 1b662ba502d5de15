"""A plan, its steps, and their states.

Must not move anything: it says which steps may begin.
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


# Units of a gain.
REPLICAS: Final = "replicas"
CLUSTERS: Final = "clusters"


class PlanKind(StrEnum):
    """DRAIN empties named clusters. FAILBACK moves bindings to affinity groups that they prefer.

    BALANCE evens out how full clusters are. CONSOLIDATE empties as many clusters as possible.
    UNSCHEDULABLE makes room for replicas that have none.
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
        replicas = {target.name: target.replicas for target in self.before}
        grows = {
            target.name for target in self.after if target.replicas > replicas.get(target.name, 0)
        }
        return frozenset(grows.union(target.name for target in self.leaves))

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

    @classmethod
    def of(cls, binding: BindingName, replicas: int, reason: str) -> Unfixed:
        namespace, name = binding
        return cls(namespace=namespace, name=name, replicas=replicas, reason=reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """The plan does ``moved`` of the amount ``wanted``; no plan could do more than ``bound``.

    ``unit`` is replicas, clusters, or the resource that is evened out, in base units.
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
    """Limits of a plan: its steps, and how many percent of a binding's replicas may move.

    At most ``moves_at_once`` steps are moving, and ``moves_per_cluster`` (0: as many) of them out
    of or into one cluster. Only bindings with the labels of ``selector`` move.
    ``headroom_percent`` of each cluster stays free where others are emptied into it. A cluster may
    be fuller than the whole fleet by ``tolerance_percent``.
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
    """A plan as people see and approve it; its steps are stored separately.

    ``id`` is 0 until it is stored. ``unfixed`` are the first of ``unfixed_count``. ``version``
    grows with everything that changes.
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
    """Return the first pending steps, as many as may begin in addition to the moving ones."""
    busy = Counter(name for step in moving for name in step.touches)
    max_moves = limits.moves_per_cluster or limits.moves_at_once
    begun: list[PlanStep] = []
    for step in pending:
        if len(moving) + len(begun) >= limits.moves_at_once:
            break
        if all(busy[name] < max_moves for name in step.touches):
            begun.append(step)
            busy.update(step.touches)
    return begun


def is_pinned(binding: Binding) -> bool:
    """Whether people said that no plan may move it."""
    value = binding.annotations.get(DO_NOT_MOVE, binding.labels.get(DO_NOT_MOVE))
    return value is not None and value != "false"
