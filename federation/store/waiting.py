"""Bindings that wait for room: their rows, and statements over them.

Must not decide who is tried.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypeAlias

from sqlalchemy import (
    BigInteger,
    Double,
    Row,
    Text,
    bindparam,
    case,
    delete,
    func,
    literal_column,
    or_,
    select,
    text,
    tuple_,
    update,
)
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.ext.asyncio import AsyncConnection

from federation.model.placement import BindingName
from federation.model.waiting import Nomination, Wait, WaitState
from federation.services.binding_ports import (
    NOT_ORDERED,
    GangSummary,
    GangWait,
    NewWait,
    QueuedBinding,
    QueuePlace,
    WaitTally,
)
from federation.store.document_rows import NOMINATIONS
from federation.store.gangs import gangs_after
from federation.store.lists import is_one_of
from federation.store.namespaces import in_namespaces
from federation.store.statements import named
from federation.store.tables import binding, unix_seconds
from federation.store.tables import waiting as table

# In the order of their keys, so that two transactions never wait for each other.
PUT = text("""
    INSERT /* fedsched:waiting.put */ INTO waiting AS stored
        (binding_id, namespace, name, priority, state, gate, attempts, remainder, short_of,
        nominated)
    SELECT id, namespace, name, priority, state, gate, 1, remainder, short_of, nominated::jsonb
    FROM unnest(:ids, :namespaces, :names, :priorities, :states, :gates, :remainders, :shortages,
        :nominations)
        AS given (id, namespace, name, priority, state, gate, remainder, short_of, nominated)
    ORDER BY id
    ON CONFLICT (binding_id) DO UPDATE
    SET priority = excluded.priority, state = excluded.state, gate = excluded.gate,
        gang = '', entry = '', times_out = NULL,
        attempts = stored.attempts + 1, next_try = NULL, remainder = excluded.remainder,
        short_of = excluded.short_of,
        overtaken_since = CASE WHEN stored.binding_id = ANY(:changed) THEN NULL
            ELSE stored.overtaken_since END,
        overtaken_by = CASE WHEN stored.binding_id = ANY(:changed) THEN ''
            ELSE stored.overtaken_by END,
        earmarked_since = CASE WHEN stored.binding_id = ANY(:changed) THEN NULL
            ELSE stored.earmarked_since END,
        nominated = CASE WHEN stored.binding_id = ANY(:changed) THEN excluded.nominated
            ELSE coalesce(excluded.nominated, stored.nominated) END
""").bindparams(
    *(
        bindparam(name, type_=ARRAY(BigInteger))
        for name in ("ids", "priorities", "remainders", "changed")
    ),
    *(
        bindparam(name, type_=ARRAY(Text))
        for name in ("namespaces", "names", "states", "gates", "shortages", "nominations")
    ),
)
GATE = text("""
    INSERT /* fedsched:waiting.gate */ INTO waiting
        (binding_id, namespace, name, priority, state, gate, attempts, remainder, short_of)
    VALUES (:id, :namespace, :name, :priority, 'gated', :gate, 0, :remainder, :short_of)
    ON CONFLICT (binding_id) DO UPDATE
    SET state = excluded.state, gate = excluded.gate, next_try = NULL
""")
LOCK_TOGETHER = text("""
    SELECT /* fedsched:waiting.lock_together */
        binding_id FROM waiting WHERE binding_id = ANY(:ids) ORDER BY binding_id FOR UPDATE
""").bindparams(bindparam("ids", type_=ARRAY(BigInteger)))
TOGETHER = text("""
    UPDATE /* fedsched:waiting.put_together */ waiting
    SET gang = :gang, entry = :entry, priority = :priority, gate = :gate, since = first.since,
        ordered_at = NULL, times_out = first.since + make_interval(secs => :timeout),
        state = CASE WHEN :gate <> '' THEN 'gated' WHEN state = 'gated' THEN 'unschedulable'
            ELSE state END,
        next_try = CASE WHEN :gate <> '' THEN NULL ELSE next_try END,
        short_of = CASE WHEN :gate <> '' THEN :short_of ELSE short_of END
    FROM (SELECT min(since) AS since FROM waiting WHERE binding_id = ANY(:ids)) AS first
    WHERE binding_id = ANY(:ids)
""").bindparams(
    bindparam("ids", type_=ARRAY(BigInteger)),
    bindparam("timeout", type_=Double),
    *(bindparam(name, type_=Text) for name in ("gang", "entry", "gate", "short_of")),
)
# In the same order, all of them before any is changed.
LOCK = text("""
    SELECT /* fedsched:waiting.lock */
        binding_id FROM waiting WHERE binding_id = ANY(:ids) AND state <> 'gated'
    ORDER BY binding_id FOR UPDATE
""").bindparams(bindparam("ids", type_=ARRAY(BigInteger)))
REFUSED = text("""
    UPDATE /* fedsched:waiting.refuse */ waiting
    SET attempts = attempts + 1, state = 'unschedulable', next_try = NULL,
        short_of = given.short_of
    FROM unnest(:ids, :shortages) AS given (id, short_of) WHERE binding_id = given.id
""").bindparams(
    bindparam("ids", type_=ARRAY(BigInteger)), bindparam("shortages", type_=ARRAY(Text))
)
FAILED = text("""
    UPDATE /* fedsched:waiting.fail */ waiting
    SET attempts = attempts + 1, state = 'backoff',
        next_try = now() + given.seconds * interval '1 second'
    FROM unnest(:ids, :seconds) AS given (id, seconds) WHERE binding_id = given.id
""").bindparams(
    bindparam("ids", type_=ARRAY(BigInteger)), bindparam("seconds", type_=ARRAY(Double))
)
OVERTAKEN = text("""
    UPDATE /* fedsched:waiting.overtake */
        waiting SET overtaken_since = now(), overtaken_by = given.by
    FROM unnest(:ids, :others) AS given (id, by)
    WHERE binding_id = given.id AND overtaken_since IS NULL
""").bindparams(
    bindparam("ids", type_=ARRAY(BigInteger)),
    bindparam("others", type_=ARRAY(Text)),
)
EARMARKED = text("""
    UPDATE /* fedsched:waiting.earmark */ waiting SET earmarked_since = now()
    WHERE binding_id = ANY(:ids) AND earmarked_since IS NULL
""").bindparams(bindparam("ids", type_=ARRAY(BigInteger)))
ORDERED = text("""
    UPDATE /* fedsched:waiting.order */ waiting SET ordered_at = to_timestamp(given.instant)
    FROM unnest(:ids, :instants) AS given (id, instant) WHERE binding_id = given.id
""").bindparams(
    bindparam("ids", type_=ARRAY(BigInteger)), bindparam("instants", type_=ARRAY(Double))
)
IS_TRIED = table.c.state != literal_column(f"'{WaitState.GATED}'")
# Those of one gang share the place of its first member. As the index of the order has them.
PLACE = (
    -table.c.priority,
    func.coalesce(table.c.ordered_at, table.c.since),
    table.c.namespace,
    func.coalesce(func.nullif(table.c.entry, literal_column("''")), table.c.name),
)
ORDER = (*PLACE, table.c.name)
# Of a row that a binding is joined with: all null where it does not wait.
COLUMNS = (
    *(
        column.label(f"wait_{column.name}")
        for column in table.c
        if column.name not in ("binding_id", "namespace", "name")
    ),
    (table.c.times_out <= func.now()).label("wait_has_timed_out"),
)
# A row of the queue with its binding.
LISTED = select(
    table.c.namespace,
    table.c.name,
    table.c.priority,
    binding.c.uid,
    binding.c.decision_id,
    *COLUMNS,
).join(binding, binding.c.id == table.c.binding_id)
QueueOrder: TypeAlias = tuple[int, datetime, str, str]


class WaitingStatements:
    """Implements ``binding_ports.Waits`` within one transaction."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def put(self, waits: Sequence[NewWait]) -> None:
        await self._connection.execute(
            PUT,
            {
                "ids": [each.binding_id for each in waits],
                "namespaces": [each.namespace for each in waits],
                "names": [each.name for each in waits],
                "priorities": [each.priority for each in waits],
                "states": [each.state for each in waits],
                "gates": [each.gate for each in waits],
                "remainders": [each.remainder for each in waits],
                "shortages": [each.short_of for each in waits],
                "nominations": [_nomination_text(each.nominated) for each in waits],
                "changed": [each.binding_id for each in waits if each.is_changed],
            },
        )

    async def gate(self, wait: NewWait) -> None:
        await self._connection.execute(
            GATE,
            {
                "id": wait.binding_id,
                "namespace": wait.namespace,
                "name": wait.name,
                "priority": wait.priority,
                "gate": wait.gate,
                "remainder": wait.remainder,
                "short_of": wait.short_of,
            },
        )

    async def put_together(self, wait: GangWait) -> None:
        await self._connection.execute(LOCK_TOGETHER, {"ids": wait.binding_ids})
        given = {
            "ids": wait.binding_ids,
            "gang": wait.gang,
            "entry": wait.entry,
            "priority": wait.priority,
            "gate": wait.gate,
            "short_of": wait.short_of,
            "timeout": wait.timeout_seconds,
        }
        await self._connection.execute(TOGETHER, given)

    async def open(self, binding_id: int) -> None:
        opened = update(table).where(table.c.binding_id == binding_id)
        await self._connection.execute(
            named("waiting.open", opened.values(state=WaitState.UNSCHEDULABLE, gate=""))
        )

    async def remove(self, binding_ids: Collection[int]) -> None:
        gone = delete(table).where(is_one_of(table.c.binding_id, sorted(binding_ids)))
        await self._connection.execute(named("waiting.remove", gone))

    async def note(
        self,
        refused: Mapping[int, str],
        failed: Mapping[int, float],
        overtaken: Mapping[int, str],
        earmarked: Collection[int] = (),
        ordered: Mapping[int, float | None] = NOT_ORDERED,
    ) -> None:
        every = {*refused, *failed, *overtaken, *earmarked, *ordered}
        rows = await self._connection.execute(LOCK, {"ids": sorted(every)})
        held = set(rows.scalars())
        again = {each: why for each, why in refused.items() if each in held}
        if again:
            await self._connection.execute(
                REFUSED, {"ids": [*again], "shortages": [*again.values()]}
            )
        later = {each: seconds for each, seconds in failed.items() if each in held}
        if later:
            await self._connection.execute(FAILED, {"ids": [*later], "seconds": [*later.values()]})
        told = {each: one for each, one in overtaken.items() if each in held}
        if told:
            await self._connection.execute(
                OVERTAKEN,
                {"ids": [*told], "others": [*told.values()]},
            )
        kept_for = [each for each in earmarked if each in held]
        if kept_for:
            await self._connection.execute(EARMARKED, {"ids": kept_for})
        placed_by = {each: instant for each, instant in ordered.items() if each in held}
        if placed_by:
            given = {"ids": [*placed_by], "instants": [*placed_by.values()]}
            await self._connection.execute(ORDERED, given)

    async def gangs(
        self,
        namespace: str,
        after: BindingName | None,
        limit: int,
        *,
        among: Collection[str] = (),
    ) -> Sequence[GangSummary]:
        return await gangs_after(self._connection, namespace, after, limit, among)

    async def tallies(self) -> Mapping[WaitState, WaitTally]:
        waited = func.extract("epoch", func.now() - func.min(table.c.since))
        statement = select(
            table.c.state,
            func.count().label("bindings"),
            func.count(table.c.earmarked_since).label("earmarked"),
            waited.label("seconds"),
        ).group_by(table.c.state)
        return {
            WaitState(row.state): WaitTally(
                bindings=row.bindings,
                earmarked=row.earmarked,
                oldest_seconds=max(float(row.seconds), 0.0),
            )
            for row in await self._connection.execute(named("waiting.tallies", statement))
        }

    async def page(
        self,
        namespace: str,
        priority: int | None,
        after: QueuePlace | None,
        limit: int,
        *,
        among: Collection[str] = (),
    ) -> Sequence[QueuedBinding]:
        statement = LISTED.order_by(*ORDER).limit(limit)
        if after is not None:
            statement = statement.where(tuple_(*ORDER) > _values(after))
        if not (namespace or among or priority is not None):
            rows = (await self._connection.execute(named("waiting.page", statement))).all()
            if not rows:
                return []
            first = 1 if after is None else await self._position(_place_of(rows[0]))
            return list(map(_queued, rows, _positions(rows, first)))
        place = func.dense_rank().over(partition_by=IS_TRIED, order_by=PLACE)
        positions = select(
            table.c.binding_id, case((IS_TRIED, place), else_=0).label("position")
        ).subquery()
        statement = (
            statement.add_columns(positions.c.position)
            .join(positions, positions.c.binding_id == table.c.binding_id)
            .where(*in_namespaces(table.c.namespace, namespace, among))
        )
        if priority is not None:
            statement = statement.where(table.c.priority == priority)
        part = (await self._connection.execute(named("waiting.page_of_part", statement))).all()
        return [_queued(row, row.position) for row in part]

    async def position(self, place: QueuePlace) -> int:
        return await self._position(_values(place)[:-1])

    async def _position(self, place: QueueOrder) -> int:
        stands_for_all = or_(table.c.entry == literal_column("''"), table.c.entry == table.c.name)
        precedes = tuple_(*PLACE) < place
        counted = select(func.count()).where(IS_TRIED, stands_for_all, precedes)
        return 1 + int(await self._connection.scalar(named("waiting.position", counted)) or 0)


def wait_of(row: Row[Any]) -> Wait | None:
    """How a binding waits that was joined with ``COLUMNS``."""
    since = unix_seconds(row.wait_since)
    if since is None:
        return None
    return Wait(
        state=WaitState(row.wait_state),
        since=since,
        attempts=row.wait_attempts,
        next_try=unix_seconds(row.wait_next_try),
        remainder=row.wait_remainder,
        short_of=row.wait_short_of,
        gate=row.wait_gate,
        overtaken_since=unix_seconds(row.wait_overtaken_since),
        overtaken_by=row.wait_overtaken_by,
        earmarked_since=unix_seconds(row.wait_earmarked_since),
        nominated=None if row.wait_nominated is None else NOMINATIONS.read(row.wait_nominated),
        gang=row.wait_gang,
        entry=row.wait_entry,
        priority=row.wait_priority if row.wait_gang else 0,
        ordered_at=unix_seconds(row.wait_ordered_at),
        times_out=unix_seconds(row.wait_times_out),
        has_timed_out=bool(row.wait_has_timed_out),
    )


def _nomination_text(nominated: Nomination | None) -> str | None:
    """For an array of JSON documents, which travel as texts."""
    return None if nominated is None else NOMINATIONS.json(nominated)


def _place_of(row: Row[Any]) -> QueueOrder:
    ordered_at = row.wait_ordered_at or row.wait_since
    return -row.priority, ordered_at, row.namespace, row.wait_entry or row.name


def _positions(rows: Sequence[Row[Any]], first: int) -> Iterator[int]:
    """Yield the positions of rows in the order of the queue, whose first place is ``first``.

    Members of a gang share one, and 0 stands for a binding that is not tried.
    """
    position, last_place = first, None
    for row in rows:
        if row.wait_state == WaitState.GATED:
            yield 0
            continue
        place = _place_of(row)
        if last_place not in (None, place):
            position += 1
        last_place = place
        yield position


def _queued(row: Row[Any], position: int) -> QueuedBinding:
    wait = wait_of(row)
    if wait is None:
        raise LookupError("a row of the queue says nothing of a wait")
    return QueuedBinding(
        namespace=row.namespace,
        name=row.name,
        uid=row.uid,
        priority=row.priority,
        wait=wait,
        position=position,
        decision_id=str(row.decision_id or ""),
    )


def _values(place: QueuePlace) -> tuple[int, datetime, str, str, str]:
    since = datetime.fromtimestamp(place.since, UTC)
    return -place.priority, since, place.namespace, place.entry or place.name, place.name
