"""What agents answer about nodes, written together: many decisions a second have plans.

Must not lose a plan that somebody waits for: who keeps one is answered after the commit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from federation.model.node_plans import NodePlan
from federation.services.ports import Store

# The first of a batch waits a moment so that others can join it.
BATCH_SECONDS = 0.02


class NodePlans:
    """Collects plans of decisions and writes them, one transaction after the other."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: dict[str, Sequence[NodePlan]] = {}
        self._writing: asyncio.Task[None] | None = None

    async def keep(self, decision_id: str, plans: Sequence[NodePlan]) -> None:
        """Returns when they are committed. Raises Unavailable."""
        self._waiting[decision_id] = (*self._waiting.get(decision_id, ()), *plans)
        if self._writing is None:
            self._writing = asyncio.create_task(self._write())
        # One caller that gives up must not stop the others.
        await asyncio.shield(self._writing)

    async def _write(self) -> None:
        await asyncio.sleep(BATCH_SECONDS)
        batch, self._waiting, self._writing = self._waiting, {}, None
        async with self._store.transaction() as tx:
            await tx.decisions.put_node_plans(batch)
