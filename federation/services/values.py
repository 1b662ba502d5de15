"""Parameters and results of the use cases, in addition to the model's own values.

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
    """The kind of owner of a credential."""

    ADMIN = "admin"
    AGENT = "agent"
    REPLICA = "replica"
    SUBJECT = "subject"
    TOKEN = "token"  # noqa: S105 - a kind, no secret


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """A caller. ``cluster`` is the agent's own cluster, empty for all others.

    ``role`` is None for agents and control planes. ``name`` is that of a token, or of a subject: a
    caller without a token of ours that others vouch for.
    """

    kind: PrincipalKind
    cluster: str = ""
    credential_id: str = ""
    role: Role | None = None
    scope: Scope = EVERYTHING
    limits: CallerLimits = NO_LIMITS
    name: str = ""

    @property
    def actor(self) -> str:
        """The owner of shares of limits: all tokens of one name are one actor."""
        return f"{self.kind} {self.cluster or self.name or self.credential_id}"

    def __str__(self) -> str:
        """The caller as people read it."""
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
        """The newest known session of the agent; 0: none is known."""
        return max(self.presence.epoch, self.state.report.epoch if self.state.report else 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterView(KnownCluster):
    """A cluster with its ``room``: the report's pools, and outstanding promises in them.

    ``outstanding`` are the promises if the cluster has no pools, and no room.
    """

    room: Room | None = None
    outstanding: tuple[Outstanding, ...] = ()

    @classmethod
    def of(
        cls, base: KnownCluster, room: Room | None, outstanding: tuple[Outstanding, ...]
    ) -> ClusterView:
        return cls(state=base.state, presence=base.presence, room=room, outstanding=outstanding)

    @property
    def overcommitted(self) -> int:
        """How many promised replicas fit nowhere in the report."""
        return self.room.stuck() if self.room else 0

    @property
    def promised(self) -> Sequence[Outstanding]:
        """The promises that are on no node of the report."""
        return self.room.outstanding if self.room else self.outstanding

    @property
    def careful_reserve(self) -> int:
        """The largest number of replicas that a careful promise keeps back."""
        return self.room.held.max_kept_back if self.room else 0


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
    """A question to an agent about its nodes now: every shape, or the sets of one workload.

    ``assumed`` workloads are promised and not yet there: one set each is placed first.
    """

    shapes: tuple[ReplicaRequirements, ...] = ()
    components: tuple[Component, ...] = ()
    assumed: tuple[tuple[Component, ...], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportEvidence:
    """The reports that a decision was made on, in the order of its trace's clusters.

    ``age_seconds`` are as of the decision; both are 0 for a cluster without a report.
    """

    sequences: tuple[int, ...] = ()
    age_seconds: tuple[float, ...] = ()


class ClusterPromise(NamedTuple):
    """The certificate of one cluster's share, and the report whose cells it was packed into.

    ``note`` says why it is a lesser one than was asked for.
    """

    cluster: str
    certificate: PromiseCertificate
    report_epoch: int = 0
    report_sequence: int = 0
    note: str = ""


def worth_now(
    promises: Iterable[ClusterPromise], plans: Iterable[NodePlan]
) -> tuple[ClusterPromise, ...]:
    """Return promises, of which planned ones are careful if an agent did not keep the plan."""
    unkept = {plan.cluster: plan.message for plan in plans if not plan.claimed}
    return tuple(
        promise._replace(certificate=PromiseCertificate.CAREFUL, note=unkept[promise.cluster])
        if promise.certificate is PromiseCertificate.PLANNED and promise.cluster in unkept
        else promise
        for promise in promises
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """A decision, the reports it was made on, and what was reserved for it."""

    decision: Decision
    evidence: ReportEvidence
    promises: tuple[ClusterPromise, ...] = ()
    # For replays; already packed if they come from a preview.
    inputs: DecisionInputs | KeptInputs | None = None
    # Reasons of refused shares, by cluster, or under "" the refusal of a plugin.
    refused: Mapping[str, Reason] = field(default_factory=dict)
    # The scarce resource of a decision from a preview, which stores its reason as text.
    short_of: Reason = NO_REASON


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionRecord:
    """A decision with its binding; an empty ``id`` means that it was not stored.

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

    ``queued``: it waits for the rest. ``superseded``: the answer was given before, and the
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
    """A decision that was not stored, and the token to commit it; none: it would store nothing.

    ``expires_at`` is in Unix seconds.
    """

    record: DecisionRecord
    token: str = field(default="", repr=False)
    expires_at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class IdempotencyKey:
    """A request to be answered once: its caller, its key, and the SHA-256 of its body."""

    caller: str
    key: str
    body_hash: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldReservation:
    """Replicas of one component that a binding holds in a cluster, and their pods.

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

    A reader that follows the journal from ``position`` on misses no change.
    """

    bindings: tuple[Binding, ...]
    next_after: tuple[str, str] | None
    position: Position
