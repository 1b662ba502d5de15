"""Statements over bindings.

Must not decide what a placement is: it stores the one it is given.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypeAlias
from uuid import UUID

from sqlalchemy import (
    BigInteger,
    Boolean,
    DateTime,
    Row,
    Select,
    Text,
    Uuid,
    bindparam,
    cast,
    delete,
    func,
    or_,
    select,
    text,
    tuple_,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB, JSONPATH
from sqlalchemy.ext.asyncio import AsyncConnection

from federation.model.placement import Binding
from federation.services.ports import Peers, Settled, StoredBinding
from federation.store.rows import (
    binding_of,
    binding_spec,
    json_text,
    stored_binding,
    targets_of,
)
from federation.store.tables import binding as table

TEXTS = ("namespaces", "names", "uids", "specs", "clusters", "groups", "anti_groups")
Key: TypeAlias = tuple[str, str]

ADD = text("""
    INSERT INTO binding (namespace, name, uid, generation, version, spec, clusters,
        observed_affinity, affinity_group, anti_affinity_group, last_scheduled_at)
    SELECT namespace, name, uid, generation, 1, spec::jsonb, clusters::jsonb,
        '', affinity_group, anti_affinity_group, last_scheduled_at
    FROM unnest(:namespaces, :names, :uids, :generations, :specs, :clusters, :groups, :anti_groups,
            :times)
        AS given (namespace, name, uid, generation, spec, clusters, affinity_group,
            anti_affinity_group, last_scheduled_at)
    ORDER BY namespace COLLATE "C", name COLLATE "C"
    ON CONFLICT DO NOTHING
    RETURNING id, namespace, name, version, decision_id, observed_affinity, last_scheduled_at
""").bindparams(
    *(bindparam(name, type_=ARRAY(Text)) for name in TEXTS),
    bindparam("generations", type_=ARRAY(BigInteger)),
    bindparam("times", type_=ARRAY(DateTime(timezone=True))),
)
PUT = text("""
    UPDATE binding
    SET uid = given.uid, generation = given.generation, version = binding.version + 1,
        spec = given.spec::jsonb, clusters = given.clusters::jsonb,
        affinity_group = given.affinity_group, anti_affinity_group = given.anti_affinity_group,
        decision_id = given.decision_id, observed_affinity = given.observed,
        last_scheduled_at = CASE WHEN placed THEN now() ELSE binding.last_scheduled_at END,
        updated_at = now()
    FROM unnest(:ids, :namespaces, :names, :uids, :generations, :specs, :clusters, :groups,
            :anti_groups, :decisions, :observed, :placed)
        AS given (id, namespace, name, uid, generation, spec, clusters, affinity_group,
            anti_affinity_group, decision_id, observed, placed)
    WHERE binding.id = given.id
    RETURNING binding.id, binding.namespace, binding.name, binding.version, binding.decision_id,
        binding.observed_affinity, binding.last_scheduled_at
""").bindparams(
    *(bindparam(name, type_=ARRAY(Text)) for name in (*TEXTS, "observed")),
    bindparam("ids", type_=ARRAY(BigInteger)),
    bindparam("generations", type_=ARRAY(BigInteger)),
    bindparam("decisions", type_=ARRAY(Uuid)),
    bindparam("placed", type_=ARRAY(Boolean)),
)
# Groups have no rows of their own. Numbers are locked in ascending order, whatever they stand for.
LOCK_GROUPS = text("""
    SELECT pg_advisory_xact_lock(ordered.id) FROM (
        SELECT DISTINCT hashtextextended('fedsched group ' || key, 0) AS id
        FROM unnest(:keys) AS given (key) ORDER BY id
    ) AS ordered
""").bindparams(bindparam("keys", type_=ARRAY(Text)))
HOLDS_REPLICAS = "$[*] ? (@.name == $name && @.replicas > 0)"


class BindingStatements:
    """Implements ``ports.Bindings`` within one transaction."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def get(self, namespace: str, name: str) -> StoredBinding | None:
        return await self._one(_named(namespace, name))

    async def lock(self, namespace: str, name: str) -> StoredBinding | None:
        return (await self.lock_all([(namespace, name)])).get((namespace, name))

    async def find(self, keys: Collection[Key]) -> Mapping[Key, StoredBinding]:
        return await self._keyed(_among(keys))

    async def lock_all(self, keys: Collection[Key]) -> Mapping[Key, StoredBinding]:
        ordered = _among(keys).order_by(table.c.namespace, table.c.name)
        return await self._keyed(ordered.with_for_update(of=table))

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

    async def lock_groups(self, bindings: Sequence[Binding]) -> None:
        keys = {
            f"{each.namespace}/{group}" for each in bindings for group in _groups(each) if group
        }
        if keys:
            await self._connection.execute(LOCK_GROUPS, {"keys": sorted(keys)})

    async def add_all(self, bindings: Sequence[Binding]) -> Mapping[Key, StoredBinding]:
        rows = await self._connection.execute(
            ADD,
            _columns(bindings) | {"times": [_time(each.last_scheduled_time) for each in bindings]},
        )
        given = {(each.namespace, each.name): each for each in bindings}
        return {
            (row.namespace, row.name): stored_binding(row, given[row.namespace, row.name])
            for row in rows
        }

    async def put_all(
        self, bindings: Sequence[tuple[int, Binding, Settled]]
    ) -> Mapping[Key, StoredBinding]:
        rows = await self._connection.execute(
            PUT,
            _columns([binding for _, binding, _ in bindings])
            | {
                "ids": [binding_id for binding_id, _, _ in bindings],
                "decisions": [UUID(outcome.decision_id) for _, _, outcome in bindings],
                "observed": [outcome.observed_affinity for _, _, outcome in bindings],
                "placed": [outcome.placed for _, _, outcome in bindings],
            },
        )
        given = {binding_id: binding for binding_id, binding, _ in bindings}
        return {(row.namespace, row.name): stored_binding(row, given[row.id]) for row in rows}

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

    async def _keyed(self, statement: Select[Any]) -> Mapping[Key, StoredBinding]:
        rows = await self._connection.execute(statement)
        return {(row.namespace, row.name): binding_of(row) for row in rows}

    async def _one(self, statement: Select[Any]) -> StoredBinding | None:
        row = (await self._connection.execute(statement)).one_or_none()
        return None if row is None else binding_of(row)


def _named(namespace: str, name: str) -> Select[Any]:
    return select(table).where(table.c.namespace == namespace, table.c.name == name)


def _among(keys: Collection[Key]) -> Select[Any]:
    """One statement however many there are, which the server prepares once."""
    wanted = (
        func.unnest(
            bindparam("namespaces", [namespace for namespace, _ in keys], ARRAY(Text)),
            bindparam("names", [name for _, name in keys], ARRAY(Text)),
        )
        .table_valued("namespace", "name")
        .render_derived()
    )
    return select(table).join(
        wanted,
        (table.c.namespace == wanted.c.namespace) & (table.c.name == wanted.c.name),
    )


def _columns(bindings: Sequence[Binding]) -> dict[str, list[Any]]:
    groups = [_groups(each) for each in bindings]
    return {
        "namespaces": [each.namespace for each in bindings],
        "names": [each.name for each in bindings],
        "uids": [each.uid for each in bindings],
        "generations": [each.generation for each in bindings],
        "specs": [json_text(binding_spec(each)) for each in bindings],
        "clusters": [json_text(each.clusters) for each in bindings],
        "groups": [group for group, _ in groups],
        "anti_groups": [anti_group for _, anti_group in groups],
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
