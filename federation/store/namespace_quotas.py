"""Namespace quotas, and what is held in their namespaces: rows, and statements over them.

Must not decide what fits.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from sqlalchemy import Text, any_, bindparam, delete, func, select, text
from sqlalchemy.dialects.postgresql import ARRAY, insert
from sqlalchemy.ext.asyncio import AsyncConnection

from federation.model.namespace_quotas import NamespaceQuota
from federation.store.access_tables import namespace_quota as table
from federation.store.statements import named

# Of one namespace: of several at once the server would rather look at all rows there are.
USED = text("""
    SELECT /* fedsched:quotas.used */ held.key AS name, sum(held.value::numeric) AS amount
    FROM reservation, jsonb_each_text(reservation.held) AS held
    WHERE namespace = :namespace
    GROUP BY 1
""").bindparams(bindparam("namespace", type_=Text))
HELD = text("""
    SELECT /* fedsched:quotas.held */ reservation.namespace, reservation.name, held
    FROM reservation JOIN unnest(:namespaces, :names) AS given (namespace, name)
        ON reservation.namespace = given.namespace AND reservation.name = given.name
""").bindparams(*(bindparam(name, type_=ARRAY(Text)) for name in ("namespaces", "names")))


class NamespaceQuotaStatements:
    """Implements ``ports.NamespaceQuotas`` within one transaction."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def put(self, quota: NamespaceQuota) -> None:
        if not quota.limits:
            await self._connection.execute(
                named("quotas.remove", delete(table).where(table.c.namespace == quota.namespace))
            )
            return
        values = {"limits": dict(quota.limits), "changed_at": func.clock_timestamp()}
        statement = insert(table).values(namespace=quota.namespace, **values)
        await self._connection.execute(
            named(
                "quotas.put",
                statement.on_conflict_do_update(index_elements=[table.c.namespace], set_=values),
            )
        )

    async def count(self) -> int:
        return int(
            await self._connection.scalar(
                named("quotas.count", select(func.count()).select_from(table))
            )
            or 0
        )

    async def page(self, after: str, limit: int) -> Sequence[NamespaceQuota]:
        statement = select(table).where(table.c.namespace > after)
        rows = await self._connection.execute(
            named("quotas.page", statement.order_by(table.c.namespace).limit(limit))
        )
        return [NamespaceQuota(namespace=row.namespace, limits=row.limits) for row in rows]

    async def namespaces(self) -> Collection[str]:
        return set(
            (
                await self._connection.scalars(
                    named("quotas.namespaces", select(table.c.namespace))
                )
            ).all()
        )

    async def version(self) -> str:
        newest = func.concat(func.count(), " ", func.max(table.c.changed_at))
        return str(await self._connection.scalar(named("quotas.version", select(newest))))

    async def find(
        self, namespaces: Collection[str], *, lock: bool = False
    ) -> Mapping[str, NamespaceQuota]:
        is_named = table.c.namespace == any_(
            bindparam("namespaces", sorted(namespaces), type_=ARRAY(Text))
        )
        statement = select(table).where(is_named).order_by(table.c.namespace)
        statement = (
            named("quotas.lock", statement.with_for_update())
            if lock
            else named("quotas.find", statement)
        )
        rows = await self._connection.execute(statement)
        return {
            row.namespace: NamespaceQuota(namespace=row.namespace, limits=row.limits)
            for row in rows
        }

    async def used(self, namespaces: Collection[str]) -> Mapping[str, Mapping[str, int]]:
        amounts = {}
        for namespace in namespaces:
            rows = await self._connection.execute(USED, {"namespace": namespace})
            amounts[namespace] = {row.name: int(row.amount) for row in rows}
        return amounts

    async def held(
        self, keys: Collection[tuple[str, str]]
    ) -> Mapping[tuple[str, str], Mapping[str, int]]:
        given = {
            "namespaces": [namespace for namespace, _ in keys],
            "names": [name for _, name in keys],
        }
        rows = await self._connection.execute(HELD, given)
        return {(row.namespace, row.name): row.held for row in rows}
