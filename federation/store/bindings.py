"""Bindings: their rows, and statements over them.

Must not decide what a placement is: it stores the one it is given. What has a column of its own is
not repeated in a document.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Double,
    Row,
    Select,
    Text,
    any_,
    bindparam,
    cast,
    exists,
    func,
    or_,
    select,
    text,
    true,
    tuple_,
    union,
    update,
)
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.ext.asyncio import AsyncConnection

from federation.history.binding_rows import BINDINGS, SPECS, BindingSpecRow
from federation.history.bodies import NewerBody
from federation.history.workload_rows import TARGETS
from federation.model.errors import FederationError
from federation.model.placement import Binding, BindingName, binding_key, groups_of
from federation.model.workload import TargetCluster
from federation.services.binding_ports import (
    BindingStanding,
    BindingsToDecide,
    Peers,
    StoredBinding,
)
from federation.store.access_tables import namespace_quota
from federation.store.gangs import GANG
from federation.store.namespaces import in_namespaces
from federation.store.readable_rows import readable_page, readable_values
from federation.store.statements import named
from federation.store.tables import binding as table
from federation.store.tables import binding_cluster, unix_seconds, waiting
from federation.store.waiting import COLUMNS as WAIT_COLUMNS
from federation.store.waiting import IS_TRIED, wait_of
from federation.store.waiting import ORDER as WAITING_ORDER

DELETE = text("""
    WITH /* fedsched:bindings.delete */ deleted AS (
        DELETE FROM binding WHERE id = :id RETURNING namespace, name
    )
    INSERT INTO binding_deletion (namespace, name) SELECT namespace, name FROM deleted
""")
# Groups have no rows of their own. Numbers are locked in ascending order, whatever they stand for.
LOCK_GROUPS = text("""
    SELECT /* fedsched:bindings.lock_groups */ pg_advisory_xact_lock(ordered.id) FROM (
        SELECT DISTINCT hashtextextended('fedsched group ' || key, 0) AS id
        FROM unnest(:keys) AS given (key) ORDER BY id
    ) AS ordered
""").bindparams(bindparam("keys", type_=ARRAY(Text)))
# One statement however many there are: it is built and prepared once.
_given = (
    func.unnest(bindparam("namespaces", type_=ARRAY(Text)), bindparam("names", type_=ARRAY(Text)))
    .table_valued("namespace", "name")
    .render_derived()
)
# With how each waits, where it does.
NAMED = (
    select(table, *WAIT_COLUMNS)
    .join(_given, (table.c.namespace == _given.c.namespace) & (table.c.name == _given.c.name))
    .outerjoin(waiting, waiting.c.binding_id == table.c.id)
)
FIND = named("bindings.find", NAMED)
WAITING = select(table, *WAIT_COLUMNS).join(waiting, waiting.c.binding_id == table.c.id)
_has_place = func.jsonb_array_length(table.c.clusters) > 0
STANDS: Mapping[BindingStanding, ColumnElement[bool]] = {
    BindingStanding.PLACED: _has_place,
    BindingStanding.WAITING: exists().where(waiting.c.binding_id == table.c.id),
    BindingStanding.NOWHERE: ~_has_place,
}
# The same, always with one row at least: what is found of none has no id.
_beside = select(
    exists()
    .where(waiting.c.earmarked_since.is_not(None) | waiting.c.nominated.is_not(None))
    .label("room_is_kept"),
    exists()
    .where(namespace_quota.c.namespace == any_(bindparam("namespaces", type_=ARRAY(Text))))
    .label("has_quotas"),
).subquery()
_found = table.join(
    _given, (table.c.namespace == _given.c.namespace) & (table.c.name == _given.c.name)
).outerjoin(waiting, waiting.c.binding_id == table.c.id)
TO_DECIDE = named(
    "bindings.to_decide",
    select(table, *WAIT_COLUMNS, _beside).select_from(_beside.outerjoin(_found, true())),
)
LOCKED = named(
    "bindings.lock", NAMED.order_by(table.c.namespace, table.c.name).with_for_update(of=table)
)
PREEMPTIBLE = named(
    "bindings.preemptible",
    NAMED.where(
        cast(table.c.spec["priority"].astext, BigInteger) < bindparam("below"),
        func.coalesce(table.c.spec["preemptible"].astext, "true") == "true",
    )
    .order_by(cast(table.c.spec["priority"].astext, BigInteger), table.c.namespace, table.c.name)
    .limit(bindparam("most")),
)
OF_GANG = named(
    "bindings.of_gang",
    select(table, *WAIT_COLUMNS)
    .outerjoin(waiting, waiting.c.binding_id == table.c.id)
    .where(table.c.namespace == bindparam("namespace"), bindparam("gang", type_=Text) == GANG)
    .order_by(table.c.name),
)
KEPT_UNTIL = cast(waiting.c.nominated["until"].astext, Double)
_earmarked, _nominated = (
    select(waiting.c.binding_id)
    .where(condition, IS_TRIED)
    .order_by(*order)
    .limit(bindparam(most))
    .subquery()
    for condition, order, most in (
        (waiting.c.earmarked_since.is_not(None), WAITING_ORDER, "earmarked"),
        (waiting.c.nominated.is_not(None), (KEPT_UNTIL.desc(),), "nominated"),
    )
)
_kept = union(select(_earmarked.c.binding_id), select(_nominated.c.binding_id)).subquery()
KEPT_FOR = named(
    "bindings.earmarked",
    WAITING.join(_kept, _kept.c.binding_id == waiting.c.binding_id).order_by(*WAITING_ORDER),
)
# The order of the queue is followed until one has the name.
_schedulers = (
    func.unnest(bindparam("scheduler_names", type_=ARRAY(Text)))
    .table_valued("name")
    .render_derived()
)
_first = (
    WAITING.where(table.c.spec["scheduler_name"].astext == _schedulers.c.name, IS_TRIED)
    .order_by(*WAITING_ORDER)
    .limit(1)
    .lateral()
)
FIRST_WAITING = named(
    "bindings.first_waiting",
    select(_first).select_from(_schedulers.join(_first, true())).order_by(_schedulers.c.name),
)
_in_cluster = select(binding_cluster.c.binding_id).where(
    binding_cluster.c.cluster == bindparam("cluster")
)
# In the order of the index: by name the planner would look through all bindings for the first.
_holding = (
    _in_cluster.where(binding_cluster.c.replicas > 0)
    .order_by(binding_cluster.c.binding_id)
    .limit(bindparam("most"))
    .subquery()
)
HOLDING = named(
    "bindings.holding",
    select(table.c.namespace, table.c.name)
    .join(_holding, _holding.c.binding_id == table.c.id)
    .order_by(table.c.namespace, table.c.name),
)
IN_CLUSTER = named(
    "bindings.in_cluster",
    select(table.c.namespace, table.c.name)
    .where(table.c.id.in_(_in_cluster))
    .order_by(table.c.namespace, table.c.name),
)


class BindingStatements:
    """Implements ``binding_ports.Bindings`` within one transaction."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def get(self, namespace: str, name: str) -> StoredBinding | None:
        return (await self.find([(namespace, name)])).get((namespace, name))

    async def lock(self, namespace: str, name: str) -> StoredBinding | None:
        return (await self.lock_all([(namespace, name)])).get((namespace, name))

    async def find(
        self, keys: Collection[BindingName], unread: set[BindingName] | None = None
    ) -> Mapping[BindingName, StoredBinding]:
        if unread is None:
            return await self._keyed(FIND, keys)
        rows = (await self._connection.execute(FIND, _named(keys))).all()
        readable = {
            (stored.binding.namespace, stored.binding.name): stored
            for stored in readable_values(rows, binding_of)
        }
        unread.update({name_of(row) for row in rows} - readable.keys())
        return readable

    async def to_decide(self, keys: Collection[BindingName]) -> BindingsToDecide:
        rows = (await self._connection.execute(TO_DECIDE, _named(keys))).all()
        known: dict[BindingName, StoredBinding] = {}
        unread: dict[BindingName, FederationError] = {}
        for row in rows:
            try:
                if row.id:
                    known[name_of(row)] = binding_of(row)
            except NewerBody as error:
                unread[name_of(row)] = error
        first = rows[0]
        return BindingsToDecide(known, first.room_is_kept, first.has_quotas, unread)

    async def lock_all(self, keys: Collection[BindingName]) -> Mapping[BindingName, StoredBinding]:
        return await self._keyed(LOCKED, keys)

    async def preemptible(
        self, keys: Collection[BindingName], below: int, limit: int
    ) -> Mapping[BindingName, StoredBinding]:
        given = {**_named(keys), "below": below, "most": limit}
        rows = (await self._connection.execute(PREEMPTIBLE, given)).all()
        readable = readable_values(rows, binding_of)
        return {(one.binding.namespace, one.binding.name): one for one in readable}

    async def peers(self, binding: Binding) -> Peers:
        group, anti_group = groups_of(binding)
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
        rows = (
            await self._connection.execute(
                named("bindings.peers", statement.order_by(table.c.name))
            )
        ).all()
        return Peers(
            affinity=tuple(_where(row) for row in rows if group and row.affinity_group == group),
            anti_affinity=tuple(
                _where(row) for row in rows if anti_group and row.anti_affinity_group == anti_group
            ),
        )

    async def lock_groups(self, bindings: Sequence[Binding]) -> None:
        keys = {
            f"{each.namespace}/{group}" for each in bindings for group in groups_of(each) if group
        }
        keys |= {f"gang {each.namespace}/{each.gang.name}" for each in bindings if each.gang}
        if keys:
            await self._connection.execute(LOCK_GROUPS, {"keys": sorted(keys)})

    async def of_gang(self, namespace: str, gang: str) -> Sequence[StoredBinding]:
        rows = await self._connection.execute(OF_GANG, {"namespace": namespace, "gang": gang})
        return [binding_of(row) for row in rows]

    async def page(
        self,
        namespace: str,
        after: tuple[str, str] | None,
        limit: int,
        *,
        among: Collection[str] = (),
        part: str = "",
        standing: BindingStanding | None = None,
    ) -> Sequence[Binding]:
        statement = _after(select(table), after, limit)
        statement = statement.where(*in_namespaces(table.c.namespace, namespace, among))
        if part:
            statement = statement.where(table.c.name.contains(part, autoescape=True))
        if standing is not None:
            statement = statement.where(STANDS[standing])
        return [
            plain_binding(row)
            for row in await self._connection.execute(named("bindings.page", statement))
        ]

    async def names(
        self, namespace: str, after: BindingName | None, limit: int
    ) -> Sequence[BindingName]:
        statement = _after(select(table.c.namespace, table.c.name), after, limit)
        statement = statement.where(*in_namespaces(table.c.namespace, namespace, ()))
        return [
            (row.namespace, row.name)
            for row in await self._connection.execute(named("bindings.names", statement))
        ]

    async def waiting(self, after: int, limit: int) -> Sequence[StoredBinding]:
        return await readable_page(
            self._connection,
            lambda last: named(
                "bindings.waiting", WAITING.where(table.c.id > last).order_by(table.c.id)
            ),
            after,
            limit,
            binding_of,
            lambda row: int(row.id),
        )

    async def earmarked(self, limit: int, nominated: int = 0) -> Sequence[StoredBinding]:
        given = {"earmarked": limit, "nominated": nominated}
        rows = (await self._connection.execute(KEPT_FOR, given)).all()
        return readable_values(rows, binding_of)

    async def first_waiting(self, scheduler_names: Collection[str]) -> Sequence[StoredBinding]:
        parameters = {"scheduler_names": sorted(scheduler_names)}
        rows = (await self._connection.execute(FIRST_WAITING, parameters)).all()
        return readable_values(rows, binding_of)

    async def holding(self, cluster: str, limit: int) -> Sequence[BindingName]:
        rows = await self._connection.execute(HOLDING, {"cluster": cluster, "most": limit})
        return [(row.namespace, row.name) for row in rows]

    async def in_cluster(self, cluster: str) -> Sequence[BindingName]:
        rows = await self._connection.execute(IN_CLUSTER, {"cluster": cluster})
        return [(row.namespace, row.name) for row in rows]

    async def delete(self, binding_id: int) -> None:
        await self._connection.execute(DELETE, {"id": binding_id})

    async def touch(self, binding_id: int) -> None:
        newer = update(table).where(table.c.id == binding_id).values(version=table.c.version + 1)
        await self._connection.execute(named("bindings.touch", newer))

    async def _keyed(
        self, statement: Select[Any], keys: Collection[BindingName]
    ) -> Mapping[BindingName, StoredBinding]:
        rows = await self._connection.execute(statement, _named(keys))
        return {(row.namespace, row.name): binding_of(row) for row in rows}


def _named(keys: Collection[BindingName]) -> dict[str, Any]:
    """As ``NAMED`` takes them."""
    return {"namespaces": [each for each, _ in keys], "names": [each for _, each in keys]}


def name_of(row: Row[Any]) -> BindingName:
    return row.namespace, row.name


def _after(statement: Select[Any], after: BindingName | None, limit: int) -> Select[Any]:
    """A page of it by names."""
    if after is not None:
        statement = statement.where(tuple_(table.c.namespace, table.c.name) > after)
    return statement.order_by(table.c.namespace, table.c.name).limit(limit)


def _where(row: Row[Any]) -> frozenset[str]:
    return frozenset(target.name for target in targets_of(row.clusters))


def binding_spec(binding: Binding) -> BindingSpecRow:
    """Return what has no column of its own, to be encoded with a whole."""
    return SPECS.pack(binding)


def binding_of(row: Row[Any]) -> StoredBinding:
    """A row of ``NAMED``.

    An older release does not write whether a binding is unsettled: one that waits may be.
    """
    binding, wait = plain_binding(row), wait_of(row)
    if wait is not None and "is_unsettled" not in row.spec:
        binding = replace(binding, is_unsettled=True)
    return StoredBinding(
        id=row.id,
        binding=binding,
        decision_id=str(row.decision_id or ""),
        observed_affinity=row.observed_affinity,
        wait=wait,
    )


def plain_binding(row: Row[Any]) -> Binding:
    """A row of the table."""
    return BINDINGS.read(
        {
            **row.spec,
            "namespace": row.namespace,
            "name": row.name,
            "uid": row.uid,
            "generation": row.generation,
            "resource_version": row.version,
            "stored_id": row.id,
            "clusters": row.clusters,
            "last_scheduled_time": unix_seconds(row.last_scheduled_at),
        },
        f"binding {binding_key(row.namespace, row.name)!r}",
    )


def targets_of(clusters: Any) -> tuple[TargetCluster, ...]:
    """Return the shares of clusters that a JSONB column holds."""
    return TARGETS.read_all(clusters)
