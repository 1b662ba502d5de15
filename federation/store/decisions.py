"""Statements over decisions and the node plans that agents answer.

Must not change a decision once it is stored.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from uuid import UUID

from sqlalchemy import insert, select
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncConnection

from federation.model.placement import Binding
from federation.services.values import DecisionRecord, NodePlan, Verdict
from federation.store.rows import document_of, node_plan_of, packed_trace, record_of
from federation.store.tables import decision as table
from federation.store.tables import node_plan

# A trace over fewer clusters is packed in less than 5 ms: not worth a thread.
CLUSTERS_PER_THREAD = 500


class DecisionStatements:
    """Implements ``ports.Decisions`` within one transaction."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def add(self, binding_id: int, binding: Binding, verdict: Verdict) -> DecisionRecord:
        decision = verdict.decision
        statement = (
            insert(table)
            .values(
                binding_id=binding_id,
                namespace=binding.namespace,
                name=binding.name,
                binding_generation=binding.generation,
                outcome=decision.outcome.value,
                clusters=document_of(decision.clusters),
                remainder=decision.remainder,
                reason=decision.reason,
                algorithm_revision=decision.trace.algorithm_revision,
                trace=await _packed(verdict),
            )
            .returning(table.c.id, table.c.created_at)
        )
        row = (await self._connection.execute(statement)).one()
        return DecisionRecord(
            id=str(row.id),
            namespace=binding.namespace,
            name=binding.name,
            binding_generation=binding.generation,
            created_at=row.created_at.timestamp(),
            decision=decision,
            evidence=verdict.evidence,
        )

    async def get(self, decision_id: str) -> DecisionRecord | None:
        known_id = _uuid(decision_id)
        if known_id is None:
            return None
        statement = select(table).where(table.c.id == known_id)
        row = (await self._connection.execute(statement)).one_or_none()
        if row is None:
            return None
        plans = await self._connection.scalars(
            select(node_plan.c.body)
            .where(node_plan.c.decision_id == known_id)
            .order_by(node_plan.c.cluster_name)
        )
        return record_of(row, tuple(map(node_plan_of, plans)))

    async def put_node_plans(self, decision_id: str, plans: Sequence[NodePlan]) -> None:
        statement = upsert(node_plan).values(
            [
                {
                    "decision_id": UUID(decision_id),
                    "cluster_name": plan.cluster,
                    "body": document_of(plan),
                }
                for plan in plans
            ]
        )
        await self._connection.execute(
            statement.on_conflict_do_update(
                index_elements=[node_plan.c.decision_id, node_plan.c.cluster_name],
                set_={"body": statement.excluded.body},
            )
        )


async def _packed(verdict: Verdict) -> bytes:
    if len(verdict.decision.trace.clusters) < CLUSTERS_PER_THREAD:
        return packed_trace(verdict)
    return await asyncio.to_thread(packed_trace, verdict)


def _uuid(decision_id: str) -> UUID | None:
    try:
        return UUID(decision_id)
    except ValueError:
        return None
