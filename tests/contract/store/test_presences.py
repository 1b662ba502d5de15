from __future__ import annotations

from dataclasses import replace

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from federation.model.cluster import Cluster
from federation.services.agent_values import AgentFacts
from federation.services.journal_ports import Replica, StoredPresence
from federation.store.postgres import PostgresStore

NOW = text("SELECT extract(epoch FROM clock_timestamp())")


async def add_clusters(store: PostgresStore, *names: str) -> None:
    async with store.transaction() as tx:
        for name in names:
            await tx.clusters.add(Cluster(name=name), AgentFacts())


def heard(cluster: str, replica: str, epoch: int = 1) -> StoredPresence:
    return StoredPresence(
        cluster=cluster,
        replica=replica,
        epoch=epoch,
        heard_at=0.0,
        clock_offset_seconds=-0.25,
        confirmed_sequence=2**40 + epoch,
    )


async def put(store: PostgresStore, *presences: StoredPresence) -> None:
    async with store.transaction() as tx:
        await tx.presences.put(presences)


async def everything(store: PostgresStore) -> dict[str, StoredPresence]:
    async with store.reading() as read:
        return {each.cluster: each for each in await read.presences.all()}


async def test_who_heard_an_agent_last_is_known_with_the_stores_time(
    store: PostgresStore, engine: AsyncEngine
) -> None:
    await add_clusters(store, "b", "a")
    await put(store, heard("b", "x"), heard("a", "x"), heard("nobody", "x"))
    found = await everything(store)
    assert [replace(each, heard_at=0.0) for each in found.values()] == [
        heard("a", "x"),
        heard("b", "x"),
    ]
    async with engine.connect() as connection:
        now = float((await connection.execute(NOW)).scalar_one())
    assert now - 60 < found["a"].heard_at <= now
    await put(store, heard("a", "x"))
    assert (await everything(store))["a"].heard_at > found["a"].heard_at
    assert (await everything(store))["b"] == found["b"]
    await put(store)


async def test_an_older_session_changes_nothing(store: PostgresStore) -> None:
    await add_clusters(store, "a")
    await put(store, heard("a", "x", epoch=2))
    known = await everything(store)
    await put(store, heard("a", "y", epoch=1))
    assert await everything(store) == known
    await put(store, heard("a", "y", epoch=3))
    assert (await everything(store))["a"].replica == "y"


async def test_only_the_replica_that_serves_a_stream_ends_it(store: PostgresStore) -> None:
    await add_clusters(store, "a", "b")
    await put(store, heard("a", "x"), heard("b", "x"))
    known = await everything(store)
    async with store.transaction() as tx:
        await tx.presences.leave(["a", "b"], "y")
    assert await everything(store) == known
    async with store.transaction() as tx:
        await tx.presences.leave(["a", "gone"], "x")
    left = await everything(store)
    assert left["a"].heard_at > known["a"].heard_at
    assert replace(left["a"], heard_at=0.0) == replace(known["a"], replica="", heard_at=0.0)
    assert left["b"] == known["b"]
    async with store.reading() as read:
        assert await read.presences.all(left["a"].heard_at) == [left["a"]]


async def test_a_presence_goes_with_its_cluster(store: PostgresStore) -> None:
    await add_clusters(store, "a", "b")
    await put(store, heard("a", "x", epoch=9), heard("b", "x", epoch=9))
    async with store.transaction() as tx:
        ids = {each.cluster.name: each.id for each in await tx.clusters.all()}
        await tx.clusters.delete(ids["a"])
        await tx.clusters.put_uid(ids["b"], "another")
    assert await everything(store) == {}
    # Another cluster's sessions start anew.
    await put(store, heard("b", "y", epoch=1))
    assert (await everything(store))["b"].replica == "y"


async def test_replicas_are_known_while_they_are_heard_of(
    store: PostgresStore, engine: AsyncEngine
) -> None:
    first, second = Replica(id="1", endpoint="a:1"), Replica(id="2", endpoint="b:1")

    async def put_replica(replica: Replica) -> None:
        async with store.transaction() as tx:
            await tx.replicas.put(replica)

    async def running() -> list[Replica]:
        async with store.reading() as read:
            return list(await read.replicas.all(60.0))

    await put_replica(second)
    await put_replica(first)
    assert await running() == [first, second]
    async with engine.begin() as connection:
        await connection.execute(
            text("UPDATE replica SET heard_at = now() - interval '61 s' WHERE id = '1'")
        )
    assert await running() == [second]
    moved = replace(first, endpoint="a:2")
    await put_replica(moved)
    assert await running() == [moved, second]
    async with store.transaction() as tx:
        await tx.replicas.remove("2")
    assert await running() == [moved]


async def test_replicas_that_never_said_goodbye_are_forgotten(
    store: PostgresStore, engine: AsyncEngine
) -> None:
    async with store.transaction() as tx:
        await tx.replicas.put(Replica(id="crashed", endpoint="a:1"))
    async with engine.begin() as connection:
        await connection.execute(text("UPDATE replica SET heard_at = now() - interval '25 h'"))
    async with store.transaction() as tx:
        await tx.replicas.put(Replica(id="new", endpoint="b:1"))
    async with engine.connect() as connection:
        assert (await connection.execute(text("SELECT id FROM replica"))).scalars().all() == ["new"]
