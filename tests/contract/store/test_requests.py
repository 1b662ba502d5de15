from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from federation.services.journal_ports import KnownRequest
from federation.store.postgres import PostgresStore
from tests.stores import until_waiting

FIRST = KnownRequest(body_hash=b"1" * 32, answer=b"first")
SECOND = KnownRequest(body_hash=b"2" * 32, answer=b"second")
AGE = text("UPDATE idempotency_key SET created_at = now() - make_interval(hours => :hours)")


async def add(
    store: PostgresStore, request: KnownRequest, caller: str = "x"
) -> KnownRequest | None:
    async with store.transaction() as tx:
        return await tx.requests.add(caller, "key", request.body_hash, request.answer)


async def known(store: PostgresStore, caller: str = "x") -> KnownRequest | None:
    async with store.reading() as read:
        return await read.requests.get(caller, "key")


async def age(engine: AsyncEngine, hours: int) -> None:
    async with engine.begin() as connection:
        await connection.execute(AGE, {"hours": hours})


async def test_the_first_answer_stays_for_its_caller_alone(store: PostgresStore) -> None:
    assert await known(store) is None
    assert await add(store, FIRST) is None
    assert await add(store, SECOND) == FIRST
    assert await known(store) == FIRST
    assert await add(store, SECOND, caller="y") is None
    assert await known(store, caller="y") == SECOND


@pytest.mark.parametrize("error", [None, ZeroDivisionError], ids=["commits", "rolls back"])
async def test_the_second_waits_for_the_first(
    store: PostgresStore, engine: AsyncEngine, error: type[Exception] | None
) -> None:
    first = AsyncExitStack()
    tx = await first.enter_async_context(store.transaction())
    assert await tx.requests.add("x", "key", FIRST.body_hash, FIRST.answer) is None
    second = asyncio.create_task(add(store, SECOND))
    await until_waiting(engine)
    assert not second.done()
    if error is None:
        await first.aclose()
        assert await second == FIRST
        assert await known(store) == FIRST
    else:
        await first.__aexit__(error, error(), None)
        assert await second is None
        assert await known(store) == SECOND


async def test_a_key_is_free_after_a_day(store: PostgresStore, engine: AsyncEngine) -> None:
    await add(store, FIRST)
    await age(engine, 23)
    assert await add(store, SECOND) == FIRST
    await age(engine, 24)
    assert await known(store) is None
    assert await add(store, SECOND) is None
    assert await known(store) == SECOND
    assert await add(store, FIRST) == SECOND


async def test_only_what_nobody_can_ask_for_is_forgotten(
    store: PostgresStore, engine: AsyncEngine
) -> None:
    for caller in "abc":
        await add(store, FIRST, caller)

    async def prune(limit: int) -> int:
        async with store.transaction() as tx:
            return await tx.requests.prune(limit)

    await age(engine, 24)
    assert await prune(10) == 0
    await age(engine, 26)
    await add(store, FIRST, "a")
    assert [await prune(1), await prune(10), await prune(10)] == [1, 1, 0]
    assert await known(store, "a") == FIRST
