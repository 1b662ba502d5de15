"""Statements over the journal and the versions of clusters' ledgers.

Must not read what a change says: who applies it does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta

from sqlalchemy import (
    BigInteger,
    Interval,
    LargeBinary,
    Text,
    any_,
    bindparam,
    select,
    text,
    tuple_,
)
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.ext.asyncio import AsyncConnection

from federation.services.journal import (
    NO_NONCES,
    NONE_KNOWN,
    Change,
    Entry,
    LedgerVersion,
    Position,
)
from federation.store.journal_rows import change_of, packed_change
from federation.store.tables import cluster, cluster_capacity, journal_horizon
from federation.store.tables import journal as table

APPEND = text("""
    WITH appended AS (
        INSERT INTO journal (kind, body, nonce)
        SELECT kind, body, nonce FROM unnest(:kinds, :bodies, :nonces) WITH ORDINALITY
            AS given (kind, body, nonce, place)
        ORDER BY place RETURNING id
    )
    SELECT array_agg(id ORDER BY id) AS ids FROM appended
""").bindparams(
    bindparam("kinds", type_=ARRAY(Text)),
    bindparam("bodies", type_=ARRAY(LargeBinary)),
    bindparam("nonces", type_=ARRAY(BigInteger)),
)

ADVANCE = text("""
    UPDATE cluster_capacity
    SET version = given.version, history = cluster_capacity.history # given.nonce
    FROM unnest(:names, :versions, :nonces) AS given (name, version, nonce)
    JOIN cluster USING (name)
    WHERE cluster_capacity.cluster_id = cluster.id
""").bindparams(
    bindparam("names", type_=ARRAY(Text)),
    bindparam("versions", type_=ARRAY(BigInteger)),
    bindparam("nonces", type_=ARRAY(BigInteger)),
)

# The oldest transaction that may still commit; every earlier one has ended.
RUNNING = text("pg_snapshot_xmin(pg_current_snapshot())::text::bigint")
OURS = text("coalesce(pg_current_xact_id_if_assigned()::text::bigint, 0)")

LOCK = (
    select(cluster.c.name, cluster_capacity.c.version, cluster_capacity.c.history)
    .join(cluster, cluster.c.id == cluster_capacity.c.cluster_id)
    .where(cluster.c.name == any_(bindparam("names", type_=ARRAY(Text))))
    .order_by(cluster_capacity.c.cluster_id)
    .with_for_update(of=cluster_capacity)
)
AFTER = tuple_(table.c.xid, table.c.id) > tuple_(
    bindparam("xid", type_=BigInteger), bindparam("id", type_=BigInteger)
)
READ = (
    select(table.c.xid, table.c.id, table.c.kind, table.c.body, table.c.nonce)
    .where(AFTER, table.c.xid < RUNNING)
    .order_by(table.c.xid, table.c.id)
    .limit(bindparam("limit", type_=BigInteger))
)
READ_AHEAD = (
    select(table.c.id, table.c.kind, table.c.body, table.c.nonce)
    .where(AFTER, table.c.xid != OURS)
    .order_by(table.c.xid, table.c.id)
    .limit(bindparam("limit", type_=BigInteger))
)

# The oldest entries in the order they are read; what is left is read from the horizon on.
PRUNE = text("""
    WITH oldest AS (
        SELECT xid, id, created_at FROM journal
        WHERE xid < pg_snapshot_xmin(pg_current_snapshot())::text::bigint
        ORDER BY xid, id LIMIT :limit
    ), gone AS (
        DELETE FROM journal USING oldest
        WHERE journal.id = oldest.id AND oldest.created_at < now() - :age
        RETURNING journal.xid, journal.id
    ), marked AS (
        INSERT INTO journal_horizon AS stored (xid, id)
        SELECT xid, id FROM gone ORDER BY xid DESC, id DESC LIMIT 1
        ON CONFLICT (is_only) DO UPDATE SET xid = excluded.xid, id = excluded.id
        WHERE (stored.xid, stored.id) < (excluded.xid, excluded.id)
    )
    SELECT count(*) FROM gone
""").bindparams(bindparam("age", type_=Interval))


class JournalStatements:
    """Implements ``journal_ports.Journal`` within one transaction."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection
        self.has_appended = False

    async def lock(self, clusters: Sequence[str]) -> Mapping[str, LedgerVersion]:
        rows = await self._connection.execute(LOCK, {"names": list(clusters)})
        return {row.name: LedgerVersion(row.version, row.history) for row in rows}

    async def advance(
        self, versions: Mapping[str, int], nonces: Mapping[str, int] = NO_NONCES
    ) -> None:
        if versions:
            await self._connection.execute(
                ADVANCE,
                {
                    "names": [*versions],
                    "versions": [*versions.values()],
                    "nonces": [nonces.get(name, 0) for name in versions],
                },
            )

    async def append(self, changes: Sequence[Change]) -> Sequence[int]:
        if not changes:
            return ()
        self.has_appended = True
        kinds, bodies = zip(*map(packed_change, changes), strict=True)
        nonces = [each.nonce for each in changes]
        appended = await self._connection.execute(
            APPEND, {"kinds": kinds, "bodies": bodies, "nonces": nonces}
        )
        return list(appended.one().ids)

    async def read(
        self, after: Position, limit: int, known: Mapping[int, Change] = NONE_KNOWN
    ) -> Sequence[Entry]:
        given = {"xid": after.xid, "id": after.id, "limit": limit}
        rows = (await self._connection.execute(READ, given)).all()
        return [
            Entry(Position(xid, entry_id), known.get(entry_id) or change_of(kind, body, nonce))
            for xid, entry_id, kind, body, nonce in rows
        ]

    async def read_ahead(
        self, after: Position, limit: int, known: Mapping[int, Change] = NONE_KNOWN
    ) -> Sequence[Change]:
        given = {"xid": after.xid, "id": after.id, "limit": limit}
        rows = (await self._connection.execute(READ_AHEAD, given)).all()
        return [
            known.get(entry_id) or change_of(kind, body, nonce)
            for entry_id, kind, body, nonce in rows
        ]

    async def position(self) -> Position:
        return Position((await self._connection.execute(select(RUNNING))).scalar_one(), 0)

    async def oldest(self) -> Position:
        statement = select(journal_horizon.c.xid, journal_horizon.c.id)
        row = (await self._connection.execute(statement)).one_or_none()
        return Position() if row is None else Position(row.xid, row.id)

    async def prune(self, older_than_seconds: float, limit: int) -> int:
        age = timedelta(seconds=older_than_seconds)
        pruned = await self._connection.execute(PRUNE, {"age": age, "limit": limit})
        return int(pruned.scalar_one())
