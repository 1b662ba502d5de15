"""Catch up with the tables of revision 1000, while they are where earlier releases made them.

Why: a database of an earlier release keeps its rows. It was at 0019, or at one of the revisions
that this one took in (0020 to 0026). Then all tables move into the schema of 1000.
Roll-out: before the code. All steps may run again. Bindings that are there are copied a thousand at
a time, under their locks; indexes are built beside writers.
"""

from __future__ import annotations

from alembic import op

from federation.store.objects import functions

revision = "0027"
down_revision = "0019"
branch_labels = None
depends_on = None

TABLES = (
    "ALTER TABLE duty ADD COLUMN IF NOT EXISTS failing_since timestamp with time zone",
    "ALTER TABLE duty ADD COLUMN IF NOT EXISTS failure text NOT NULL DEFAULT ''",
    """
    CREATE TABLE IF NOT EXISTS binding_cluster (
        cluster text COLLATE "C" NOT NULL,
        binding_id bigint NOT NULL,
        replicas bigint NOT NULL,
        CONSTRAINT pk_binding_cluster PRIMARY KEY (cluster, binding_id)
    )
    """,
)
# In the order in which all lock bindings. Who changes one meanwhile waits, or is waited for.
COPY = """
    DO $$
    DECLARE
        last_namespace text := '';
        last_name text := '';
    BEGIN
        LOOP
            WITH page AS (
                SELECT id, namespace, name, clusters FROM {at}binding
                WHERE (namespace, name) > (last_namespace, last_name)
                ORDER BY namespace, name LIMIT 1000
                FOR NO KEY UPDATE
            ), copied AS (
                INSERT INTO {at}binding_cluster (cluster, binding_id, replicas)
                SELECT share.cluster, page.id, share.replicas
                FROM page, {at}binding_shares(page.clusters) AS share
                ON CONFLICT DO NOTHING
            )
            SELECT namespace, name INTO last_namespace, last_name FROM page
            ORDER BY namespace DESC, name DESC LIMIT 1;
            EXIT WHEN NOT FOUND;
            COMMIT;
        END LOOP;
    END $$
"""
INDEXES = {
    "ix_reservation_clusters": "reservation USING gin (clusters)",
    "ix_waiting_place": "waiting ((- priority), coalesce(ordered_at, since), namespace,"
    " coalesce(nullif(entry, ''), name), name)"
    " INCLUDE (priority, ordered_at, since, entry, state)",
}
DROPPED_INDEXES = ("ix_waiting_order", "ix_binding_decision_id")
# Rows that had no partition of their day get one: a default partition keeps days from being made.
DAYS = """
    DO $$
    DECLARE
        parent text;
        missing date;
    BEGIN
        FOREACH parent IN ARRAY ARRAY['decision', 'report_picture', 'report_round'] LOOP
            CONTINUE WHEN to_regclass(parent || '_rest') IS NULL;
            EXECUTE format('ALTER TABLE %I DETACH PARTITION %I', parent, parent || '_rest');
            FOR missing IN EXECUTE format('SELECT DISTINCT day FROM %I', parent || '_rest') LOOP
                EXECUTE format('CREATE TABLE %I PARTITION OF %I FOR VALUES FROM (%L) TO (%L)',
                    parent || to_char(missing, '_YYYYMMDD'), parent, missing, missing + 1);
            END LOOP;
            EXECUTE format('INSERT INTO %I SELECT * FROM %I', parent, parent || '_rest');
            EXECUTE format('DROP TABLE %I', parent || '_rest');
        END LOOP;
    END $$
"""


def upgrade() -> None:
    for statement in (*TABLES, *functions()):
        op.execute(statement)
    op.execute(DAYS)
    context = op.get_context()
    # No search path holds outside of a transaction.
    at = f'"{context.version_table_schema}".' if context.version_table_schema else ""
    with context.autocommit_block():
        op.execute(COPY.format(at=at))
        for name, definition in INDEXES.items():
            # One that an earlier try left invalid goes first.
            op.execute(f"DROP INDEX CONCURRENTLY IF EXISTS {at}{name}")
            op.execute(f"CREATE INDEX CONCURRENTLY IF NOT EXISTS {name} ON {at}{definition}")
        for name in DROPPED_INDEXES:
            op.execute(f"DROP INDEX CONCURRENTLY IF EXISTS {at}{name}")
