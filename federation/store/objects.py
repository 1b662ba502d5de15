"""The objects of the schema that are no tables: functions, triggers, views, statistics.

Must not create anything: the migrations do. A function takes the search path of the session that
creates it, so that a trigger finds its tables whoever writes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

FUNCTIONS: Final[Mapping[str, str]] = {
    # The first 48 bits of an id of version 7 are milliseconds since 1970.
    "decision_day(id uuid)": """
        RETURNS date LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
            SELECT CASE WHEN substr(id::text, 15, 1) = '7' THEN date '1970-01-01' + (
                ('x' || substr(id::text, 1, 8) || substr(id::text, 10, 4))::bit(48)::bigint
                / 86400000
            )::integer END
        $$
    """,
    "binding_shares(clusters jsonb)": """
        RETURNS TABLE (cluster text, replicas bigint) LANGUAGE sql IMMUTABLE AS $$
            SELECT share ->> 'name', sum((share ->> 'replicas')::bigint)::bigint
            FROM jsonb_array_elements(clusters) AS share GROUP BY 1
        $$
    """,
    # Only shares that changed are written. They are compared as sets: a binding may be in a
    # thousand clusters. Rows are found by their key, however many the planner expects: it takes a
    # JSON array for a hundred elements.
    "keep_binding_cluster()": """
        RETURNS trigger LANGUAGE plpgsql
        SET search_path FROM CURRENT SET enable_hashjoin = off SET enable_mergejoin = off AS $$
        BEGIN
            IF TG_OP = 'INSERT' THEN
                INSERT INTO binding_cluster (cluster, binding_id, replicas)
                SELECT share.cluster, new_rows.id, share.replicas
                FROM new_rows, binding_shares(new_rows.clusters) AS share;
            ELSIF TG_OP = 'DELETE' THEN
                DELETE FROM binding_cluster
                USING old_rows, binding_shares(old_rows.clusters) AS share
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
    """,
}
TRIGGERS: Final[Mapping[str, str]] = {
    "keep_clusters_of_new": "INSERT ON binding REFERENCING NEW TABLE AS new_rows",
    "keep_clusters_of_changed": "UPDATE ON binding REFERENCING OLD TABLE AS old_rows"
    " NEW TABLE AS new_rows",
    "keep_clusters_of_deleted": "DELETE ON binding REFERENCING OLD TABLE AS old_rows",
}
# The planner learns that evictions are rare.
STATISTICS: Final[Mapping[str, str]] = {
    "binding_evictions": "(spec -> 'eviction_tasks') FROM binding",
}
VIEWS: Final[Mapping[str, str]] = {
    "promised_by_cluster": """
        SELECT coalesce(cluster.name, placed.cluster, promised.cluster) AS cluster,
            cluster.id IS NOT NULL AS is_member,
            coalesce(placed.bindings, 0) AS bindings,
            coalesce(placed.replicas, 0) AS replicas,
            coalesce(promised.bindings, 0) AS holding,
            cluster_capacity.received_at AS reported_at,
            presence.heard_at
        FROM cluster
        FULL JOIN (
            SELECT cluster, count(*) AS bindings, sum(replicas)::bigint AS replicas
            FROM binding_cluster GROUP BY cluster
        ) AS placed ON placed.cluster = cluster.name
        FULL JOIN (
            SELECT cluster COLLATE "C" AS cluster, count(*) AS bindings
            FROM reservation, unnest(clusters) AS cluster GROUP BY 1
        ) AS promised ON promised.cluster = coalesce(cluster.name, placed.cluster)
        LEFT JOIN cluster_capacity ON cluster_capacity.cluster_id = cluster.id
        LEFT JOIN presence ON presence.cluster_id = cluster.id
    """,
    "waiting_now": """
        SELECT CASE WHEN state <> 'gated' THEN dense_rank() OVER (
                PARTITION BY state <> 'gated'
                ORDER BY (- priority), coalesce(ordered_at, since), namespace,
                    coalesce(nullif(entry, ''), name)
            ) END AS position,
            namespace, name, priority, state, gate, gang, since,
            date_trunc('second', now() - since) AS waits, attempts, next_try, remainder, short_of
        FROM waiting
    """,
    "decisions_of_a_day": """
        SELECT (created_at AT TIME ZONE 'utc')::date AS day, created_at, namespace, name, outcome,
            ARRAY(
                SELECT (share ->> 'name') || ' ' || (share ->> 'replicas')
                FROM jsonb_array_elements(clusters) AS share
            ) AS clusters,
            remainder, reason, triggers, id
        FROM decision
    """,
}
COMMENTS: Final[Mapping[str, str]] = {
    "FUNCTION decision_day(uuid)": "Day that an id of a decision carries, in UTC; null for ids of "
    "earlier releases.",
    "VIEW promised_by_cluster": "Clusters: what runs and is promised there, and when they spoke.",
    "COLUMN promised_by_cluster.cluster": "Name of the cluster.",
    "COLUMN promised_by_cluster.is_member": "False where placements name a cluster that is gone.",
    "COLUMN promised_by_cluster.bindings": "Bindings that are placed there.",
    "COLUMN promised_by_cluster.replicas": "Replicas that are placed there.",
    "COLUMN promised_by_cluster.holding": "Bindings that hold promises there.",
    "COLUMN promised_by_cluster.reported_at": "Time of its newest report; null without one.",
    "COLUMN promised_by_cluster.heard_at": "Time at which its agent was heard last.",
    "VIEW waiting_now": "Queue: bindings that wait, with their positions.",
    "COLUMN waiting_now.position": "Place in the queue, from 1 on; null where it is not tried.",
    "COLUMN waiting_now.namespace": "Namespace of the binding.",
    "COLUMN waiting_now.name": "Name of the binding.",
    "COLUMN waiting_now.priority": "Priority: higher ones are tried first.",
    "COLUMN waiting_now.state": "active, backoff, unschedulable or gated.",
    "COLUMN waiting_now.gate": "What a gated binding waits for.",
    "COLUMN waiting_now.gang": "Gang that it waits with; empty without one.",
    "COLUMN waiting_now.since": "Time since when it waits.",
    "COLUMN waiting_now.waits": "How long it has waited.",
    "COLUMN waiting_now.attempts": "Number of times it was tried.",
    "COLUMN waiting_now.next_try": "Time of the next try in state backoff.",
    "COLUMN waiting_now.remainder": "Replicas that wait.",
    "COLUMN waiting_now.short_of": "What is missing.",
    "VIEW decisions_of_a_day": "Decisions in words; choose a time by created_at.",
    "COLUMN decisions_of_a_day.day": "Day of the decision, in UTC.",
    "COLUMN decisions_of_a_day.created_at": "Time of the decision.",
    "COLUMN decisions_of_a_day.namespace": "Namespace of the binding.",
    "COLUMN decisions_of_a_day.name": "Name of the binding.",
    "COLUMN decisions_of_a_day.outcome": "SCHEDULED, PARTIAL, UNSCHEDULABLE or NO_FIT.",
    "COLUMN decisions_of_a_day.clusters": "Clusters and their replicas.",
    "COLUMN decisions_of_a_day.remainder": "Replicas that got no cluster.",
    "COLUMN decisions_of_a_day.reason": "Why it is not SCHEDULED.",
    "COLUMN decisions_of_a_day.triggers": "What made a control plane decide.",
    "COLUMN decisions_of_a_day.id": "Id of the decision; fedctl explain takes it.",
}


def statements() -> Iterator[str]:
    """Yield the statements that create or replace all objects, in their order."""
    yield from functions()
    for name, expression in STATISTICS.items():
        yield f"CREATE STATISTICS IF NOT EXISTS {name} ON {expression}"
    for name, query in VIEWS.items():
        yield f"CREATE OR REPLACE VIEW {name} AS {query}"
    for name, comment in COMMENTS.items():
        yield f"COMMENT ON {name} IS '{comment}'"


def functions() -> Iterator[str]:
    """Yield the statements that create or replace functions and triggers."""
    for name, definition in FUNCTIONS.items():
        yield f"CREATE OR REPLACE FUNCTION {name} {definition}"
    for name, event in TRIGGERS.items():
        yield (
            f"CREATE OR REPLACE TRIGGER {name} AFTER {event}"
            " FOR EACH STATEMENT EXECUTE FUNCTION keep_binding_cluster()"
        )
