"""Tables in partitions by day: making those of the days to come, and dropping old ones.

Must not know what a table is about. A partition ``TABLE_YYYYMMDD`` has what was written on that
day, the first one also what was written before; ``TABLE_rest`` what has no partition of its own.
Whoever waits for a table's lock holds up all others: nobody waits long here.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

DAYS_AHEAD: Final = 3
LOCK_TIMEOUT: Final = text("SET /* fedsched:partitions.patience */ LOCAL lock_timeout = '50ms'")

MISSING: Final = text("""
    SELECT /* fedsched:partitions.missing */ day::date AS day, to_char(day, 'YYYYMMDD') AS suffix
    FROM generate_series(0, :ahead - 1) AS n,
        LATERAL (SELECT ((now() AT TIME ZONE 'utc')::date + n)::timestamp AS day) AS days
    WHERE to_regclass(:table || '_' || to_char(day, 'YYYYMMDD')) IS NULL
    ORDER BY day
""")
# Names of one length: they are in the order of their days.
OLDEST: Final = text("""
    SELECT /* fedsched:partitions.oldest */ child.relname FROM pg_inherits
    JOIN pg_class child ON child.oid = inhrelid
    WHERE inhparent = to_regclass(:table) AND child.relname ~ '_[0-9]{8}$'
        AND to_date(right(child.relname, 8), 'YYYYMMDD')
            < ((now() - make_interval(secs => :age)) AT TIME ZONE 'utc')::date
    ORDER BY child.relname LIMIT 1
""")


async def make_partitions(connection: AsyncConnection, table: str) -> int:
    """Of today and the days to come; how many. Raises Conflict where others use the table long."""
    missing = (await connection.execute(MISSING, {"table": table, "ahead": DAYS_AHEAD})).all()
    made = 0
    for day, suffix in missing:
        rows = f"SELECT FROM {table}_rest WHERE day = :day"
        is_in_rest = text(f"SELECT /* fedsched:partitions.is_in_rest */ EXISTS ({rows})")
        if (await connection.execute(is_in_rest, {"day": day})).scalar_one():
            continue
        await connection.execute(LOCK_TIMEOUT)
        await connection.execute(
            text(
                f"CREATE /* fedsched:partitions.make */ TABLE {table}_{suffix} PARTITION OF {table}"
                f" FOR VALUES FROM ('{day}') TO (date '{day}' + 1)"
            )
        )
        made += 1
    return made


async def oldest_partition(
    connection: AsyncConnection, table: str, older_than_seconds: float
) -> str | None:
    """Of a day that is so long over; None: there is no such day."""
    given = {"table": table, "age": older_than_seconds}
    name: str | None = await connection.scalar(OLDEST, given)
    return name


async def drop_partition(connection: AsyncConnection, name: str) -> None:
    """Raises Conflict where others use its table long."""
    await connection.execute(LOCK_TIMEOUT)
    await connection.execute(text(f"DROP /* fedsched:partitions.drop */ TABLE {name}"))
