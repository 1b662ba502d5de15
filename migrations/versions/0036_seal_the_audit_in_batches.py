"""Keep the audit by day, and seal it in batches.

Why: each record was written twice, the second time through an indexed column, and old ones were
deleted row by row. A batch is sealed by one narrow row now, which outlives its records.
Roll-out: before the code. Records move into partitions of their days. Those that were sealed keep
their seals and hashes; the first batch follows the last of them. The release before cannot seal or
forget records any more.
"""

from __future__ import annotations

from alembic import op

revision = "0036"
down_revision = "0035"
branch_labels = None
depends_on = None

DAYS_AHEAD = 14
COLUMNS = (
    "id, at, actor, credential_id, address, method, objects, result, reason, request_sha256,"
    " unrecorded, seal, hash"
)
# The rows of now keep their numbers, and new ones go on after the last that was given out.
RENAME = """
    CREATE SEQUENCE audit_number;
    SELECT setval('audit_number', last_value, is_called) FROM audit_id_seq;
    ALTER TABLE audit RENAME TO audit_before;
    ALTER TABLE audit_before
        ALTER COLUMN id DROP IDENTITY,
        DROP CONSTRAINT pk_audit,
        DROP CONSTRAINT uq_audit_seal,
        DROP CONSTRAINT ck_audit_sealed_has_hash;
    DROP INDEX ix_audit_at_id, ix_audit_unsealed;
    ALTER SEQUENCE audit_number RENAME TO audit_id_seq;
    CREATE TABLE audit (
        LIKE audit_before INCLUDING COMMENTS INCLUDING DEFAULTS,
        day date NOT NULL DEFAULT (now() AT TIME ZONE 'utc')::date,
        CONSTRAINT pk_audit PRIMARY KEY (id, day),
        CONSTRAINT ck_audit_sealed_has_hash CHECK ((seal IS NULL) = (hash IS NULL))
    ) PARTITION BY RANGE (day);
    ALTER TABLE audit ALTER COLUMN id SET DEFAULT nextval('audit_id_seq');
    ALTER SEQUENCE audit_id_seq OWNED BY audit.id;
    CREATE INDEX ix_audit_at_id ON audit (at, id);
    CREATE INDEX ix_audit_seal ON audit (seal) WHERE seal IS NOT NULL
"""
MOVE = """
    DO $$
    DECLARE
        missing date;
    BEGIN
        FOR missing IN SELECT (at AT TIME ZONE 'utc')::date FROM audit_before
            UNION SELECT (now() AT TIME ZONE 'utc')::date + generate_series(0, {ahead} - 1)
        LOOP
            EXECUTE format('CREATE TABLE %I PARTITION OF audit FOR VALUES FROM (%L) TO (%L)',
                'audit' || to_char(missing, '_YYYYMMDD'), missing, missing + 1);
        END LOOP;
        INSERT INTO audit ({columns}, day)
        SELECT {columns}, (at AT TIME ZONE 'utc')::date FROM audit_before;
    END $$
"""
SEALED = """
    CREATE TABLE audit_batch (
        last_seal bigint NOT NULL,
        day date NOT NULL,
        first_id bigint NOT NULL,
        last_id bigint NOT NULL,
        records bigint NOT NULL,
        previous_hash bytea NOT NULL,
        hash bytea NOT NULL,
        CONSTRAINT pk_audit_batch PRIMARY KEY (last_seal),
        CONSTRAINT ck_audit_batch_not_empty CHECK (records > 0)
    );
    CREATE INDEX ix_audit_batch_day_last_seal ON audit_batch (day, last_seal);
    ALTER TABLE audit_head ADD COLUMN sealed_id bigint NOT NULL DEFAULT 0;
    UPDATE audit_head SET sealed_id = coalesce(
        (SELECT min(id) - 1 FROM audit_before WHERE seal IS NULL),
        (SELECT max(id) FROM audit_before), 0
    );
    ALTER TABLE audit_head ALTER COLUMN sealed_id DROP DEFAULT;
    DROP TABLE audit_before
"""


def upgrade() -> None:
    run(RENAME)
    op.execute(MOVE.format(ahead=DAYS_AHEAD, columns=COLUMNS))
    run(SEALED)


def run(statements: str) -> None:
    """Run statements one by one, because the driver takes no more than one at a time."""
    for statement in statements.split(";\n"):
        op.execute(statement)
