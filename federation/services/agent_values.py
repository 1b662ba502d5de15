"""What is known of an agent: how it joins, what it says of itself, when it was heard.

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
    """Who puts pods on nodes by fedsched's claims in a cluster."""

    NONE = "none"
    EXTENDER = "extender"
    BINDER = "binder"


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSight:
    """Whether an agent sees its cluster as it is, when it says so; ``message``: why it does not.

    For ``picture_age_seconds`` nothing has shown that its picture is current.
    """

    picture_age_seconds: float = 0.0
    blind: bool = False
    message: str = ""
    skipped_objects: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentHello:
    """What an agent says of itself when its stream opens.

    ``acknowledged_sequence`` is the newest report of this epoch that it knows to be stored, 0:
    none. ``api_enablements`` holds (groupVersion, kind) pairs; None when the agent does not say, as
    with ``agent_time``, its clock in Unix seconds, and ``sight``. ``takes_place_requests``: several
    orders in one message. One that ``sees_no_nodes`` tells what others have collected.
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
    """What is kept of the newest hello (or of the enrolment, before the first)."""

    agent_version: str = ""
    kubernetes_version: str = ""
    placer: Placer = Placer.NONE
    api_enablements: frozenset[tuple[str, str]] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentPresence:
    """The agent as it is seen now; times are in Unix seconds by our clock.

    After ``silent_after`` without a word the cluster is stale; 0 before the agent's first.
    ``clock_offset_seconds`` is by how much the agent's clock was ahead when its stream opened.
    ``peer`` is the id of the other control plane that serves or last served the stream; empty
    when this one does. ``confirmed_sequence`` is the report that its last heartbeat said to be
    still its picture, 0: none. ``blindness`` says why the cluster is not seen, None: it is.
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
        """Whether its agent has to say first that what is stored is still its picture."""
        return self.blindness is not None and self.blindness.reason == AGENT_AWAITED

    @property
    def follows_claims(self) -> bool:
        """Whether a placer of ours would follow what is planned now: one that is away cannot claim
        anything before others decide.
        """
        return self.connected and self.placer is not Placer.NONE

    @property
    def may_return(self) -> bool:
        """Whether there was a placer of ours that is away: until the cluster is stale it may come
        back, and claims what was promised by plan then.
        """
        return not self.connected and self.placer is not Placer.NONE


@dataclass(frozen=True, slots=True, kw_only=True)
class WelcomeFacts:
    """What an agent needs to work: the model to grade by (empty when switched off) and its beat.

    ``server_time`` is in Unix seconds.
    """

    model: ResourceModel
    model_hash: str
    heartbeat_seconds: float
    report_seconds: float
    server_time: float
