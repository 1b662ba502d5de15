"""Tokens as rows: found until they are forgotten, revoked once, uses that only go forward."""

from __future__ import annotations

import hashlib
from dataclasses import replace

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from federation.model.access import CallerLimits, Role, Scope
from federation.services.ports import NewToken, StoredToken, TokenUse
from federation.store.postgres import PostgresStore

HASH = hashlib.sha256(b"secret").digest()
NEW = NewToken(
    name="shop ci",
    role=Role.SCHEDULER,
    scope=Scope(namespaces=("shop-*", "web")),
    networks=("10.0.0.0/8",),
    limits=CallerLimits(calls_per_second=50, calls_at_once=10),
    ttl_seconds=3600,
    created_by="admin",
)


async def add(store: PostgresStore, token_id: str, new: NewToken = NEW) -> StoredToken:
    async with store.transaction() as tx:
        return await tx.tokens.add(token_id, HASH, new)


async def found(store: PostgresStore, token_id: str) -> StoredToken | None:
    async with store.reading() as read:
        return await read.tokens.find(token_id)


async def test_a_token_comes_back_as_it_was_made(store: PostgresStore) -> None:
    added = await add(store, "tok-1")
    assert added == await found(store, "tok-1")
    assert (added.name, added.role, added.scope) == (NEW.name, NEW.role, NEW.scope)
    assert (added.networks, added.created_by) == (NEW.networks, NEW.created_by)
    assert added.limits == NEW.limits
    assert added.expires_at - added.created_at == NEW.ttl_seconds
    assert not added.has_ended
    assert "secret_hash" not in repr(added)
    assert await found(store, "tok-2") is None


async def test_it_is_revoked_once_and_is_known_until_it_is_forgotten(
    store: PostgresStore, engine: AsyncEngine
) -> None:
    for token_id in ("tok-1", "tok-2"):
        await add(store, token_id)
    async with store.transaction() as tx:
        first = await tx.tokens.revoke("tok-1")
        assert await tx.tokens.revoke("tok-9") is None
    async with store.transaction() as tx:
        assert await tx.tokens.revoke("tok-1") == first
        assert await tx.tokens.unrevoked(["tok-1", "tok-2", "tok-9"]) == {"tok-2"}
        assert await tx.tokens.count() == 1
        assert await tx.tokens.prune(10) == 0
    async with engine.begin() as connection:
        await connection.execute(
            text("UPDATE access_token SET revoked_at = revoked_at - interval '30 days'")
        )
    async with store.transaction() as tx:
        assert await tx.tokens.prune(10) == 1
    assert await found(store, "tok-1") is None


async def test_pages_and_uses(store: PostgresStore) -> None:
    for token_id in ("tok-b", "tok-c", "tok-a"):
        await add(store, token_id, replace(NEW, name=token_id))
    async with store.transaction() as tx:
        await tx.tokens.put_uses(
            {"tok-b": TokenUse(200.0, "10.0.0.2"), "tok-gone": TokenUse(200.0, "")}
        )
        await tx.tokens.put_uses({"tok-b": TokenUse(100.0, "10.0.0.1")})
    async with store.reading() as read:
        page = await read.tokens.page("tok-a", 2)
    assert [token.name for token in page] == ["tok-b", "tok-c"]
    assert [(token.last_used_at, token.last_used_from) for token in page] == [
        (200.0, "10.0.0.2"),
        (None, ""),
    ]
