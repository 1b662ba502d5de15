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
    Column("name", LargeBinary, primary_key=True, comment="SHA-256 of the content."),
    Column("day", Date, primary_key=True, comment="Day in UTC, which chooses the partition."),
    Column("body", LargeBinary, nullable=False, comment="The content, compressed."),
    CheckConstraint("octet_length(name) = 32", name="name_sha256"),
    postgresql_partition_by="RANGE (day)",
    comment="Contents of reports that are kept, once a day each, in partitions by day.",
)

# Which pictures some clusters had then; those of the same day.
report_round = Table(
    "report_round",
    metadata,
    Column(
        "id",
        Uuid,
        primary_key=True,
        server_default=func.gen_random_uuid(),
        comment="Id of the row.",
    ),
    Column("day", Date, primary_key=True, comment="Day in UTC, which chooses the partition."),
    Column(
        "kept_at",
        TIME,
        nullable=False,
        server_default=text("clock_timestamp()"),
        comment="Time of the round.",
    ),
    Column(
        "body",
        LargeBinary,
        nullable=False,
        comment="Clusters and the names of their pictures, compressed.",
    ),
    Index(None, "kept_at"),
    postgresql_partition_by="RANGE (day)",
    comment="Which pictures clusters had, minute by minute, in partitions by day.",
)
