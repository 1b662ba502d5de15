"""What the use cases take and answer, beside the model's own values.

Plain values. Must not hold secrets longer than their one answer, nor anything of the wire.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from federation.capacity.cluster_room import Room
from federation.history.packed_inputs import KeptInputs
from federation.model.access import EVERYTHING, NO_LIMITS, CallerLimits, Role, Scope
from federation.model.cluster import Cluster, ClusterState
from federation.model.estimate import Estimates
from federation.model.node_plans import NodePlan
from federation.model.placement import Binding, binding_key
from federation.model.reasons import NO_REASON, Reason
from federation.model.reservations import Outstanding, PromiseCertificate
from federation.model.waiting import Wait
from federation.model.workload import Component, ReplicaRequirements
from federation.scheduler.decision import Decision
from federation.scheduler.decision_inputs import DecisionInputs
from federation.services.agent_values import AgentPresence
from federation.services.journal import Position


class PrincipalKind(StrEnum):
    """Who a credential belongs to."""

    ADMIN = "admin"
    AGENT = "agent"
    REPLICA = "replica"
    SUBJECT = "subject"
    TOKEN = "token"  # noqa: S105 - a kind, no secret


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """Who calls. ``cluster`` is the agent's own cluster, empty for everybody else.

    ``role`` is None for agents and control planes; ``name`` is that of a token, or of a subject: of
    who has no token of ours, and others vouch for.
    """

    kind: PrincipalKind
    cluster: str = ""
    credential_id: str = ""
    role: Role | None = None
    scope: Scope = EVERYTHING
    limits: CallerLimits = NO_LIMITS
    name: str = ""

    def __str__(self) -> str:
        """As people are told of it."""
        match self.kind:
            case PrincipalKind.TOKEN | PrincipalKind.SUBJECT:
                return f"{self.kind} {self.name} ({self.credential_id})"
            case PrincipalKind.AGENT:
                return f"agent of {self.cluster}"
        return str(self.kind)


@dataclass(frozen=True, slots=True, kw_only=True)
class IssuedCredential:
    """A bearer credential, shown this once. ``expires_at`` is in Unix seconds.

    ``last_epoch`` is the newest session seen of the cluster: its next one must be greater.
    """

    credential: str
    expires_at: float
    last_epoch: int = 0

    @property
    def id(self) -> str:
        """The part that is no secret."""
        return self.credential.partition(".")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownCluster:
    """A cluster, its newest report, and its agent."""

    state: ClusterState
    presence: AgentPresence

    @property
    def cluster(self) -> Cluster:
        return self.state.cluster

    @property
    def newest_epoch(self) -> int:
        """Of the agent's sessions, as far as anything of them is known; 0: nothing."""
        return max(self.presence.epoch, self.state.report.epoch if self.state.report else 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterView(KnownCluster):
    """``room`` has the report's pools, and what is promised in them and on no node yet.

    ``outstanding`` is the latter where the cluster has no pools, and no room.
    """

    room: Room | None = None
    outstanding: tuple[Outstanding, ...] = ()

    @classmethod
    def of(
        cls, known: KnownCluster, room: Room | None, outstanding: tuple[Outstanding, ...]
    ) -> ClusterView:
        return cls(state=known.state, presence=known.presence, room=room, outstanding=outstanding)

    @property
    def overcommitted(self) -> int:
        """How many promised replicas find no room in the report."""
        return self.room.stuck() if self.room else 0

    @property
    def promised(self) -> Sequence[Outstanding]:
        """What is promised and on no node of the report."""
        return self.room.outstanding if self.room else self.outstanding

    @property
    def careful_reserve(self) -> int:
        """How many replicas of a careful promise are kept back there at most."""
        return self.room.held.most_kept_back if self.room else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterPage:
    """Clusters by ascending name; ``next_after`` is empty on the last page."""

    views: tuple[ClusterView, ...]
    next_after: str
    fleet_generation: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EstimateAnswer:
    """Estimates of every shape for the clusters ``names`` (axis c).

    ``choosing`` says of each shape whether it chooses its nodes by their labels or names.
    ``age_seconds_c`` and ``sequence_c`` are the report's, 0 where a cluster has none.
    """

    fleet_generation: str
    names: tuple[str, ...]
    estimates: tuple[Estimates, ...]
    choosing: tuple[bool, ...]
    age_seconds_c: npt.NDArray[np.float64]
    sequence_c: npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactQuestion:
    """What an agent is to look up on its nodes now: every shape, or the sets of one workload.

    ``assumed`` workloads are promised and not yet there: one set each is placed first.
    """

    shapes: tuple[ReplicaRequirements, ...] = ()
    components: tuple[Component, ...] = ()
    assumed: tuple[tuple[Component, ...], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportEvidence:
    """Which reports a decision was made on, in the order of its trace's clusters.

    ``age_seconds`` at the decision; both are 0 where a cluster had none.
    """

    sequences: tuple[int, ...] = ()
    age_seconds: tuple[float, ...] = ()


class ClusterPromise(NamedTuple):
    """What one cluster's share is worth, and the report whose cells it was packed into.

    ``note`` says why it is worth less than was asked for.
    """

    cluster: str
    certificate: PromiseCertificate
    report_epoch: int = 0
    report_sequence: int = 0
    note: str = ""


def worth_now(
    promises: Iterable[ClusterPromise], plans: Iterable[NodePlan]
) -> tuple[ClusterPromise, ...]:
    """What was promised; where no agent keeps the plan it is careful, and says why."""
    unkept = {plan.cluster: plan.message for plan in plans if not plan.claimed}
    return tuple(
        each._replace(certificate=PromiseCertificate.CAREFUL, note=unkept[each.cluster])
        if each.certificate is PromiseCertificate.PLANNED and each.cluster in unkept
        else each
        for each in promises
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """A decision, the reports it was made on, and what was reserved for it."""

    decision: Decision
    evidence: ReportEvidence
    promises: tuple[ClusterPromise, ...] = ()
    # For replays; as they were packed where it comes from a preview.
    inputs: DecisionInputs | KeptInputs | None = None
    # Why shares found no room, by cluster, or under "" why a plugin kept nothing for them.
    refused: Mapping[str, Reason] = field(default_factory=dict)
    # What it lacks, where the decision comes from a preview, which keeps its reason as a text.
    short_of: Reason = NO_REASON


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionRecord:
    """A decision with where it came from; an empty ``id`` means that it was not stored.

    ``created_at`` is in Unix seconds. ``node_plans`` holds what agents have answered so far, by
    ascending cluster name.
    """

    id: str
    namespace: str
    name: str
    binding_generation: int
    created_at: float
    decision: Decision
    evidence: ReportEvidence = ReportEvidence()
    promises: tuple[ClusterPromise, ...] = ()
    node_plans: tuple[NodePlan, ...] = ()

    @property
    def binding_key(self) -> str:
        return binding_key(self.namespace, self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheduled:
    """The answer to a scheduling request; ``binding`` as stored, None when nothing was stored.

    ``queued``: it waits for what has no place. ``superseded``: the answer was given before, and the
    binding was decided again since. ``others`` of its gang were decided with it.
    """

    record: DecisionRecord
    binding: Binding | None
    queued: bool = False
    superseded: bool = False
    others: tuple[Scheduled, ...] = ()


# It is called after a commit that placed something: agents are asked for nodes then.
PlacedObserver: TypeAlias = Callable[[Sequence[Scheduled]], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Previewed:
    """A decision that was not stored, and what commits it; no token: it would store nothing.

    ``expires_at`` is in Unix seconds.
    """

    record: DecisionRecord
    token: str = field(default="", repr=False)
    expires_at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Once:
    """A request that is to be answered once: whose it is, its key, and the SHA-256 of its body."""

    caller: str
    key: str
    body_hash: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldReservation:
    """Replicas of one component that a binding holds in a cluster, and what became of them.

    ``outstanding`` are on no node yet, by the newest report; ``bound``, ``unbound`` and
    ``finished`` are what that report counts.
    """

    cluster: str
    component: str = ""
    replicas: int
    outstanding: int
    bound: int = 0
    unbound: int = 0
    finished: int = 0
    certificate: PromiseCertificate
    decision_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BindingView:
    """A binding, the newest decision about it, and what it holds by (cluster, component).

    ``lease_expires_at`` is in Unix seconds, None without a lease; ``wait`` is None when it does not
    wait, and ``position`` its place in the queue, 0 while it is gated.
    """

    binding: Binding
    record: DecisionRecord | None = None
    held: tuple[HeldReservation, ...] = ()
    lease_expires_at: float | None = None
    wait: Wait | None = None
    position: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class BindingPage:
    """Bindings by ascending (namespace, name); ``next_after`` is None on the last page.

    Nothing that happened after ``position`` is missed by who follows the journal from there.
    """

    bindings: tuple[Binding, ...]
    next_after: tuple[str, str] | None
    position: Position
