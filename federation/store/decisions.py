"""Statements over decisions and the node plans that agents answer.

Must not change a decision once it is stored.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from uuid import UUID

from sqlalchemy import BigInteger, LargeBinary, Text, Uuid, bindparam, select, text
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.ext.asyncio import AsyncConnection

from federation.services.ports import NewDecision
from federation.services.values import DecisionRecord, NodePlan, Verdict
from federation.store.rows import json_text, node_plan_of, packed_trace, record_of
from federation.store.tables import decision as table
from federation.store.tables import node_plan

# A trace over fewer clusters is packed in less than 5 ms: not worth a thread.
CLUSTERS_PER_THREAD = 500


ADD = text("""
    WITH added AS (
        INSERT INTO decision (id, binding_id, namespace, name, binding_generation, outcome,
            clusters, remainder, reason, algorithm_revision, trace)
        SELECT id, binding_id, namespace, name, generation, outcome,
            clusters::jsonb, remainder, reason, revision, trace
        FROM unnest(:ids, :binding_ids, :namespaces, :names, :generations, :outcomes, :clusters,
                :remainders, :reasons, :revisions, :traces)
            AS given (id, binding_id, namespace, name, generation, outcome, clusters, remainder,
                reason, revision, trace)
    )
    SELECT now()
""").bindparams(
    bindparam("ids", type_=ARRAY(Uuid)),
    *(
        bindparam(name, type_=ARRAY(BigInteger))
        for name in ("binding_ids", "generations", "remainders", "revisions")
    ),
    *(
        bindparam(name, type_=ARRAY(Text))
        for name in ("namespaces", "names", "outcomes", "clusters", "reasons")
    ),
    bindparam("traces", type_=ARRAY(LargeBinary)),
)


PUT_PLANS = text("""
    INSERT INTO node_plan (decision_id, cluster_name, body)
    SELECT id, cluster, body::jsonb FROM unnest(:ids, :clusters, :bodies)
        AS given (id, cluster, body)
    ORDER BY id, cluster
    ON CONFLICT (decision_id, cluster_name) DO UPDATE SET body = excluded.body
""").bindparams(
    bindparam("ids", type_=ARRAY(Uuid)),
    bindparam("clusters", type_=ARRAY(Text)),
    bindparam("bodies", type_=ARRAY(Text)),
)


class DecisionStatements:
    """Implements ``ports.Decisions`` within one transaction."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def add_all(self, decisions: Sequence[NewDecision]) -> float:
        bindings = [each.binding for each in decisions]
        made = [each.verdict.decision for each in decisions]
        now = await self._connection.execute(
            ADD,
            {
                "ids": [UUID(each.id) for each in decisions],
                "binding_ids": [each.binding_id for each in decisions],
                "namespaces": [binding.namespace for binding in bindings],
                "names": [binding.name for binding in bindings],
                "generations": [binding.generation for binding in bindings],
                "outcomes": [decision.outcome.value for decision in made],
                "clusters": [json_text(decision.clusters) for decision in made],
                "remainders": [decision.remainder for decision in made],
                "reasons": [decision.reason for decision in made],
                "revisions": [decision.trace.algorithm_revision for decision in made],
                "traces": await _packed([each.verdict for each in decisions]),
            },
        )
        return float(now.scalar_one().timestamp())

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

    async def put_node_plans(self, plans: Mapping[str, Sequence[NodePlan]]) -> None:
        newest = {
            (decision_id, plan.cluster): plan
            for decision_id, answered in plans.items()
            for plan in answered
        }
        await self._connection.execute(
            PUT_PLANS,
            {
                "ids": [UUID(decision_id) for decision_id, _ in newest],
                "clusters": [cluster for _, cluster in newest],
                "bodies": [json_text(plan) for plan in newest.values()],
            },
        )


async def _packed(verdicts: Sequence[Verdict]) -> list[bytes]:
    clusters = sum(len(each.decision.trace.clusters) for each in verdicts)
    if clusters < CLUSTERS_PER_THREAD:
        return [packed_trace(each) for each in verdicts]
    return await asyncio.to_thread(lambda: [packed_trace(each) for each in verdicts])


def _uuid(decision_id: str) -> UUID | None:
    try:
        return UUID(decision_id)
    except ValueError:
        return None
