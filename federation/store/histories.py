"""Statements over the database's history: which one it is, and beginning another one.

Must not decide whether the database went back.
"""

from __future__ import annotations

from sqlalchemy import TIMESTAMP, BigInteger, TextClause, bindparam, text
from sqlalchemy.ext.asyncio import AsyncConnection

from federation.model.errors import Unavailable
from federation.services.journal import Bookmark, Position
from federation.services.journal_ports import History
from federation.store.engine import IMPAIRED
from federation.store.prepared import Prepared

EMPTIED = (
    "The database was emptied: restore it from a backup, or start a control plane anew on the "
    "empty one."
)
# Far more than can be lost of one history: no version of it is met again in another one.
VERSIONS_APART = 2**32

# Which server and which of its databases this is, and since when it leads: a standby that is
# promoted begins a timeline.
SERVER = text("""
    SELECT /* fedsched:history.server */
        system_identifier || '/' || oid || '/' || left(pg_walfile_name(pg_current_wal_lsn()), 8)
    FROM pg_control_system(), pg_database WHERE datname = current_database()
""")
ENSURE = text(
    "INSERT /* fedsched:history.ensure */ "
    "INTO database_incarnation (database) VALUES ('') ON CONFLICT DO NOTHING"
)
# Whoever guesses credentials has this asked again and again.
IS_THERE = Prepared(text("SELECT /* fedsched:history.is_there */ 1 FROM database_incarnation"))
GET = text("SELECT /* fedsched:history.get */ id::text, database FROM database_incarnation")
LOCK = text(
    "SELECT /* fedsched:history.lock */ id::text, database FROM database_incarnation FOR UPDATE"
)
SETTLE = text("UPDATE /* fedsched:history.settle */ database_incarnation SET database = :server")
RENEW = text(
    "UPDATE /* fedsched:history.renew */ "
    "database_incarnation SET id = gen_random_uuid(), database = :server RETURNING id::text"
)

# Capacity rows in the order in which everybody takes them.
LOCK_LEDGERS = text(
    "SELECT /* fedsched:history.lock_ledgers */ "
    "1 FROM cluster_capacity ORDER BY cluster_id FOR UPDATE"
)
FORGET_REPORTS = text("""
    WITH /* fedsched:history.forget_reports */ forgotten AS (DELETE FROM cluster_report)
    UPDATE cluster_capacity
    SET version = version + :apart, history = history # :nonce, received_at = NULL
""").bindparams(
    bindparam("apart", VERSIONS_APART, BigInteger), bindparam("nonce", type_=BigInteger)
)
FORGET_JOURNAL = text("TRUNCATE /* fedsched:history.forget_journal */ journal")
MOVE_HORIZON = text("""
    INSERT /* fedsched:history.move_horizon */ INTO journal_pruned_to (id)
    SELECT last_value FROM journal_id_seq WHERE is_called
    ON CONFLICT (is_only) DO UPDATE SET id = excluded.id
""")

# An entry that was pruned is not lost.
HOLDS = text("""
    SELECT /* fedsched:history.holds */ EXISTS (
        SELECT FROM journal WHERE id = :id AND created_at = :created_at
    ) OR EXISTS (
        SELECT FROM journal_pruned_to WHERE journal_pruned_to.id >= :id
    )
""").bindparams(
    bindparam("id", type_=BigInteger),
    bindparam("created_at", type_=TIMESTAMP(timezone=True)),
)
NEWEST = text("""
    SELECT /* fedsched:history.newest */
        id, created_at FROM journal WHERE id <= :id ORDER BY id DESC LIMIT 1
""").bindparams(bindparam("id", type_=BigInteger))


class HistoryStatements:
    """Implements ``journal_ports.Histories`` within one transaction."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    @property
    def known_to(self) -> set[object]:
        known: set[object] = self._connection.info.setdefault("history known to", set())
        return known

    async def check(self) -> None:
        if (await IS_THERE.execute(self._connection, {})).one_or_none() is None:
            raise Unavailable(EMPTIED, reason=IMPAIRED)

    async def get(self) -> History:
        return await self._read(GET)

    async def lock(self) -> History:
        return await self._read(LOCK)

    async def ensure(self) -> None:
        await self._connection.execute(ENSURE)

    async def settle(self) -> None:
        await self._connection.execute(SETTLE, {"server": await self._server()})

    async def forget(self, nonce: int) -> str:
        await self._connection.execute(LOCK_LEDGERS)
        await self._connection.execute(FORGET_REPORTS, {"nonce": nonce})
        given = {"server": await self._server()}
        begun = (await self._connection.execute(RENEW, given)).scalar_one()
        await self._connection.execute(FORGET_JOURNAL)
        await self._connection.execute(MOVE_HORIZON)
        return str(begun)

    async def bookmark(self, position: Position) -> Bookmark | None:
        row = (await self._connection.execute(NEWEST, {"id": position})).one_or_none()
        return None if row is None else Bookmark(row.id, row.created_at)

    async def holds(self, bookmark: Bookmark) -> bool:
        values = {"id": bookmark.position, "created_at": bookmark.created_at}
        return bool(await self._connection.scalar(HOLDS, values))

    async def _read(self, statement: TextClause) -> History:
        row = (await self._connection.execute(statement)).one_or_none()
        if row is None:
            raise Unavailable(EMPTIED, reason=IMPAIRED)
        return History(id=row.id, is_moved=row.database not in ("", await self._server()))

    async def _server(self) -> str:
        return str(await self._connection.scalar(SERVER))
