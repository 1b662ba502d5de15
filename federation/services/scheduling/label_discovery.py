"""Teaching agents what requests tell nodes apart by: pools cannot carry a label nobody asked for.

Must not delay an answer, nor ask an agent the same again and again.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from federation.model.errors import FederationError
from federation.model.placement import Binding
from federation.model.workload import ReplicaRequirements
from federation.services.fleet.registry import FleetOwner
from federation.services.ports import AgentEstimates, Clock
from federation.services.values import ExactQuestion

AGAIN_SECONDS = 30.0
ANSWER_SECONDS = 5.0
# Clusters and sets of labels remembered, and agents asked at a time.
MAX_KNOWN, MAX_RUNNING = 100_000, 200


class LabelDiscovery:
    """Asks agents what fits where their pools cannot tell; their next reports can."""

    def __init__(self, fleet: FleetOwner, agents: AgentEstimates, clock: Clock) -> None:
        self._fleet = fleet
        self._agents = agents
        self._clock = clock
        self._asked_at: dict[tuple[str, frozenset[str]], float] = {}
        self._running: set[asyncio.Task[None]] = set()

    def look(self, binding: Binding) -> None:
        """Behind a decision: ask the agents that should know of the labels it names."""
        every = [binding.requirements, *(each.requirements for each in binding.components)]
        for requirements in every:
            claim = requirements.node_claim
            if claim is None or not claim.label_keys:
                continue
            snapshot = self._fleet.snapshot
            _, reasons = snapshot.rooms.told(requirements)
            for position in reasons:
                self._ask(snapshot.names[position], claim.label_keys, requirements)

    def _ask(self, cluster: str, keys: frozenset[str], requirements: ReplicaRequirements) -> None:
        now = self._clock.now()
        asked_at = self._asked_at.get((cluster, keys))
        if asked_at is not None and now - asked_at < AGAIN_SECONDS:
            return
        if len(self._running) >= MAX_RUNNING or not self._agents.is_connected(cluster):
            return
        if len(self._asked_at) >= MAX_KNOWN:
            self._asked_at.clear()
        self._asked_at[cluster, keys] = now
        task = asyncio.create_task(self._teach(cluster, requirements))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _teach(self, cluster: str, requirements: ReplicaRequirements) -> None:
        # The answer is of no use: it would be older than what is decided next.
        with suppress(FederationError):
            question = ExactQuestion(shapes=(requirements,))
            await self._agents.estimate(cluster, question, ANSWER_SECONDS)
