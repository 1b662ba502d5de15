"""The use cases that operations call, in one value.

Must not do anything by itself.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias

from federation.model.placement import BindingName
from federation.rpc.estimating import EstimatingProcess
from federation.rpc.joining import Advertised
from federation.rpc.placing import NodePlacing
from federation.services.access.audit import AuditTrail
from federation.services.access.namespace_quotas import QuotaService
from federation.services.access.tokens import Tokens
from federation.services.estimates.availability import Availability
from federation.services.failover.control import FailoverControl
from federation.services.history import DecisionHistory
from federation.services.members.join import Registration
from federation.services.members.lifecycle import Membership
from federation.services.plans.control import PlanControl
from federation.services.ports import Clock
from federation.services.scheduling.bindings import Scheduling
from federation.services.scheduling.previews import Previews
from federation.services.scheduling.release import ReleaseService
from federation.services.waiting.steering import Queueing
from federation.services.watching.watches import Watches
from federation.v1.clusters_pb2 import ClusterEvent
from federation.v1.peers_pb2 import AskAgentRequest, AskAgentResponse
from federation.v1.scheduling_pb2 import BindingEvent

# Ask an agent within so many seconds; raises Unavailable and DeadlineMissed.
AskAgent: TypeAlias = Callable[[AskAgentRequest, float], Awaitable[AskAgentResponse]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """``ask_process`` has a question answered by a process of its own, or ends the call.

    ``advertised`` says how agents reach this control plane.
    """

    clock: Clock
    registration: Registration
    membership: Membership
    advertised: Callable[[], Advertised]
    failover: FailoverControl
    plans: PlanControl
    tokens: Tokens
    quotas: QuotaService
    trail: AuditTrail
    scheduling: Scheduling
    previews: Previews
    placing: NodePlacing
    releases: ReleaseService
    queueing: Queueing
    history: DecisionHistory
    availability: Availability
    estimating: EstimatingProcess | None
    binding_watches: Watches[BindingName, BindingEvent]
    cluster_watches: Watches[str, ClusterEvent]
    ask_process: Callable[[bytes], Awaitable[bytes]]
    ask_agent: AskAgent
