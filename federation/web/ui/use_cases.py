"""What the page asks: the use cases that callers of the API reach, too.

Must not do anything by itself.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from federation.operations.in_process import InProcess
from federation.services.access.audit import AuditTrail
from federation.services.duties import Duties
from federation.services.estimates.availability import Availability
from federation.services.failover.control import FailoverControl
from federation.services.fleet.registry import FleetOwner
from federation.services.history import DecisionHistory
from federation.services.members.identity import Identity
from federation.services.members.replicas import Replicas
from federation.services.plans.control import PlanControl
from federation.services.ports import Clock
from federation.services.scheduling.bindings import Scheduling
from federation.services.scheduling.previews import Previews
from federation.services.waiting.steering import Queueing
from federation.simulation.what_if_runs import RecentAnswer, RecentQuestion


@dataclass(frozen=True, slots=True, kw_only=True)
class UseCases:
    """``calls`` lets visitors in and performs operations; ``what_if`` plays decisions in a process
    of its own.
    """

    calls: InProcess
    fleet: FleetOwner
    scheduling: Scheduling
    previews: Previews
    queueing: Queueing
    history: DecisionHistory
    availability: Availability
    failover: FailoverControl
    plans: PlanControl
    identity: Identity
    replicas: Replicas
    duties: Duties
    clock: Clock
    what_if: Callable[[RecentQuestion], Awaitable[RecentAnswer]]
    audit: AuditTrail
    why_not_ready: Callable[[], Awaitable[str | None]]
    database: str
