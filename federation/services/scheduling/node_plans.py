"""What agents answer about nodes, written together: many decisions a second have plans.

Must not lose a plan that somebody waits for: who keeps one is answered after the commit.
"""

from __future__ import annotations

from collections.abc import Sequence

from federation.model.node_plans import NodePlan
from federation.runtime.batching import Batcher
from federation.services.ports import Store

# The first of a batch waits a moment so that others can join it.
BATCH_SECONDS = 0.02


class NodePlans:
    """Collects plans of decisions and writes them, one transaction after the other."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._batches = Batcher(self._write, seconds=BATCH_SECONDS)

    async def keep(self, decision_id: str, plans: Sequence[NodePlan]) -> None:
        """Returns when they are committed. Raises Unavailable."""
        await self._batches.put(decision_id, (decision_id, plans))

    async def _write(self, batch: Sequence[tuple[str, Sequence[NodePlan]]]) -> Sequence[None]:
        async with self._store.transaction() as tx:
            await tx.decisions.put_node_plans(dict(batch))
        return [None] * len(batch)
