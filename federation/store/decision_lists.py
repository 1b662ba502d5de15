"""Decisions in lists, the newest first.

Must not read traces, nor more rows than a page may look at: every list follows an index.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID

from sqlalchemy import (
    ColumnElement,
    Interval,
    Row,
    Select,
    bindparam,
    cast,
    func,
    select,
    text,
    tuple_,
)
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.ext.asyncio import AsyncConnection

from federation.history.trace_files import TracedDecision, TracedDeletion
from federation.history.workload_rows import target_rows
from federation.scheduler.decision import Outcome
from federation.services.decision_ports import (
    DecisionFilter,
    DecisionPage,
    DecisionPlace,
    ListedDecision,
)
from federation.store.bindings import targets_of
from federation.store.decision_tables import binding_deletion as deletion
from federation.store.decision_tables import decision as table
from federation.store.lists import is_one_of
from federation.store.namespaces import in_namespaces
from federation.store.statements import named

# How many decisions a page looks at where it leaves some out.
LOOKED_AT: Final = 5000
# In one chunk of a trace.
_MOST_RECORDED: Final = 1000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LAST: Final = datetime.max.replace(tzinfo=UTC)
_UNLISTED: Final = frozenset({"binding_id", "trace", "day"})
_COLUMNS: Final = tuple(each for each in table.c if each.name not in _UNLISTED)
PRUNE_DELETIONS: Final = text("""
    WITH /* fedsched:decisions.prune_deletions */ old AS (
        SELECT at, namespace, name FROM binding_deletion
        WHERE at < now() - :age ORDER BY at LIMIT :limit
    ), gone AS (
        DELETE FROM binding_deletion USING old
        WHERE binding_deletion.at = old.at AND binding_deletion.namespace = old.namespace
            AND binding_deletion.name = old.name
        RETURNING 1
    )
    SELECT count(*) FROM gone
""").bindparams(bindparam("age", type_=Interval))
_place_columns: Final = tuple_(table.c.created_at, table.c.id)


async def decision_page(
    connection: AsyncConnection, query: DecisionFilter, after: DecisionPlace | None, limit: int
) -> DecisionPage:
    """What ``decision_ports.Decisions.page`` says."""
    listed = select(*_COLUMNS).where(*_ranges(query, after))
    last = None
    if query.cluster or query.outcomes or query.among:
        last = await _last_looked_at(connection, query, after)
        if last is not None:
            listed = listed.where(_place_columns >= last)
        listed = listed.where(*_choices(query))
    rows = (
        await connection.execute(named("decisions.page", _newest_first(listed).limit(limit + 1)))
    ).all()
    decisions = tuple(map(_listed, rows[:limit]))
    if len(rows) > limit:
        return DecisionPage(decisions=decisions, next_after=decisions[-1].place)
    return DecisionPage(decisions=decisions, next_after=last and place_at(*last))


async def _last_looked_at(
    connection: AsyncConnection, query: DecisionFilter, after: DecisionPlace | None
) -> tuple[datetime, UUID] | None:
    """The last one that this page looks at; None where it comes to the end. The index has it."""
    found: Select[Any] = select(table.c.created_at, table.c.id).where(*_ranges(query, after))
    found = _newest_first(found).offset(LOOKED_AT - 1).limit(1)
    row = (await connection.execute(named("decisions.last_looked_at", found))).one_or_none()
    return None if row is None else (row.created_at, row.id)


async def recorded_after(
    connection: AsyncConnection, query: DecisionFilter, after: DecisionPlace, max_bytes: int
) -> Sequence[TracedDecision]:
    """What ``decision_ports.Decisions.recorded_after`` says."""
    sizes = select(table.c.id, func.octet_length(table.c.trace).label("size"))
    sizes = sizes.where(*_ranges(query, None), _place_columns > key_at(after))
    sizes = sizes.order_by(table.c.created_at, table.c.id).limit(_MOST_RECORDED)
    chosen: list[UUID] = []
    total = 0
    for row in (await connection.execute(named("decisions.recorded_sizes", sizes))).all():
        total += row.size
        if chosen and total > max_bytes:
            break
        chosen.append(row.id)
    if not chosen:
        return ()
    found: Select[Any] = select(*_COLUMNS, table.c.trace).where(is_one_of(table.c.id, chosen))
    found = found.order_by(table.c.created_at, table.c.id)
    return [*map(_traced, (await connection.execute(named("decisions.recorded", found))).all())]


async def deletions_between(
    connection: AsyncConnection, since: int, until: int
) -> Sequence[TracedDeletion]:
    """What ``decision_ports.Decisions.deletions_between`` says."""
    between = deletion.c.at > time_at(since), deletion.c.at <= time_at(until)
    statement = select(deletion).where(*between)
    statement = statement.order_by(deletion.c.at, deletion.c.namespace, deletion.c.name)
    rows = await connection.execute(named("decisions.deletions", statement))
    return [
        TracedDeletion(namespace=row.namespace, name=row.name, at=microseconds_of(row.at))
        for row in rows
    ]


async def prune_deletions(connection: AsyncConnection, keep_seconds: float, limit: int) -> int:
    """Implement ``decision_ports.Decisions.prune_deletions``."""
    values = {"age": timedelta(seconds=keep_seconds), "limit": limit}
    return int((await connection.execute(PRUNE_DELETIONS, values)).scalar_one())


def _ranges(query: DecisionFilter, after: DecisionPlace | None) -> Iterator[ColumnElement[bool]]:
    """What an index finds."""
    if query.namespace or query.name:
        yield table.c.namespace == query.namespace
    if query.name:
        yield table.c.name == query.name
    if query.since is not None:
        yield table.c.created_at >= time_at(round(query.since * 1_000_000))
    if query.until is not None:
        yield table.c.created_at < time_at(round(query.until * 1_000_000))
    if after is not None:
        yield _place_columns < key_at(after)


def _choices(query: DecisionFilter) -> Iterator[ColumnElement[bool]]:
    """What is looked for in each."""
    yield from in_namespaces(table.c.namespace, "", query.among)
    if query.outcomes:
        yield is_one_of(table.c.outcome, sorted(query.outcomes))
    if query.cluster:
        yield table.c.clusters.contains(cast([{"name": query.cluster}], JSONB))


def _newest_first(statement: Select[Any]) -> Select[Any]:
    return statement.order_by(table.c.created_at.desc(), table.c.id.desc())


def time_at(microseconds: int) -> datetime:
    """Since 1970; what is beyond all time is its end."""
    return _EPOCH + timedelta(microseconds=min(microseconds, microseconds_of(_LAST)))


def microseconds_of(time: datetime) -> int:
    """Since 1970."""
    return (time - _EPOCH) // timedelta(microseconds=1)


def key_at(place: DecisionPlace) -> tuple[datetime, UUID]:
    """The place as the columns have it."""
    return time_at(place[0]), UUID(place[1])


def place_at(time: datetime, decision_id: UUID) -> DecisionPlace:
    return microseconds_of(time), str(decision_id)


def _traced(row: Row[Any]) -> TracedDecision:
    return TracedDecision(
        id=str(row.id),
        namespace=row.namespace,
        name=row.name,
        at=microseconds_of(row.created_at),
        outcome=Outcome(row.outcome),
        clusters=tuple(target_rows(targets_of(row.clusters))),
        remainder=row.remainder,
        reason=row.reason,
        trace=bytes(row.trace),
    )


def _listed(row: Row[Any]) -> ListedDecision:
    return ListedDecision(
        id=str(row.id),
        namespace=row.namespace,
        name=row.name,
        binding_generation=row.binding_generation,
        created_at=row.created_at.timestamp(),
        outcome=Outcome(row.outcome),
        clusters=targets_of(row.clusters),
        remainder=row.remainder,
        reason=row.reason,
        algorithm_revision=row.algorithm_revision,
        triggers=tuple(row.triggers),
    )
