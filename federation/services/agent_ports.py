"""What use cases need of agents: those that are connected, and what they can be asked.

Protocols only. Must not name a technology.
"""

from __future__ import annotations

from typing import Protocol

from federation.model.errors import FederationError
from federation.model.node_plans import NodePlan, PlaceOrder
from federation.services.values import ExactQuestion


class AgentGateway(Protocol):
    """The agents that can be asked now: those that are connected and see nodes."""

    def sees_nodes(self, cluster: str) -> bool: ...

    async def place(self, cluster: str, order: PlaceOrder, timeout_seconds: float) -> NodePlan:
        """The agent's answer. Raises Unavailable (not connected, gone) or DeadlineMissed."""
        ...


class AgentEstimates(Protocol):
    """The agents that can look up now what fits on their nodes."""

    def sees_nodes(self, cluster: str) -> bool: ...

    async def estimate(
        self, cluster: str, question: ExactQuestion, timeout_seconds: float
    ) -> tuple[int, ...]:
        """One number a shape, or one for sets, 0..MAX_REPLICAS.

        Raises Unavailable (not connected, gone, cannot tell, or no sense) or DeadlineMissed.
        """
        ...


class AgentStreams(Protocol):
    """The open streams of agents."""

    def dismiss(self, cluster: str, error: FederationError) -> None:
        """End the stream of a cluster's agent for good, telling it why, if there is one."""
        ...


class AgentReports(Protocol):
    """Agents that report more often when they are asked to."""

    def refresh(self, cluster: str, reason: str) -> bool:
        """Ask a cluster's agent for a whole report now; whether its stream is here."""
        ...
