"""Statements over reports that are kept: rounds, and the pictures that they name.

Must not look into a body.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import date
from typing import Final

from sqlalchemy import Date, LargeBinary, bindparam, func, select, text
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.ext.asyncio import AsyncConnection

from federation.services.member_ports import DatabaseTime, KeptRound
from federation.store.decision_lists import microseconds_of, time_at
from federation.store.kept_report_tables import report_picture, report_round
from federation.store.lists import is_one_of
from federation.store.partitions import drop_partition, oldest_partition
from federation.store.statements import named

TABLES: Final = ("report_picture", "report_round")

NOW: Final = text(
    "SELECT /* fedsched:kept_reports.now */ "
    "clock_timestamp() AS at, (now() AT TIME ZONE 'utc')::date AS day"
)
# In ascending order: two that write the same wait for each other, and never in a circle.
PUT: Final = text("""
    INSERT /* fedsched:kept_reports.put */ INTO report_picture (name, day, body)
    SELECT name, :day, body FROM unnest(:names, :bodies) AS given (name, body) ORDER BY name
    ON CONFLICT DO NOTHING
""").bindparams(
    bindparam("names", type_=ARRAY(LargeBinary)),
    bindparam("bodies", type_=ARRAY(LargeBinary)),
    bindparam("day", type_=Date),
)


class KeptReportStatements:
    """Implements ``member_ports.KeptReports`` within one transaction."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def now(self) -> DatabaseTime:
        row = (await self._connection.execute(NOW)).one()
        return DatabaseTime(microseconds_of(row.at), row.day)

    async def add(self, day: date, body: bytes, pictures: Mapping[bytes, bytes]) -> None:
        if pictures:
            given = {"names": list(pictures), "bodies": list(pictures.values()), "day": day}
            await self._connection.execute(PUT, given)
        await self._connection.execute(
            named("kept_reports.add", report_round.insert().values(day=day, body=body))
        )

    async def rounds(self, since: int, until: int) -> Sequence[KeptRound]:
        found = (
            select(report_round.c.day, report_round.c.body)
            .where(
                report_round.c.kept_at > time_at(since), report_round.c.kept_at <= time_at(until)
            )
            .order_by(report_round.c.kept_at.desc(), report_round.c.id)
        )
        return [
            KeptRound(row.day, row.body)
            for row in await self._connection.execute(named("kept_reports.rounds", found))
        ]

    async def size(self, names: Collection[bytes], days: Collection[date]) -> int:
        sizes = select(func.coalesce(func.sum(func.octet_length(report_picture.c.body)), 0))
        named_sizes = sizes.where(
            is_one_of(report_picture.c.name, names), is_one_of(report_picture.c.day, days)
        )
        return int(
            (await self._connection.execute(named("kept_reports.size", named_sizes))).scalar_one()
        )

    async def pictures(
        self, names: Collection[bytes], days: Collection[date]
    ) -> Mapping[bytes, bytes]:
        found = select(report_picture.c.name, report_picture.c.body).where(
            is_one_of(report_picture.c.name, names), is_one_of(report_picture.c.day, days)
        )
        return {
            row.name: row.body
            for row in await self._connection.execute(named("kept_reports.pictures", found))
        }

    async def prune(self, older_than_seconds: float) -> int:
        for table in TABLES:
            oldest = await oldest_partition(self._connection, table, older_than_seconds)
            if oldest is not None:
                await drop_partition(self._connection, oldest)
                return 1
        return 0
