from __future__ import annotations

import asyncio
import hashlib

import pytest
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncEngine

from federation.model.cluster import Cluster
from federation.services.agent_values import AgentFacts
from federation.services.values import PrincipalKind
from federation.store.postgres import PostgresStore

HASH = hashlib.sha256(b"secret").digest()


async def add_token(store: PostgresStore, *, ttl_seconds: int = 60) -> float:
    async with store.transaction() as tx:
        return await tx.credentials.add_join_token(
            token_id="t", secret_hash=HASH, cluster="member1", ttl_seconds=ttl_seconds
        )


async def spend(store: PostgresStore, token_id: str, cluster: str) -> bytes | None:
    async with store.transaction() as tx:
        return await tx.credentials.spend_join_token(token_id, cluster)


async def add_cluster(store: PostgresStore, name: str = "member1") -> int:
    async with store.transaction() as tx:
        added = await tx.clusters.add(Cluster(name=name, uid="u"), AgentFacts())
    assert added is not None
    return added.id


async def add_credential(store: PostgresStore, credential_id: str, cluster_id: int) -> None:
    async with store.transaction() as tx:
        await tx.credentials.add(
            credential_id=credential_id,
            secret_hash=HASH,
            kind=PrincipalKind.AGENT,
            cluster_id=cluster_id,
            ttl_seconds=60,
        )


async def is_valid(store: PostgresStore, credential_id: str) -> bool:
    async with store.reading() as read:
        return await read.credentials.find(credential_id) is not None


async def test_a_join_token_expires_by_the_databases_clock(
    store: PostgresStore, engine: AsyncEngine
) -> None:
    expires_at = await add_token(store, ttl_seconds=3600)
    async with engine.begin() as connection:
        now = (await connection.execute(text("SELECT now()"))).scalar_one().timestamp()
        assert 3590 < expires_at - now <= 3600
        await connection.execute(
            text("UPDATE join_token SET created_at = now() - interval '2h', expires_at = now()")
        )
    assert await spend(store, "t", "member1") is None


async def test_credentials_are_found_with_their_cluster(store: PostgresStore) -> None:
    cluster_id = await add_cluster(store)
    await add_credential(store, "c", cluster_id)
    async with store.reading() as read:
        found = await read.credentials.find("c")
        assert await read.credentials.find("d") is None
    assert found is not None
    assert (found.kind, found.cluster, found.secret_hash) == ("agent", "member1", HASH)
    assert found.expires_at is not None


async def test_of_many_first_starts_one_makes_the_admin(store: PostgresStore) -> None:
    async def start(number: int) -> bool:
        async with store.transaction() as tx:
            if await tx.credentials.lock_admin():
                return False
            await tx.credentials.add(
                credential_id=f"admin{number}",
                secret_hash=HASH,
                kind=PrincipalKind.ADMIN,
                cluster_id=None,
                ttl_seconds=None,
            )
            return True

    assert sorted(await asyncio.gather(*map(start, range(6)))) == [False] * 5 + [True]


async def test_the_database_itself_refuses_what_is_not_a_hash(store: PostgresStore) -> None:
    with pytest.raises(IntegrityError):
        async with store.transaction() as tx:
            await tx.credentials.add_join_token(
                token_id="t", secret_hash=b"secret", cluster="member1", ttl_seconds=60
            )


async def test_a_credential_in_use_ends_those_before_it_and_none_after_it(
    store: PostgresStore,
) -> None:
    cluster_id, other_id = await add_cluster(store), await add_cluster(store, "member2")
    for credential_id in ("c1", "c2", "c3"):
        await add_credential(store, credential_id, cluster_id)
    await add_credential(store, "other", other_id)
    async with store.transaction() as tx:
        assert await tx.credentials.settle(cluster_id, "c2")
    assert await valid(store, "c1", "c2", "c3", "other") == ["c2", "c3", "other"]
    async with store.transaction() as tx:
        for unusable in ("c1", "other", "unknown"):
            assert not await tx.credentials.settle(cluster_id, unusable)
    assert await valid(store, "c2", "c3", "other") == ["c2", "c3", "other"]


async def valid(store: PostgresStore, *credential_ids: str) -> list[str]:
    return [each for each in credential_ids if await is_valid(store, each)]
