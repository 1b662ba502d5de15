"""Tables in partitions by day: making those of the days to come, and dropping old ones.

Must not know what a table is about. A partition ``TABLE_YYYYMMDD`` has the rows of that day, and
the first one also those of earlier days. A row without a partition is refused: days are made two
weeks ahead. A lock of a whole table holds up all others: nobody waits long for one.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import Integer, Text, bindparam, text
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.ext.asyncio import AsyncConnection

TABLES: Final = ("decision", "report_picture", "report_round", "audit")
DAYS_AHEAD: Final = 14
PATIENCE: Final = text("SET /* fedsched:partitions.patience */ LOCAL lock_timeout = '50ms'")
# Control planes that start make the same days.
LOCK: Final = text("""
    SELECT /* fedsched:partitions.lock */
        pg_advisory_xact_lock(hashtextextended('fedsched partitions', 0))
""")

_PARAMETERS: Final = (bindparam("tables", type_=ARRAY(Text)), bindparam("ahead", type_=Integer))
MISSING: Final = text("""
    SELECT /* fedsched:partitions.missing */
        parent, quote_ident(parent || to_char(day, '_YYYYMMDD')) AS name, day::date AS day
    FROM unnest(:tables) AS parent, generate_series(0, :ahead - 1) AS n,
        LATERAL (SELECT ((now() AT TIME ZONE 'utc')::date + n)::timestamp AS day) AS days
    WHERE to_regclass(parent || to_char(day, '_YYYYMMDD')) IS NULL
    ORDER BY parent, day
""").bindparams(*_PARAMETERS)
# Until the first day that is missing, today's included.
DAYS_LEFT: Final = text("""
    SELECT /* fedsched:partitions.days_left */ coalesce(min(n), :ahead)
    FROM unnest(:tables) AS parent, generate_series(0, :ahead - 1) AS n
    WHERE to_regclass(parent
        || to_char(((now() AT TIME ZONE 'utc')::date + n)::timestamp, '_YYYYMMDD')) IS NULL
""").bindparams(*_PARAMETERS)
# Names of one length: they are in the order of their days.
OLDEST: Final = text("""
    SELECT /* fedsched:partitions.oldest */ quote_ident(child.relname) FROM pg_inherits
    JOIN pg_class child ON child.oid = inhrelid
    WHERE inhparent = to_regclass(:table) AND child.relname ~ '_[0-9]{8}$'
        AND to_date(right(child.relname, 8), 'YYYYMMDD')
            < ((now() - make_interval(secs => :age)) AT TIME ZONE 'utc')::date
    ORDER BY child.relname LIMIT 1
""")


class PartitionStatements:
    """Implements ``ports.Partitions`` within one transaction."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def make(self) -> int:
        parameters = {"tables": list(TABLES), "ahead": DAYS_AHEAD}
        await self._connection.execute(LOCK)
        missing = (await self._connection.execute(MISSING, parameters)).all()
        if missing:
            await self._connection.execute(PATIENCE)
        # A new table that is attached holds up nobody who reads or writes its parent.
        for parent, name, day in missing:
            creation = f"CREATE /* fedsched:partitions.make */ TABLE {name} (LIKE {parent}"
            await self._connection.execute(text(f"{creation} INCLUDING ALL)"))
            await self._connection.execute(
                text(
                    f"ALTER /* fedsched:partitions.attach */ TABLE {parent} ATTACH PARTITION {name}"
                    f" FOR VALUES FROM ('{day}') TO (date '{day}' + 1)"
                )
            )
        return len(missing)

    async def days_left(self) -> int:
        parameters = {"tables": list(TABLES), "ahead": DAYS_AHEAD}
        return int((await self._connection.execute(DAYS_LEFT, parameters)).scalar_one())


async def oldest_partition(
    connection: AsyncConnection, table: str, older_than_seconds: float
) -> str | None:
    """Return the name of a day that is so long over, None if there is none."""
    given = {"table": table, "age": older_than_seconds}
    name: str | None = await connection.scalar(OLDEST, given)
    return name


async def drop_partition(connection: AsyncConnection, name: str) -> None:
    """Raises Conflict where others use its table long."""
    await connection.execute(PATIENCE)
    await connection.execute(text(f"DROP /* fedsched:partitions.drop */ TABLE {name}"))
