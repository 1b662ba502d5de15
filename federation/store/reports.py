"""Reports: their rows, and statements over them: many are stored at once, each only if it is newer.

Must not look into a report: what is in there is for those who estimate.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

import msgspec
from sqlalchemy import BigInteger, Text, any_, bindparam, cast, select, text
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.ext.asyncio import AsyncConnection

from federation.history.bodies import Body, read_body
from federation.history.report_rows import REPORTS, ReportRow
from federation.model.cluster import CapacityReport
from federation.model.shapes import Shape
from federation.services.journal import ReportAdvanced
from federation.services.member_ports import NamedReport, ReportVerdict, StoredReport
from federation.store.floors import JOURNAL, HeldFloors
from federation.store.journal import JournalStatements
from federation.store.statements import named
from federation.store.tables import cluster, cluster_capacity, cluster_report, unix_seconds

# The document as it is written: read in one go, which takes a third of the time.
BODY: Final = cast(cluster_report.c.body, Text).label("body")


class _Body(Body, frozen=True):
    report: ReportRow


_BODIES: Final = msgspec.json.Decoder(_Body)

# Rows are taken in the order of their ids, so that two writers never wait for each other. Whether
# a report was newer is told by RETURNING: the count of changed rows is not to be relied on.
_ADVANCE: Final = """
    WITH /* fedsched:reports.advance */ input AS (
        SELECT given.*, cluster.id AS cluster_id
        FROM unnest(:names, :uids, :epochs, :sequences, :bodies, :nonces)
            AS given (name, uid, epoch, sequence, body, nonce)
        LEFT JOIN cluster ON cluster.name = given.name AND cluster.uid = given.uid
    ), moved AS (
        INSERT INTO cluster_capacity AS stored
            (cluster_id, version, history, epoch, sequence, received_at, report_version)
        SELECT cluster_id, 1, nonce, epoch, sequence, now(), 1
        FROM input WHERE cluster_id IS NOT NULL ORDER BY cluster_id
        ON CONFLICT (cluster_id) DO UPDATE
        SET version = stored.version + 1, history = stored.history # excluded.history,
            epoch = excluded.epoch, sequence = excluded.sequence,
            received_at = excluded.received_at, report_version = stored.version + 1
        WHERE (stored.epoch, stored.sequence) < (excluded.epoch, excluded.sequence)
        RETURNING cluster_id, version, received_at
    ), written AS (
        INSERT INTO cluster_report (cluster_id, body)
        SELECT cluster_id, body::json FROM input JOIN moved USING (cluster_id) ORDER BY cluster_id
        ON CONFLICT (cluster_id) DO UPDATE SET body = excluded.body
    )
    SELECT input.name, input.epoch, input.sequence, input.nonce,
        input.cluster_id IS NOT NULL AS known, moved.version, moved.received_at,
        ({take_floor}) AS floor
    FROM input LEFT JOIN moved USING (cluster_id)
"""
ADVANCE = text(_ADVANCE.format(take_floor=JOURNAL.take)).bindparams(
    bindparam("names", type_=ARRAY(Text)),
    bindparam("uids", type_=ARRAY(Text)),
    bindparam("epochs", type_=ARRAY(BigInteger)),
    bindparam("sequences", type_=ARRAY(BigInteger)),
    bindparam("bodies", type_=ARRAY(Text)),
    bindparam("nonces", type_=ARRAY(BigInteger)),
)


class ReportStatements:
    """Implements ``ports.Reports`` within one transaction."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection
        self._floors = HeldFloors()
        self._journal = JournalStatements(connection, self._floors)

    async def advance(self, reports: Sequence[NamedReport]) -> Sequence[ReportVerdict]:
        rows = await self._connection.execute(
            ADVANCE,
            {
                "names": [each.cluster for each in reports],
                "uids": [each.cluster_uid for each in reports],
                "epochs": [each.report.epoch for each in reports],
                "sequences": [each.report.sequence for each in reports],
                "bodies": [packed_report(each.report) for each in reports],
                "nonces": [each.nonce for each in reports],
            },
        )
        judged = rows.all()
        self._floors.journal = max((row.floor for row in judged), default=None)
        await self._journal.append(
            [
                ReportAdvanced(
                    cluster=row.name,
                    version=row.version,
                    epoch=row.epoch,
                    sequence=row.sequence,
                    nonce=row.nonce,
                )
                for row in judged
                if row.version is not None
            ]
        )
        return [
            ReportVerdict(
                cluster=row.name,
                known=row.known,
                received_at=unix_seconds(row.received_at),
                ledger_version=row.version or 0,
            )
            for row in judged
        ]

    async def get(self, names: Collection[str]) -> Mapping[str, StoredReport]:
        statement = (
            select(
                cluster.c.name,
                BODY,
                cluster_capacity.c.received_at,
                cluster_capacity.c.report_version,
            )
            .join(cluster_report, cluster_report.c.cluster_id == cluster.c.id)
            .join(cluster_capacity, cluster_capacity.c.cluster_id == cluster.c.id)
            .where(cluster.c.name == any_(bindparam("names", list(names), ARRAY(Text))))
        )
        reader = ReportReader()
        return {
            row.name: StoredReport(
                reader.read(row.body), row.received_at.timestamp(), row.report_version
            )
            for row in await self._connection.execute(named("reports.get", statement))
        }


def packed_report(report: CapacityReport) -> str:
    return msgspec.json.encode(_Body(v=_Body.newest, report=REPORTS.pack(report))).decode()


class ReportReader:
    """Reads the reports of many clusters: equal shapes are one object in all of them.

    A fleet's reports repeat themselves: what its clusters are asked to look for is of few shapes.
    """

    def __init__(self) -> None:
        self._shapes: dict[Shape, Shape] = {}

    def read(self, body: str) -> CapacityReport:
        report = REPORTS.unpack(read_body(_BODIES, body, "reports").report)
        shapes = self._shapes
        for echo in report.echoes:
            # Made just now and nobody else's yet: copies would take longer than all the rest.
            object.__setattr__(echo, "shape", shapes.setdefault(echo.shape, echo.shape))
        return report
