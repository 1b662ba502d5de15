"""Statements over failover: whether it is frozen, who has to move, and which evictions go on.

Must not decide who moves, nor when an eviction is over.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec
from sqlalchemy import BigInteger, Select, Text, bindparam, select, text, tuple_, update
from sqlalchemy.dialects.postgresql import ARRAY, insert
from sqlalchemy.ext.asyncio import AsyncConnection

from federation.failover.breaker import Breaker
from federation.history.binding_rows import EVICTION_TASKS
from federation.model.placement import EVICTION_PRODUCER, Binding, BindingName, EvictionTask
from federation.store.bindings import name_of, plain_binding
from federation.store.document_rows import BREAKERS
from federation.store.journal_tables import failover as table
from federation.store.lists import is_one_of
from federation.store.readable_rows import readable_page
from federation.store.statements import named
from federation.store.tables import binding, binding_cluster

# As the index has it.
EVICTED = text("binding.spec -> 'eviction_tasks' <> '[]'")
OURS = text("binding.spec -> 'eviction_tasks' @> CAST(:ours AS jsonb)").bindparams(
    ours=msgspec.json.encode([{"producer": EVICTION_PRODUCER}]).decode()
)
EVICTIONS = text("""
    SELECT /* fedsched:failover.evictions */
        count(*) FROM binding, jsonb_array_elements(binding.spec -> 'eviction_tasks') AS task
    WHERE binding.spec -> 'eviction_tasks' <> '[]' AND task ->> 'producer' = :producer
""").bindparams(producer=EVICTION_PRODUCER)
PUT_EVICTIONS = text("""
    UPDATE /* fedsched:failover.put_evictions */ binding
    SET spec = jsonb_set(spec, '{eviction_tasks}', given.body::jsonb),
        version = binding.version + 1, updated_at = now()
    FROM unnest(:ids, :bodies) AS given (id, body) WHERE binding.id = given.id
""").bindparams(bindparam("ids", type_=ARRAY(BigInteger)), bindparam("bodies", type_=ARRAY(Text)))
LEAVE = text("""
    UPDATE /* fedsched:failover.leave */ binding
    SET clusters = coalesce((
            SELECT jsonb_agg(share ORDER BY place)
            FROM jsonb_array_elements(clusters) WITH ORDINALITY AS shares (share, place)
            WHERE share ->> 'name' <> :cluster
        ), '[]'), version = version + 1, updated_at = now()
    WHERE id = ANY(:ids)
""").bindparams(bindparam("ids", type_=ARRAY(BigInteger)), bindparam("cluster", type_=Text))
REPLICAS = text("""
    SELECT /* fedsched:failover.replicas */ coalesce(sum(replicas), 0)::bigint FROM binding_cluster
""")


class FailoverStatements:
    """Implements ``journal_ports.StoredFailover`` within one transaction."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def get(self) -> Breaker:
        body = (
            await self._connection.execute(named("failover.get", select(table.c.body)))
        ).scalar_one_or_none()
        return Breaker() if body is None else BREAKERS.read(body)

    async def lock(self) -> Breaker:
        empty = insert(table).values(body=BREAKERS.builtins(Breaker()))
        await self._connection.execute(named("failover.begin", empty.on_conflict_do_nothing()))
        locked = select(table.c.body).with_for_update()
        return BREAKERS.read(
            (await self._connection.execute(named("failover.lock", locked))).scalar_one()
        )

    async def put(self, breaker: Breaker) -> None:
        await self._connection.execute(
            named("failover.put", update(table).values(body=BREAKERS.builtins(breaker)))
        )

    async def in_clusters(
        self, clusters: Collection[str], after: BindingName | None, limit: int
    ) -> Sequence[Binding]:
        present = select(binding_cluster.c.binding_id).where(
            is_one_of(binding_cluster.c.cluster, sorted(clusters))
        )
        statement = named("failover.in_clusters", select(binding).where(binding.c.id.in_(present)))
        return await self._page(statement, after, limit)

    async def evicted(self, after: BindingName | None, limit: int) -> Sequence[Binding]:
        return await self._page(
            named("failover.evicted", select(binding).where(EVICTED, OURS)), after, limit
        )

    async def evictions(self) -> int:
        return int((await self._connection.execute(EVICTIONS)).scalar_one())

    async def put_evictions(self, tasks: Mapping[int, Sequence[EvictionTask]]) -> None:
        bodies = [EVICTION_TASKS.json_of_all(of_binding) for of_binding in tasks.values()]
        await self._connection.execute(PUT_EVICTIONS, {"ids": [*tasks], "bodies": bodies})

    async def leave(self, cluster: str, binding_ids: Collection[int]) -> None:
        await self._connection.execute(LEAVE, {"cluster": cluster, "ids": [*binding_ids]})

    async def replicas(self) -> int:
        return int((await self._connection.execute(REPLICAS)).scalar_one())

    async def _page(
        self, statement: Select[Any], after: BindingName | None, limit: int
    ) -> Sequence[Binding]:
        return await readable_page(
            self._connection,
            lambda last: _after(statement, last),
            after,
            limit,
            plain_binding,
            name_of,
        )


def _after(statement: Select[Any], after: BindingName | None) -> Select[Any]:
    """Return the statement for bindings by ascending name, from behind one on."""
    ordered = statement.order_by(binding.c.namespace, binding.c.name)
    if after is None:
        return ordered
    return ordered.where(tuple_(binding.c.namespace, binding.c.name) > after)
