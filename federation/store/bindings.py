"""Statements over bindings.

Must not decide what a placement is: it stores the one it is given.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Row, Select, cast, delete, func, or_, select, tuple_, update
from sqlalchemy.dialects.postgresql import JSONB, JSONPATH, insert
from sqlalchemy.ext.asyncio import AsyncConnection

from federation.model.placement import Binding
from federation.services.ports import Peers, Settled, StoredBinding
from federation.store.rows import binding_of, binding_spec, document_of, targets_of
from federation.store.tables import binding as table

HOLDS_REPLICAS = "$[*] ? (@.name == $name && @.replicas > 0)"


class BindingStatements:
    """Implements ``ports.Bindings`` within one transaction."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def get(self, namespace: str, name: str) -> StoredBinding | None:
        return await self._one(_named(namespace, name))

    async def lock(self, namespace: str, name: str) -> StoredBinding | None:
        return await self._one(_named(namespace, name).with_for_update())

    async def peers(self, binding: Binding) -> Peers:
        group, anti_group = _groups(binding)
        if not (group or anti_group):
            return Peers()
        statement = select(table).where(
            table.c.namespace == binding.namespace,
            table.c.name != binding.name,
            table.c.clusters != [],
            or_(
                (table.c.affinity_group == group) & (table.c.affinity_group != ""),
                (table.c.anti_affinity_group == anti_group) & (table.c.anti_affinity_group != ""),
            ),
        )
        rows = (await self._connection.execute(statement.order_by(table.c.name))).all()
        return Peers(
            affinity=tuple(_where(row) for row in rows if group and row.affinity_group == group),
            anti_affinity=tuple(
                _where(row) for row in rows if anti_group and row.anti_affinity_group == anti_group
            ),
        )

    async def add(self, binding: Binding) -> StoredBinding | None:
        statement = (
            insert(table)
            .values(
                namespace=binding.namespace,
                name=binding.name,
                version=1,
                observed_affinity="",
                last_scheduled_at=_time(binding.last_scheduled_time),
                **_content(binding),
            )
            .on_conflict_do_nothing()
            .returning(table)
        )
        row = (await self._connection.execute(statement)).one_or_none()
        return None if row is None else binding_of(row)

    async def put(self, binding_id: int, binding: Binding, outcome: Settled) -> StoredBinding:
        statement = (
            update(table)
            .where(table.c.id == binding_id)
            .values(
                version=table.c.version + 1,
                decision_id=UUID(outcome.decision_id),
                observed_affinity=outcome.observed_affinity,
                last_scheduled_at=func.now() if outcome.placed else table.c.last_scheduled_at,
                updated_at=func.now(),
                **_content(binding),
            )
            .returning(table)
        )
        return binding_of((await self._connection.execute(statement)).one())

    async def page(
        self, namespace: str, after: tuple[str, str] | None, limit: int
    ) -> Sequence[Binding]:
        statement = select(table).order_by(table.c.namespace, table.c.name).limit(limit)
        if namespace:
            statement = statement.where(table.c.namespace == namespace)
        if after is not None:
            statement = statement.where(tuple_(table.c.namespace, table.c.name) > after)
        return [binding_of(row).binding for row in await self._connection.execute(statement)]

    async def holding(self, cluster: str, limit: int) -> Sequence[tuple[str, str]]:
        holds = func.jsonb_path_exists(
            table.c.clusters, cast(HOLDS_REPLICAS, JSONPATH), cast({"name": cluster}, JSONB)
        )
        statement = (
            select(table.c.namespace, table.c.name)
            .where(holds)
            .order_by(table.c.namespace, table.c.name)
            .limit(limit)
        )
        rows = await self._connection.execute(statement)
        return [(row.namespace, row.name) for row in rows]

    async def delete(self, binding_id: int) -> None:
        await self._connection.execute(delete(table).where(table.c.id == binding_id))

    async def _one(self, statement: Select[Any]) -> StoredBinding | None:
        row = (await self._connection.execute(statement)).one_or_none()
        return None if row is None else binding_of(row)


def _named(namespace: str, name: str) -> Select[Any]:
    return select(table).where(table.c.namespace == namespace, table.c.name == name)


def _content(binding: Binding) -> dict[str, object]:
    group, anti_group = _groups(binding)
    return {
        "uid": binding.uid,
        "generation": binding.generation,
        "spec": binding_spec(binding),
        "clusters": document_of(binding.clusters),
        "affinity_group": group,
        "anti_affinity_group": anti_group,
    }


def _groups(binding: Binding) -> tuple[str, str]:
    placement = binding.placement
    return (
        _group(binding, placement.workload_affinity_key),
        _group(binding, placement.workload_anti_affinity_key),
    )


def _group(binding: Binding, key: str) -> str:
    """Workloads are grouped by the value of a label; one without the label is in no group."""
    return f"{key}={binding.labels[key]}" if key and key in binding.labels else ""


def _where(row: Row[Any]) -> frozenset[str]:
    return frozenset(target.name for target in targets_of(row.clusters))


def _time(unix_seconds: float | None) -> datetime | None:
    return None if unix_seconds is None else datetime.fromtimestamp(unix_seconds, UTC)
