"""Statements over decisions and the node plans that agents answer.

Must not change a decision once it is stored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import LargeBinary, Text, Uuid, bindparam, delete, func, select, text
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.ext.asyncio import AsyncConnection

from federation.model.node_plans import NodePlan
from federation.model.workload import TargetCluster
from federation.services.ports import NewDecision, Settled, StoredBinding
from federation.services.values import DecisionRecord
from federation.store.bindings import groups_of
from federation.store.rows import (
    binding_spec,
    json_text,
    node_plan_of,
    record_of,
    unix_seconds,
)
from federation.store.tables import binding, node_plan
from federation.store.tables import decision as table

# Bindings and decisions name each other: both are there when the statement ends. A new binding has
# the version that it would have if it had been added before it was decided.
ADD = text("""
    WITH given AS MATERIALIZED (
        SELECT * FROM ROWS FROM (
            json_to_recordset(CAST(:rows AS json)) AS (
                decision_id uuid, binding_id bigint, namespace text, name text, uid text,
                generation bigint, spec jsonb, clusters jsonb, affinity_group text,
                anti_affinity_group text, observed text, placed boolean,
                scheduled_at double precision, outcome text, decided jsonb, remainder bigint,
                reason text, revision bigint
            ),
            unnest(:traces)
        ) AS given (decision_id, binding_id, namespace, name, uid, generation, spec, clusters,
            affinity_group, anti_affinity_group, observed, placed, scheduled_at, outcome, decided,
            remainder, reason, revision, trace)
    ), added AS (
        INSERT INTO binding (namespace, name, uid, generation, version, spec, clusters,
            decision_id, observed_affinity, affinity_group, anti_affinity_group, last_scheduled_at)
        SELECT namespace, name, uid, generation, 2, spec, clusters,
            decision_id, observed, affinity_group, anti_affinity_group,
            CASE WHEN placed THEN now() ELSE to_timestamp(scheduled_at) END
        FROM given WHERE binding_id IS NULL
        ORDER BY namespace COLLATE "C", name COLLATE "C"
        ON CONFLICT DO NOTHING
        RETURNING id, namespace, name, version, last_scheduled_at
    ), put AS (
        UPDATE binding
        SET uid = given.uid, generation = given.generation, version = binding.version + 1,
            spec = given.spec, clusters = given.clusters,
            decision_id = given.decision_id, observed_affinity = given.observed,
            affinity_group = given.affinity_group, anti_affinity_group = given.anti_affinity_group,
            last_scheduled_at = CASE WHEN placed THEN now() ELSE binding.last_scheduled_at END,
            updated_at = now()
        FROM given WHERE binding.id = given.binding_id
        RETURNING binding.id, binding.namespace, binding.name, binding.version,
            binding.last_scheduled_at
    ), settled AS (
        SELECT * FROM added UNION ALL SELECT * FROM put
    ), decided AS (
        INSERT INTO decision (id, binding_id, namespace, name, binding_generation, outcome,
            clusters, remainder, reason, algorithm_revision, trace)
        SELECT decision_id, settled.id, namespace, name, generation, outcome,
            decided, remainder, reason, revision, trace
        FROM given JOIN settled USING (namespace, name)
    )
    SELECT id, namespace, name, version, last_scheduled_at, now() FROM settled
""").bindparams(bindparam("rows", type_=Text), bindparam("traces", type_=ARRAY(LargeBinary)))


# Decisions that were forgotten, or lost by a restore, meanwhile are left out.
PUT_PLANS = text("""
    INSERT INTO node_plan (decision_id, cluster_name, body)
    SELECT id, cluster, given.body::jsonb FROM unnest(:ids, :clusters, :bodies)
        AS given (id, cluster, body)
    JOIN decision USING (id)
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

    async def add_all(self, decisions: Sequence[NewDecision]) -> Settled:
        given = {(each.binding.namespace, each.binding.name): each for each in decisions}
        rows = await self._connection.execute(
            ADD,
            {
                "rows": json_text([_row(each) for each in given.values()]),
                "traces": [each.trace for each in given.values()],
            },
        )
        at, bindings = 0.0, {}
        for binding_id, namespace, name, version, scheduled_at, now in rows.all():
            key = namespace, name
            bindings[key] = _stored(given[key], binding_id, version, unix_seconds(scheduled_at))
            at = now.timestamp()
        return Settled(bindings, at)

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

    async def prune(self, older_than_seconds: float, limit: int) -> int:
        is_newest = select(binding.c.id).where(binding.c.decision_id == table.c.id).exists()
        old = (
            select(table.c.id)
            .where(table.c.created_at < func.now() - timedelta(seconds=older_than_seconds))
            .where(~is_newest)
            .order_by(table.c.created_at)
            .limit(limit)
        )
        gone = delete(table).where(table.c.id.in_(old)).returning(table.c.id)
        return len((await self._connection.execute(gone)).all())

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


def _row(new: NewDecision) -> dict[str, Any]:
    binding, decision = new.binding, new.verdict.decision
    group, anti_group = groups_of(binding)
    return {
        "decision_id": new.id,
        "binding_id": new.binding_id,
        "namespace": binding.namespace,
        "name": binding.name,
        "uid": binding.uid,
        "generation": binding.generation,
        "spec": binding_spec(binding),
        "clusters": _clusters(new),
        "affinity_group": group,
        "anti_affinity_group": anti_group,
        "observed": new.observed_affinity,
        "placed": new.placed,
        "scheduled_at": binding.last_scheduled_time,
        "outcome": decision.outcome,
        "decided": decision.clusters,
        "remainder": decision.remainder,
        "reason": decision.reason,
        "revision": decision.trace.algorithm_revision,
    }


def _clusters(new: NewDecision) -> tuple[TargetCluster, ...]:
    return new.verdict.decision.clusters if new.placed else new.binding.clusters


def _stored(
    new: NewDecision, binding_id: int, version: int, scheduled_at: float | None
) -> StoredBinding:
    return StoredBinding(
        id=binding_id,
        binding=replace(
            new.binding,
            clusters=_clusters(new),
            resource_version=version,
            last_scheduled_time=scheduled_at,
            fresh=False,
        ),
        decision_id=new.id,
        observed_affinity=new.observed_affinity,
    )


def _uuid(decision_id: str) -> UUID | None:
    try:
        return UUID(decision_id)
    except ValueError:
        return None
