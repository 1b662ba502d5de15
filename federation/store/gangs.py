"""Gangs: one row for all of its members that are here.

Must not decide how a gang waits: its members' rows say that.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import BigInteger, Row, Text, cast, false, func, literal_column, select, tuple_
from sqlalchemy.ext.asyncio import AsyncConnection

from federation.model.placement import BindingName
from federation.services.binding_ports import GangSummary
from federation.store.namespaces import in_namespaces
from federation.store.statements import named
from federation.store.tables import binding as table
from federation.store.tables import unix_seconds, waiting

# As its index has it.
GANG = literal_column("((binding.spec -> 'gang') ->> 'name')", Text)
_spec_number = {
    name: cast(table.c.spec[name].astext, BigInteger) for name in ("replicas", "priority")
}
GANGS = (
    select(
        table.c.namespace,
        GANG.label("name"),
        func.max(cast(table.c.spec["gang"]["size"].astext, BigInteger)).label("size"),
        func.count().label("members"),
        func.count().filter(table.c.clusters != []).label("placed"),
        func.sum(_spec_number["replicas"]).label("replicas"),
        func.max(_spec_number["priority"]).label("priority"),
        func.min(waiting.c.since).label("waiting_since"),
        func.min(waiting.c.times_out).label("times_out"),
        func.coalesce(func.bool_or(waiting.c.times_out <= func.now()), false()).label("is_late"),
        func.coalesce(func.max(waiting.c.short_of), "").label("waits_for"),
    )
    .outerjoin(waiting, waiting.c.binding_id == table.c.id)
    .where(GANG.is_not(None))
    .group_by(table.c.namespace, GANG)
    .order_by(table.c.namespace, GANG)
)
NAMED = (
    select(table.c.namespace, GANG.label("name"))
    .distinct()
    .where(GANG.is_not(None))
    .order_by(table.c.namespace, GANG)
)


async def gangs_after(
    connection: AsyncConnection,
    namespace: str,
    after: BindingName | None,
    limit: int,
    among: Collection[str],
) -> Sequence[GangSummary]:
    """By ascending (namespace, name)."""
    names = NAMED.where(*in_namespaces(table.c.namespace, namespace, among)).limit(limit)
    if after is not None:
        names = names.where(tuple_(table.c.namespace, GANG) > after)
    page = names.subquery()
    # The page is chosen first: its members alone are looked for in the queue.
    statement = GANGS.join(page, (page.c.namespace == table.c.namespace) & (page.c.name == GANG))
    return [_summary_of(row) for row in await connection.execute(named("gangs.page", statement))]


def _summary_of(row: Row[Any]) -> GangSummary:
    return GangSummary(
        namespace=row.namespace,
        name=row.name,
        size=row.size,
        members=row.members,
        placed=row.placed,
        replicas=row.replicas,
        priority=row.priority,
        waiting_since=unix_seconds(row.waiting_since),
        times_out=unix_seconds(row.times_out),
        has_timed_out=row.is_late,
        waits_for=row.waits_for,
    )
