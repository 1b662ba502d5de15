"""Add views for readers.

Why: what is promised, what waits and what was decided can be asked in plain SQL.
Roll-out: before the code, or after it: the code does not read them.
"""

from __future__ import annotations

from alembic import op

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None

VIEWS = {
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
COMMENTS = {
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
    # Corrected: both are words, and no codes.
    "COLUMN decision.reason": "Why the outcome is not SCHEDULED, in words; empty otherwise.",
    "COLUMN decision.triggers": "What made a control plane decide, in words.",
}


def upgrade() -> None:
    for name, query in VIEWS.items():
        op.execute(f"CREATE OR REPLACE VIEW {name} AS {query}")
    for name, comment in COMMENTS.items():
        op.execute(f"COMMENT ON {name} IS '{comment}'")


def downgrade() -> None:
    for name in VIEWS:
        op.execute(f"DROP VIEW IF EXISTS {name}")
