"""The parts that the page asks, beside the operations of the API.

Must not do anything by itself.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from federation.operations.in_process import InProcess
from federation.operations.services import Services
from federation.services.duties import Duties
from federation.services.fleet.registry import FleetOwner
from federation.services.members.identity import Identity
from federation.services.members.replicas import Replicas
from federation.simulation.what_if_runs import RecentAnswer, RecentQuestion


@dataclass(frozen=True, slots=True, kw_only=True)
class UseCases:
    """``calls`` lets visitors in and performs operations; ``what_if`` plays decisions in a process
    of its own.
    """

    calls: InProcess
    fleet: FleetOwner
    identity: Identity
    replicas: Replicas
    duties: Duties
    what_if: Callable[[RecentQuestion], Awaitable[RecentAnswer]]
    why_not_ready: Callable[[], Awaitable[str | None]]
    database: str

    @property
    def services(self) -> Services:
        """The use cases behind the operations."""
        return self.calls.services
