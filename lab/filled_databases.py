"""A database filled as by a large fleet, by statements over sets: a million bindings in minutes.

Must not be used where contents matter: rows are alike, names are numbers, and hashes are no chain.
"""

from __future__ import annotations

import asyncio
from argparse import ArgumentParser
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

import asyncpg
import msgspec

from federation.history.workload_rows import target_rows
from federation.model.cluster import Cluster
from federation.model.node_plans import NodePlan
from federation.model.placement import (
    AffinityGroup,
    Binding,
    ClusterAffinity,
    EvictionTask,
    Gang,
    Placement,
)
from federation.model.reservations import PromiseCertificate, Reservation
from federation.model.workload import ReplicaRequirements, TargetCluster
from federation.plans.plan import Gain, Plan, PlanKind, PlanLimits, PlanStep
from federation.services.agent_values import AgentFacts
from federation.services.journal import StoredReservations
from federation.services.packed_traces import packed_traces
from federation.services.values import ReportEvidence, Verdict
from federation.store.bindings import binding_spec
from federation.store.document_rows import NODE_PLANS
from federation.store.engine import create_engine
from federation.store.journal import packed_change
from federation.store.migrate import upgrade
from federation.store.postgres import PostgresStore
from federation.store.reservations import packed_reservations
from lab.databases import connect
from lab.decisions import make_decision
from lab.stored_values import DECIDED

NAMESPACES: Final = 200
# Of so many bindings one is in a gang, in a group, or is evicted.
GANG_EVERY, GROUP_EVERY, EVICTED_EVERY = 50, 40, 400
MEMBERS: Final = 5
DAYS: Final = 30
REQUIREMENTS: Final = ReplicaRequirements(request={"cpu": 250})


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How many rows the large tables get; ``waiting`` of the bindings are in the queue."""

    clusters: int
    bindings: int
    decisions: int
    waiting: int


# In small tables the planner would read all rows.
SMALL: Final = Size(clusters=100, bindings=30_000, decisions=60_000, waiting=10_000)
LARGE: Final = Size(clusters=1_000, bindings=1_000_000, decisions=5_000_000, waiting=100_000)


def cluster_name(number: int) -> str:
    return f"member{number:04}"


def binding_name(number: int) -> tuple[str, str]:
    """Return the namespace and the name of a binding, from 1 on."""
    return f"space{number % NAMESPACES:03}", f"web{number:07}"


TEMPLATES: Final = """
    CREATE TEMPORARY TABLE template (
        number bigint PRIMARY KEY, cluster text, shares jsonb, held jsonb, body bytea
    )
"""
PARTITION: Final = """
    CREATE TABLE {table}_{day:%Y%m%d} PARTITION OF {table}
    FOR VALUES FROM ('{day}') TO (date '{day}' + 1)
"""
# The first of the migrations' partitions holds all days that were over.
PAST: Final = """
    SELECT relname FROM pg_inherits JOIN pg_class ON oid = inhrelid
    WHERE inhparent = '{table}'::regclass AND relname ~ '_[0-9]{{8}}$'
        AND to_date(right(relname, 8), 'YYYYMMDD') < (now() AT TIME ZONE 'utc')::date
"""
BINDINGS: Final = """
    INSERT INTO binding (namespace, name, uid, generation, version, spec, clusters, decision_id,
        observed_affinity, affinity_group, anti_affinity_group, last_scheduled_at)
    SELECT 'space' || lpad((n % 200)::text, 3, '0'), 'web' || lpad(n::text, 7, '0'), 'uid-' || n,
        1, 2,
        CASE WHEN n % 50 = 0 THEN jsonb_set($1::jsonb, '{gang,name}',
                to_jsonb('gang' || n / (200 * 5)))
            WHEN n % 400 = 1 THEN $2::jsonb ELSE $3::jsonb END
            || jsonb_build_object('priority', n % 10),
        CASE WHEN n <= $4 THEN '[]' ELSE shares END,
        overlay(md5('newest ' || n) placing '4' from 13)::uuid,
        CASE WHEN n % 100 = 3 THEN 'far' WHEN n % 2 = 0 THEN 'near' ELSE '' END,
        CASE WHEN n % 40 = 2 THEN 'app=' || n / 200 ELSE '' END,
        CASE WHEN n % 40 = 4 THEN 'app=' || n / 200 ELSE '' END, now()
    FROM generate_series(1, $5) AS n JOIN template ON number = n % $6
"""
DECISIONS: Final = """
    INSERT INTO decision (id, binding_id, namespace, name, binding_generation, outcome, clusters,
        remainder, reason, algorithm_revision, trace, triggers, created_at, day)
    SELECT overlay(md5('newest ' || n) placing '4' from 13)::uuid, binding.id, namespace, name, 1,
        'SCHEDULED', clusters, 0, '', 3, $2, '{}', at, at::date
    FROM (SELECT n, now() AT TIME ZONE 'utc' - n * interval '1 day' * $3 / $4 AS at
        FROM generate_series(1, $4) AS n) AS given
    JOIN binding ON binding.name = 'web' || lpad((1 + (n - 1) % $1)::text, 7, '0')
        AND binding.namespace = 'space' || lpad(((1 + (n - 1) % $1) % 200)::text, 3, '0')
"""
RESERVATIONS: Final = """
    INSERT INTO reservation (namespace, name, uid, clusters, held, body, lease_expires_at)
    SELECT namespace, name, uid, ARRAY[cluster], held, body,
        CASE WHEN id % 100 = 0 THEN now() + interval '1 hour' END
    FROM binding JOIN template ON cluster = clusters -> 0 ->> 'name'
"""
WAITING: Final = """
    INSERT INTO waiting (binding_id, namespace, name, priority, state, gate, since, attempts,
        next_try, remainder, short_of)
    SELECT id, namespace, name, (spec ->> 'priority')::bigint,
        CASE id % 20 WHEN 0 THEN 'gated' WHEN 1 THEN 'backoff' ELSE 'unschedulable' END,
        CASE id % 20 WHEN 0 THEN 'suspended' ELSE '' END,
        now() - (id % 5000) * interval '1 second', 1,
        CASE id % 20 WHEN 1 THEN now() END, 2, 'cpu'
    FROM binding WHERE clusters = '[]'
"""
# By name: the parameter of each is how many bindings, or clusters, there are.
OF_BINDINGS: Final[Mapping[str, str]] = {
    "node_plan": """
        INSERT INTO node_plan (decision_id, cluster_name, body, created_at)
        SELECT decision_id, clusters -> 0 ->> 'name', $2::jsonb, now() - id * interval '1 second'
        FROM binding WHERE clusters <> '[]' AND id <= $1 / 2
    """,
    "journal": """
        INSERT INTO journal (floor, kind, body, nonce, created_at)
        SELECT 0, 'binding', $2::bytea, n, now() - (100000 - n) * interval '30 ms'
        FROM generate_series(1, least($1, 100000)) AS n
    """,
    "idempotency_key": """
        INSERT INTO idempotency_key (caller, key, body_hash, answer, created_at)
        SELECT 'caller' || n % 20, 'key' || n, sha256(n::text::bytea), '',
            now() - n * interval '1 second'
        FROM generate_series(1, $1 / 2) AS n WHERE $2::text IS NULL
    """,
    "binding_deletion": """
        INSERT INTO binding_deletion (at, namespace, name)
        SELECT now() - ($1 - n) * interval '1 second', 'space', 'web' || n
        FROM generate_series(1, $1) AS n WHERE $2::text IS NULL
    """,
    "audit": """
        INSERT INTO audit (at, actor, credential_id, address, method, objects, result, reason,
            request_sha256, unrecorded)
        SELECT now() - ($1 - n) * interval '1 second', 'someone', 'id' || n % 50, '10.0.0.1',
            CASE n % 100 WHEN 0 THEN 'Scheduling/DeleteBinding' ELSE 'Scheduling/Schedule' END,
            ARRAY['space/web' || n], 'OK', '', '', 0
        FROM generate_series(1, $1) AS n WHERE $2::text IS NULL
    """,
    "audit_batch": """
        INSERT INTO audit_batch
        SELECT 10 * n, (now() AT TIME ZONE 'utc')::date, 10 * n - 9, 10 * n, 10, sha256(''),
            sha256('')
        FROM generate_series(1, $1 / 10 - 10) AS n WHERE $2::text IS NULL
    """,
    "decision_input": """
        INSERT INTO decision_input (name, body, used_at)
        SELECT sha256(n::text::bytea), '', now() - n * interval '1 second'
        FROM generate_series(1, 60000) AS n WHERE $2::text IS NULL AND $1::bigint > 0
    """,
    "preemption": """
        INSERT INTO preemption (at, namespace, replicas)
        SELECT now() - n * interval '200 ms', 'space' || n % 20, 1
        FROM generate_series(1, 15000) AS n WHERE $2::text IS NULL AND $1::bigint > 0
    """,
    "preview": """
        INSERT INTO preview (id, secret_hash, body, decision_id, created_at, expires_at)
        SELECT 'preview' || n, sha256(''), '', gen_random_uuid(), now(),
            now() + n * interval '1 second'
        FROM generate_series(1, 5000) AS n WHERE $2::text IS NULL AND $1::bigint > 0
    """,
    "access_token": """
        INSERT INTO access_token (id, secret_hash, name, role, namespaces, clusters, networks,
            created_by, created_at, expires_at)
        SELECT 'token' || n, sha256(''), 'n', 'viewer', '{}', '{}', '{}', '', now(),
            now() + n * interval '1 hour'
        FROM generate_series(1, 5000) AS n WHERE $2::text IS NULL AND $1::bigint > 0
    """,
    "namespace_quota": """
        INSERT INTO namespace_quota (namespace, limits)
        SELECT 'space' || lpad(n::text, 3, '0'), '{"": 1000000}'
        FROM generate_series(0, 199) AS n WHERE $2::text IS NULL AND $1::bigint > 0
    """,
    "report_picture": """
        INSERT INTO report_picture (name, day, body)
        SELECT sha256(n::text::bytea), (now() AT TIME ZONE 'utc')::date, ''
        FROM generate_series(1, 5000) AS n WHERE $2::text IS NULL AND $1::bigint > 0
    """,
    "report_round": """
        INSERT INTO report_round (day, kept_at, body)
        SELECT (now() AT TIME ZONE 'utc')::date, now() - n * interval '1 second', ''
        FROM generate_series(1, 5000) AS n WHERE $2::text IS NULL AND $1::bigint > 0
    """,
    "plan": """
        INSERT INTO plan (state, created_at, body)
        SELECT CASE n WHEN 1 THEN 'running' ELSE 'done' END, now(), body
        FROM generate_series(1, 500) AS n, (SELECT body FROM plan LIMIT 1) AS first
        WHERE $2::text IS NULL AND $1::bigint > 0
    """,
    "plan_step": """
        INSERT INTO plan_step (plan_id, number, state, version, body)
        SELECT plan.id, n, CASE WHEN n = 1 AND plan.id = 2 THEN 'moving' ELSE 'done' END, n,
            first.body
        FROM plan, generate_series(1, 50) AS n, (SELECT body FROM plan_step LIMIT 1) AS first
        WHERE $2::text IS NULL AND $1::bigint > 0 AND plan.id > 1
    """,
}
OF_CLUSTERS: Final = (
    """
    INSERT INTO credential (id, kind, cluster_id, secret_hash, created_at, expires_at)
    SELECT 'credential' || cluster.id || '-' || n, 'agent', cluster.id, sha256(''), now(),
        now() + interval '30 days'
    FROM cluster, generate_series(1, 20) AS n
    """,
    """
    INSERT INTO join_token (id, secret_hash, cluster_name, expires_at)
    SELECT 'join' || name || n, sha256(''), name, now() + interval '1 hour'
    FROM cluster, generate_series(1, 20) AS n
    """,
    """
    INSERT INTO presence (cluster_id, replica, epoch, heard_at, clock_offset_seconds,
        confirmed_sequence)
    SELECT id, 'one', 1, now(), 0, 0 FROM cluster
    """,
    """
    INSERT INTO audit_head (seal, hash, pruned_seal, pruned_hash, sealed_id)
    SELECT max(last_seal), sha256(''), 0, sha256(''), max(last_id) FROM audit_batch
    """,
)


async def fill(url: str, size: Size) -> None:
    """Fill a migrated, empty database, and analyze it."""
    await _fill_by_store(url, size)
    connection = await connect(url)
    try:
        await connection.execute("SET synchronous_commit = off")
        await connection.execute(TEMPLATES)
        await connection.copy_records_to_table("template", records=_templates(size))
        await _make_past_days(connection)
        await _fill_bindings(connection, size)
        for table, statement in OF_BINDINGS.items():
            await connection.execute(statement, size.bindings, _body_of(table))
        for statement in OF_CLUSTERS:
            await connection.execute(statement)
        await connection.execute("VACUUM ANALYZE")
    finally:
        await connection.close()


async def _fill_by_store(url: str, size: Size) -> None:
    engine = create_engine(url)
    store = PostgresStore(engine)
    async with store.transaction() as tx:
        for number in range(size.clusters):
            await tx.clusters.add(Cluster(name=cluster_name(number)), AgentFacts())
        await tx.histories.ensure()
        await tx.duties.hold([f"duty{number}" for number in range(20)], "one", 60.0)
        step = PlanStep(
            number=1,
            namespace="space000",
            name="web",
            before=(TargetCluster(name=cluster_name(0), replicas=2),),
            after=(TargetCluster(name=cluster_name(1), replicas=2),),
            reason="",
        )
        plan = Plan(
            id=0,
            kind=PlanKind.DRAIN,
            clusters=(cluster_name(0),),
            limits=PlanLimits(),
            step_count=1,
            gain=Gain(wanted=1, moved=1, bound=1),
            created_at=0.0,
            created_by="someone",
        )
        await tx.plans.add(plan, [step])
    await engine.dispose()


def _templates(size: Size) -> Iterator[tuple[int, str, str, str, bytes]]:
    """Yield a placement in each cluster: its shares, and the reservation that it has."""
    for number in range(size.clusters):
        name = cluster_name(number)
        shares = msgspec.json.encode(target_rows((TargetCluster(name=name, replicas=2),)))
        promise = Reservation(
            "shop/web", name, REQUIREMENTS, 2, ("d1",), "", PromiseCertificate.CAREFUL
        )
        row = StoredReservations(namespace="shop", name="web", reservations=(promise,))
        held = '{"": 2, "cpu": 500}'
        yield number, name, shares.decode(), held, packed_reservations(row)


async def _make_past_days(connection: asyncpg.Connection) -> None:
    for table in ("decision", "report_picture", "report_round"):
        for (past,) in await connection.fetch(PAST.format(table=table)):
            await connection.execute(f"DROP TABLE {past}")
    days = await connection.fetch(
        "SELECT (now() AT TIME ZONE 'utc')::date - n AS day FROM generate_series(1, $1) AS n",
        DAYS,
    )
    for (day,) in days:
        await connection.execute(PARTITION.format(table="decision", day=day))


async def _fill_bindings(connection: asyncpg.Connection, size: Size) -> None:
    far = AffinityGroup(name="far", affinity=ClusterAffinity())
    near = AffinityGroup(name="near", affinity=ClusterAffinity())
    plain = Binding(
        name="web",
        namespace="shop",
        replicas=2,
        requirements=REQUIREMENTS,
        placement=Placement(affinity_groups=(near, far)),
        scheduler_name="default-scheduler",
    )
    task = EvictionTask(
        from_cluster=cluster_name(0), replicas=2, reason="", producer="fedsched", created_at=0.0
    )
    kinds = (
        replace(plain, gang=Gang(name="", size=MEMBERS)),
        replace(plain, eviction_tasks=(task,)),
        plain,
    )
    specs = [msgspec.json.encode(binding_spec(kind)).decode() for kind in kinds]
    verdict = Verdict(decision=make_decision(("a", 2)), evidence=ReportEvidence())
    trace = packed_traces([verdict])[0].body
    await connection.execute(BINDINGS, *specs, size.waiting, size.bindings, size.clusters)
    await connection.execute("VACUUM ANALYZE binding")
    await connection.execute(DECISIONS, size.bindings, trace, DAYS - 1, size.decisions)
    await connection.execute(RESERVATIONS)
    await connection.execute(WAITING)


def _body_of(table: str) -> str | bytes | None:
    if table == "node_plan":
        return NODE_PLANS.json(NodePlan(cluster=cluster_name(0)))
    return packed_change(DECIDED)[1] if table == "journal" else None


def main() -> None:
    parser = ArgumentParser(prog="python -m lab.filled_databases", description=__doc__)
    parser.add_argument("url", help="an empty database")
    parser.add_argument("--small", action="store_true", help="the size of the tests")
    chosen = parser.parse_args()
    upgrade(chosen.url)
    asyncio.run(fill(chosen.url, SMALL if chosen.small else LARGE))


if __name__ == "__main__":
    main()
