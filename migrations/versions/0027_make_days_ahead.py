"""Make days ahead, and find decisions by the day in their ids.

Why: a decision was looked for in the partitions of all days. A new id carries its day. What had no
partition fell into one of its own, whose day never got another: it blocked those that make days.
Roll-out: before the code. Rows without a day of their own get one. The release before goes on
deciding; its duties that make and forget days fail until it is replaced.
"""

from __future__ import annotations

from alembic import op

revision = "0027"
down_revision = "0026"
branch_labels = None
depends_on = None

DAYS_AHEAD = 14
TABLES = ("decision", "report_picture", "report_round")
# The first 48 bits of an id of version 7 are milliseconds since 1970.
DAY = """
    CREATE OR REPLACE FUNCTION decision_day(id uuid) RETURNS date
    LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
        SELECT CASE WHEN substr(id::text, 15, 1) = '7' THEN date '1970-01-01' + (
            ('x' || substr(id::text, 1, 8) || substr(id::text, 10, 4))::bit(48)::bigint / 86400000
        )::integer END
    $$
"""
COMMENTS = {
    "FUNCTION decision_day(uuid)": "Day that an id of a decision carries, in UTC; null for ids of "
    "earlier releases.",
    "COLUMN decision.day": "Day that the id carries, or of created_at, in UTC, which chooses the "
    "partition; -infinity: it outlived its day.",
}
MAKE = """
    DO $$
    DECLARE
        parent text;
        missing date;
    BEGIN
        FOREACH parent IN ARRAY ARRAY['{tables}'] LOOP
            EXECUTE format('ALTER TABLE %I DETACH PARTITION %I', parent, parent || '_rest');
            FOR missing IN EXECUTE format('SELECT day FROM %I UNION SELECT '
                '(now() AT TIME ZONE ''utc'')::date + generate_series(0, {ahead} - 1)',
                parent || '_rest')
            LOOP
                EXECUTE format('CREATE TABLE IF NOT EXISTS %I PARTITION OF %I '
                    'FOR VALUES FROM (%L) TO (%L)',
                    parent || to_char(missing, '_YYYYMMDD'), parent, missing, missing + 1);
            END LOOP;
            EXECUTE format('INSERT INTO %I SELECT * FROM %I', parent, parent || '_rest');
            EXECUTE format('DROP TABLE %I', parent || '_rest');
        END LOOP;
    END $$
"""


def upgrade() -> None:
    op.execute(DAY)
    op.execute(MAKE.format(tables="', '".join(TABLES), ahead=DAYS_AHEAD))
    for name, comment in COMMENTS.items():
        op.execute(f"COMMENT ON {name} IS '{comment}'")


def downgrade() -> None:
    for table in TABLES:
        op.execute(f"CREATE TABLE {table}_rest PARTITION OF {table} DEFAULT")
    op.execute("DROP FUNCTION decision_day(uuid)")
