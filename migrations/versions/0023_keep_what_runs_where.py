"""Keep what runs where in rows, and index promises by cluster.

Why: who asked what runs in a cluster read the documents of all bindings: a large fleet could not
delete a cluster in time. Triggers keep the rows, because the release that is running does not.
Statistics about evictions tell the planner that they are rare.
Roll-out: before the code. All steps may run again. Bindings that are there are copied a thousand
at a time, under their locks; indexes are built beside writers.
"""

from __future__ import annotations

from alembic import op

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None

TABLE = """
    CREATE TABLE IF NOT EXISTS binding_cluster (
        cluster text COLLATE "C" NOT NULL,
        binding_id bigint NOT NULL,
        replicas bigint NOT NULL,
        CONSTRAINT pk_binding_cluster PRIMARY KEY (cluster, binding_id)
    ) WITH (fillfactor = 90, autovacuum_vacuum_scale_factor = 0.02)
"""
COMMENTS = {
    "TABLE binding_cluster": "What runs where: binding.clusters in rows, which triggers on binding "
    "keep.",
    "COLUMN binding_cluster.cluster": "Name of the cluster.",
    "COLUMN binding_cluster.binding_id": "The binding; triggers delete the row with it.",
    "COLUMN binding_cluster.replicas": "Replicas of the binding there.",
}
SHARES = """
    CREATE OR REPLACE FUNCTION binding_shares(clusters jsonb)
    RETURNS TABLE (cluster text, replicas bigint) LANGUAGE sql IMMUTABLE AS $$
        SELECT share ->> 'name', sum((share ->> 'replicas')::bigint)::bigint
        FROM jsonb_array_elements(clusters) AS share GROUP BY 1
    $$
"""
# Only shares that changed are written. They are compared as sets: a binding may be in a thousand
# clusters.
KEEP = """
    CREATE OR REPLACE FUNCTION keep_binding_cluster() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF TG_OP = 'INSERT' THEN
            INSERT INTO binding_cluster (cluster, binding_id, replicas)
            SELECT share.cluster, new_rows.id, share.replicas
            FROM new_rows, binding_shares(new_rows.clusters) AS share;
        ELSIF TG_OP = 'DELETE' THEN
            DELETE FROM binding_cluster USING old_rows, binding_shares(old_rows.clusters) AS share
            WHERE binding_cluster.cluster = share.cluster
                AND binding_cluster.binding_id = old_rows.id;
        ELSE
            WITH changed AS MATERIALIZED (
                SELECT id, old_rows.clusters AS earlier, new_rows.clusters AS later
                FROM old_rows JOIN new_rows USING (id)
                WHERE old_rows.clusters <> new_rows.clusters
            ), earlier AS MATERIALIZED (
                SELECT id, cluster, replicas FROM changed, binding_shares(changed.earlier)
            ), later AS MATERIALIZED (
                SELECT id, cluster, replicas FROM changed, binding_shares(changed.later)
            ), gone AS (
                DELETE FROM binding_cluster USING (
                    SELECT id, cluster FROM earlier EXCEPT SELECT id, cluster FROM later
                ) AS share
                WHERE binding_cluster.cluster = share.cluster
                    AND binding_cluster.binding_id = share.id
            )
            INSERT INTO binding_cluster AS stored (cluster, binding_id, replicas)
            SELECT cluster, id, replicas FROM (
                SELECT id, cluster, replicas FROM later
                EXCEPT SELECT id, cluster, replicas FROM earlier
            ) AS share
            ON CONFLICT (cluster, binding_id) DO UPDATE SET replicas = excluded.replicas;
        END IF;
        RETURN NULL;
    END $$
"""
TRIGGER = """
    CREATE OR REPLACE TRIGGER {name} AFTER {event} ON binding REFERENCING {rows}
    FOR EACH STATEMENT EXECUTE FUNCTION keep_binding_cluster()
"""
TRIGGERS = {
    "keep_clusters_of_new": ("INSERT", "NEW TABLE AS new_rows"),
    "keep_clusters_of_changed": ("UPDATE", "OLD TABLE AS old_rows NEW TABLE AS new_rows"),
    "keep_clusters_of_deleted": ("DELETE", "OLD TABLE AS old_rows"),
}
# In the order in which all lock bindings. Who changes one meanwhile waits, or is waited for.
COPY = """
    DO $$
    DECLARE
        last_namespace text := '';
        last_name text := '';
    BEGIN
        LOOP
            WITH page AS (
                SELECT id, namespace, name, clusters FROM binding
                WHERE (namespace, name) > (last_namespace, last_name)
                ORDER BY namespace, name LIMIT 1000
                FOR NO KEY UPDATE
            ), copied AS (
                INSERT INTO binding_cluster (cluster, binding_id, replicas)
                SELECT share.cluster, page.id, share.replicas
                FROM page, binding_shares(page.clusters) AS share
                ON CONFLICT DO NOTHING
            )
            SELECT namespace, name INTO last_namespace, last_name FROM page
            ORDER BY namespace DESC, name DESC LIMIT 1;
            EXIT WHEN NOT FOUND;
            COMMIT;
        END LOOP;
    END $$
"""


def upgrade() -> None:
    op.execute(TABLE)
    for name, comment in COMMENTS.items():
        op.execute(f"COMMENT ON {name} IS '{comment}'")
    op.execute(SHARES)
    op.execute(KEEP)
    for name, (event, rows) in TRIGGERS.items():
        op.execute(TRIGGER.format(name=name, event=event, rows=rows))
    op.execute(
        "CREATE STATISTICS IF NOT EXISTS binding_evictions ON (spec -> 'eviction_tasks')"
        " FROM binding"
    )
    with op.get_context().autocommit_block():
        op.execute(COPY)
        op.execute("DROP INDEX CONCURRENTLY IF EXISTS ix_reservation_clusters")
        op.execute(
            "CREATE INDEX CONCURRENTLY IF NOT EXISTS ix_reservation_clusters"
            " ON reservation USING gin (clusters)"
        )
        op.execute("ANALYZE binding")


def downgrade() -> None:
    with op.get_context().autocommit_block():
        op.execute("DROP INDEX CONCURRENTLY IF EXISTS ix_reservation_clusters")
    op.execute("DROP STATISTICS IF EXISTS binding_evictions")
    for name in TRIGGERS:
        op.execute(f"DROP TRIGGER IF EXISTS {name} ON binding")
    op.execute("DROP FUNCTION IF EXISTS keep_binding_cluster()")
    op.execute("DROP FUNCTION IF EXISTS binding_shares(jsonb)")
    op.execute("DROP TABLE IF EXISTS binding_cluster")
