"""Whoever locks many rows takes them in one order, whatever order they were asked for or made in.

Somebody holds the first: who waits for it must not hold the second yet.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from federation.model.cluster import Cluster
from federation.model.errors import Conflict
from federation.model.placement import Binding, Placement
from federation.services.agent_values import AgentFacts
from federation.services.journal_ports import StoredPresence
from federation.store.postgres import PostgresStore
from tests.stores import add_binding, new_decision, until_waiting

FREE_BINDING = "SELECT 1 FROM binding WHERE name = 'b' FOR UPDATE SKIP LOCKED"
# The clusters' ids go up from z to a: not as their names do.
FREE_VERSION = """
    SELECT 1 FROM cluster_capacity JOIN cluster ON cluster.id = cluster_id WHERE name = 'a'
    FOR UPDATE OF cluster_capacity SKIP LOCKED
"""
FREE_PRESENCE = """
    SELECT 1 FROM presence JOIN cluster ON cluster.id = cluster_id WHERE name = 'a'
    FOR UPDATE OF presence SKIP LOCKED
"""


async def is_free_while_waiting(
    engine: AsyncEngine, free: str, waiter: Coroutine[Any, Any, None]
) -> tuple[bool, asyncio.Task[None]]:
    """Whether nobody holds that row while ``waiter`` waits for another."""
    waiting = asyncio.create_task(waiter)
    await until_waiting(engine)
    async with engine.connect() as connection:
        return (await connection.execute(text(free))).one_or_none() is not None, waiting


async def add_bindings(store: PostgresStore, *names: str) -> None:
    for name in names:
        async with store.transaction() as tx:
            await add_binding(tx, Binding(namespace="shop", name=name))


async def add_clusters(store: PostgresStore, *names: str) -> None:
    """Their rows lie in the opposite order of their ids."""
    for name in names:
        async with store.transaction() as tx:
            await tx.clusters.add(Cluster(name=name), AgentFacts())
    for name in reversed(names):
        async with store.transaction() as tx:
            known = await tx.clusters.lock(name)
            assert known is not None
            await tx.clusters.put_facts(known.id, AgentFacts(agent_version="0.2.0"))
            await tx.journal.advance({name: 2})


def heard(cluster: str) -> StoredPresence:
    return StoredPresence(cluster=cluster, replica="x", epoch=1, heard_at=0.0)


async def test_groups_are_locked_one_by_one_whatever_is_in_them(
    store: PostgresStore, engine: AsyncEngine
) -> None:
    def grouped(app: str, namespace: str = "shop") -> Binding:
        placement = Placement(workload_anti_affinity_key="app")
        return Binding(namespace=namespace, name="w", labels={"app": app}, placement=placement)

    async def lock(*bindings: Binding) -> None:
        async with store.transaction() as tx:
            await tx.bindings.lock_groups(bindings)

    async with store.transaction() as tx:
        await tx.bindings.lock_groups([grouped("web"), grouped("web"), grouped("api")])
        await lock(grouped("web", "bank"), grouped("job"), Binding(namespace="shop", name="w"))
        waiting = asyncio.create_task(lock(grouped("job"), grouped("api")))
        await until_waiting(engine)
        assert not waiting.done()
    await waiting


async def test_bindings_are_locked_by_name(store: PostgresStore, engine: AsyncEngine) -> None:
    await add_bindings(store, "b", "a")

    async def lock_both() -> None:
        async with store.transaction() as tx:
            await tx.bindings.lock_all([("shop", "b"), ("shop", "a")])

    async with store.transaction() as tx:
        await tx.bindings.lock("shop", "a")
        is_free, waiting = await is_free_while_waiting(engine, FREE_BINDING, lock_both())
    await waiting
    assert is_free


async def test_bindings_are_added_by_name(store: PostgresStore, engine: AsyncEngine) -> None:
    new = [Binding(namespace="shop", name=name) for name in ("b", "a")]

    async def add_both() -> None:
        async with store.transaction() as tx:
            await tx.decisions.add_all([new_decision(each) for each in new])

    async def add_second() -> bool:
        try:
            async with store.transaction() as tx:
                return await add_binding(tx, new[0]) is not None
        except Conflict:
            return False

    async with store.transaction() as tx:
        await add_binding(tx, new[1])
        waiting = asyncio.create_task(add_both())
        await until_waiting(engine)
        is_free = await add_second()
    await waiting
    assert is_free


async def test_versions_are_locked_by_the_clusters_ids(
    store: PostgresStore, engine: AsyncEngine
) -> None:
    await add_clusters(store, "z", "a")

    async def lock_both() -> None:
        async with store.transaction() as tx:
            await tx.journal.lock(["a", "z"])

    async with store.transaction() as tx:
        await tx.journal.lock(["z"])
        is_free, waiting = await is_free_while_waiting(engine, FREE_VERSION, lock_both())
    await waiting
    assert is_free


async def test_presences_are_put_by_the_clusters_ids(
    store: PostgresStore, engine: AsyncEngine
) -> None:
    await add_clusters(store, "z", "a")
    async with store.transaction() as tx:
        await tx.presences.put([heard("a"), heard("z")])

    async def put_both() -> None:
        async with store.transaction() as tx:
            await tx.presences.put([heard("a"), heard("z")])

    async with store.transaction() as tx:
        await tx.presences.put([heard("z")])
        is_free, waiting = await is_free_while_waiting(engine, FREE_PRESENCE, put_both())
    await waiting
    assert is_free
