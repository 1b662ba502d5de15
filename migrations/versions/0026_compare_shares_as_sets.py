"""Compare shares as sets.

Why: the trigger that keeps ``binding_cluster`` looked for each old share among all new ones. A
binding in a hundred clusters took nine milliseconds more, and one in a thousand a hundred times as
long.
Roll-out: before the code. It replaces one function.
"""

from __future__ import annotations

from alembic import op

revision = "0026"
down_revision = "0025"
branch_labels = None
depends_on = None

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


def upgrade() -> None:
    op.execute(KEEP)


def downgrade() -> None:
    """The function before does the same, more slowly: this one may stay."""
