"""Every table either holds no more than people have, or forgets what is old."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import partial

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from federation.services.duties import auditing, pruning
from federation.services.journal_ports import Replica
from federation.services.ports import Transaction
from federation.store.postgres import PostgresStore
from federation.store.schema import metadata
from tests.contract.store.test_previews import preview

AT = "CAST(:at AS timestamptz)"
KEPT_SECONDS = 30 * 86_400.0
# Rows as many as there are clusters, bindings, namespaces, control planes, duties; or one row.
BOUNDED = {
    *("cluster", "cluster_capacity", "cluster_report", "presence", "binding", "reservation"),
    "binding_cluster",
    *("waiting", "namespace_quota", "duty", "failover", "audit_head"),
    *("database_incarnation", "journal_pruned_to"),
}
# Whole days of these are dropped: test_decision_partitions.py, test_kept_reports.py, test_audit.py.
BY_DAY = {"decision", "report_picture", "report_round", "audit"}
# Narrow rows that stay on purpose.
FOR_GOOD = {"audit_batch"}
# How a row of so many days ago is made, in each table that grows with what happens.
GROWING: Mapping[str, str] = {
    "journal": "(floor, kind, body, created_at) VALUES (0, 'x', '', :at)",
    "idempotency_key": "(caller, key, body_hash, answer, created_at)"
    " VALUES ('c', :name, sha256(''), '', :at)",
    "decision_input": "(name, body, used_at) VALUES (sha256(convert_to(:name, 'UTF8')), '', :at)",
    "binding_deletion": "(at, namespace, name) VALUES (:at, 'shop', :name)",
    "node_plan": "(decision_id, cluster_name, body, created_at)"
    " VALUES (gen_random_uuid(), 'c', '{}', :at)",
    "preview": "(id, secret_hash, body, created_at, expires_at)"
    " VALUES (:name, sha256(''), '', :at, :at + interval '1 h')",
    "preemption": "(at, namespace, replicas) VALUES (:at, 'shop', 1)",
    "plan": "(state, created_at, body) VALUES ('done', :at, '{}')",
    "plan_step": "(plan_id, number, state, version, body)"
    " SELECT max(id), 1, 'done', 1, '{}' FROM plan",
    "credential": "(id, kind, secret_hash, created_at, expires_at)"
    " VALUES (:name, 'replica', sha256(''), :at, :at + interval '1 h')",
    "join_token": "(id, secret_hash, cluster_name, created_at, expires_at)"
    " VALUES (:name, sha256(''), 'c', :at, :at + interval '1 s')",
    "access_token": "(id, secret_hash, name, role, namespaces, clusters, networks, created_by,"
    " created_at, expires_at)"
    " VALUES (:name, sha256(''), 'n', 'viewer', '{}', '{}', '{}', 'b', :at, :at + interval '1 s')",
    "replica": "(id, endpoint, heard_at) VALUES (:name, 'e', :at)",
}


def test_it_is_known_of_every_table_why_it_does_not_grow_for_ever() -> None:
    assert set(metadata.tables) == BOUNDED | BY_DAY | FOR_GOOD | GROWING.keys()


@asynccontextmanager
async def begun(store: PostgresStore) -> AsyncIterator[Transaction]:
    async with store.transaction() as tx:
        yield tx


async def counts(engine: AsyncEngine) -> dict[str, int]:
    async with engine.connect() as connection:
        return {
            table: int(await connection.scalar(text(f"SELECT count(*) FROM {table}")) or 0)
            for table in GROWING
        }


async def forget(store: PostgresStore) -> None:
    """What control planes do by and by, and what goes with the next row of its table."""
    for duty in (*pruning(KEPT_SECONDS), *auditing(KEPT_SECONDS)):
        done = duty.at_once
        while done >= duty.at_once:
            done = await duty.work(partial(begun, store))
    async with store.transaction() as tx:
        await tx.previews.add(preview("new"), 60)
        await tx.replicas.put(Replica(id="new", endpoint="e"))
        await tx.preemptions.add({"shop": 1})


async def test_what_is_old_is_forgotten_and_what_is_new_stays(
    store: PostgresStore, engine: AsyncEngine
) -> None:
    now = datetime.now(UTC)
    rows = {"old": now - timedelta(days=400), "older": now - timedelta(days=401), "newest": now}
    async with engine.begin() as connection:
        for name, at in rows.items():
            for table, row in GROWING.items():
                given = {"at": at, "name": name}
                typed = row.replace(":at", AT).replace(":name", "CAST(:name AS text)")
                wanted = {each: given[each] for each in given if f":{each}" in row}
                await connection.execute(text(f"INSERT INTO {table} {typed}"), wanted)
    assert await counts(engine) == dict.fromkeys(GROWING, len(rows))
    await forget(store)
    added = {"preview", "replica", "preemption"}
    assert await counts(engine) == {table: 2 if table in added else 1 for table in GROWING}
