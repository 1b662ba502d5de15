"""Values about an agent: how it joins, what it says of itself, when it was heard.

Must not know of any decision.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from federation.model.cluster import AGENT_AWAITED, Blindness
from federation.model.grades import ResourceModel


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinToken:
    """A single-use token, shown this once. ``expires_at`` is in Unix seconds."""

    token: str
    cluster: str
    expires_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Enrollment:
    """An agent asks to join. ``cluster_uid`` is the uid of its kube-system namespace."""

    cluster: str
    token: str
    cluster_uid: str
    kubernetes_version: str = ""
    agent_version: str = ""
    provider: str = ""
    region: str = ""
    zones: tuple[str, ...] = ()


class Placer(StrEnum):
    """The program that puts pods on nodes by fedsched's claims in a cluster."""

    NONE = "none"
    EXTENDER = "extender"
    BINDER = "binder"


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSight:
    """The sight of an agent on its cluster; ``message``: why it sees nothing.

    Its picture was last shown to be current ``picture_age_seconds`` ago.
    """

    picture_age_seconds: float = 0.0
    blind: bool = False
    message: str = ""
    skipped_objects: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentHello:
    """The first message of an agent about itself when its stream opens.

    ``acknowledged_sequence`` is the newest report of this epoch that it knows to be stored, 0:
    none. ``api_enablements`` holds (groupVersion, kind) pairs, and ``agent_time`` is its clock in
    Unix seconds; these and ``sight`` are None when the agent does not say.
    ``takes_place_requests``: several orders in one message. One that ``sees_no_nodes`` relays what
    others have collected.
    """

    epoch: int
    acknowledged_sequence: int = 0
    agent_version: str = ""
    kubernetes_version: str = ""
    placer: Placer = Placer.NONE
    api_enablements: frozenset[tuple[str, str]] | None = None
    agent_time: float | None = None
    sight: AgentSight | None = None
    takes_place_requests: bool = False
    sees_no_nodes: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentFacts:
    """The stored part of the newest hello, or of the enrolment before the first."""

    agent_version: str = ""
    kubernetes_version: str = ""
    placer: Placer = Placer.NONE
    api_enablements: frozenset[tuple[str, str]] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentPresence:
    """An agent as it is seen now; times are in Unix seconds by our clock.

    After ``silent_after`` without a word the cluster is stale; 0 before the agent's first.
    ``clock_offset_seconds`` is the lead of the agent's clock when its stream opened. ``peer`` is
    the id of the other control plane that serves or last served the stream, "" for this one.
    ``confirmed_sequence`` is the report that its last heartbeat confirmed, 0: none. ``blindness``
    says why the cluster is not seen, None: it is.
    """

    connected: bool = False
    agent_version: str = ""
    kubernetes_version: str = ""
    placer: Placer = Placer.NONE
    last_heartbeat_at: float | None = None
    silent_after: float = 0.0
    clock_offset_seconds: float = 0.0
    epoch: int = 0
    peer: str = ""
    confirmed_sequence: int = 0
    blindness: Blindness | None = None
    skipped_objects: int = 0

    def is_silent_at(self, now: float) -> bool:
        return self.silent_after < now

    @property
    def is_awaited(self) -> bool:
        """Whether its agent has to confirm first that the stored report is still its picture."""
        return self.blindness is not None and self.blindness.reason == AGENT_AWAITED

    @property
    def follows_claims(self) -> bool:
        """Whether a placer of ours would follow a plan: one that is away cannot claim in time."""
        return self.connected and self.placer is not Placer.NONE

    @property
    def may_return(self) -> bool:
        """Whether a placer of ours is away: it may return, and claim planned promises then."""
        return not self.connected and self.placer is not Placer.NONE


@dataclass(frozen=True, slots=True, kw_only=True)
class WelcomeFacts:
    """Facts that an agent needs: the model to grade by (empty when switched off) and its beat.

    ``server_time`` is in Unix seconds.
    """

    model: ResourceModel
    model_hash: str
    heartbeat_seconds: float
    report_seconds: float
    server_time: float
