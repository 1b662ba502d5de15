"""The schema of reports that are kept, as declared: what was known, minute by minute.

Must not create anything: the migrations do. Both tables are in partitions by day, which are dropped
as a whole: see ``partitions``.
"""

from __future__ import annotations

from sqlalchemy import (
    CheckConstraint,
    Column,
    Date,
    Index,
    LargeBinary,
    Table,
    Uuid,
    func,
    text,
)

from federation.store.tables import TIME, metadata

# A cluster's picture by the SHA-256 of its content, once a day.
report_picture = Table(
    "report_picture",
    metadata,
    Column("name", LargeBinary, primary_key=True),
    Column("day", Date, primary_key=True),
    Column("body", LargeBinary, nullable=False),
    CheckConstraint("octet_length(name) = 32", name="name_sha256"),
    postgresql_partition_by="RANGE (day)",
)

# Which pictures some clusters had then; those of the same day.
report_round = Table(
    "report_round",
    metadata,
    Column("id", Uuid, primary_key=True, server_default=func.gen_random_uuid()),
    Column("day", Date, primary_key=True),
    Column("kept_at", TIME, nullable=False, server_default=text("clock_timestamp()")),
    Column("body", LargeBinary, nullable=False),
    Index(None, "kept_at"),
    postgresql_partition_by="RANGE (day)",
)
