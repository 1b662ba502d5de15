from __future__ import annotations

import asyncio

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from federation.store.postgres import PostgresStore
from tests.stores import until_waiting

END = text("UPDATE duty SET expires_at = now() - interval '1 second'")


async def hold(store: PostgresStore, replica: str, duty: str = "leases") -> int | None:
    async with store.transaction() as tx:
        return (await tx.duties.hold([duty], replica, 60.0)).get(duty)


async def leave(store: PostgresStore, replica: str) -> None:
    async with store.transaction() as tx:
        await tx.duties.leave("leases", replica)


async def check(store: PostgresStore, token: int) -> bool:
    async with store.transaction() as tx:
        return await tx.duties.check("leases", token)


async def run_out(engine: AsyncEngine) -> None:
    async with engine.begin() as connection:
        await connection.execute(END)


async def test_one_replica_holds_a_duty_and_keeps_its_token(store: PostgresStore) -> None:
    assert [await hold(store, "x"), await hold(store, "y"), await hold(store, "x")] == [1, None, 1]
    assert await hold(store, "y", "another") == 1
    assert await check(store, 1)


async def test_of_many_at_once_one_gets_it(store: PostgresStore) -> None:
    tokens = await asyncio.gather(*(hold(store, f"replica-{number}") for number in range(8)))
    assert sorted(tokens, key=str) == [1] + [None] * 7


async def test_the_token_grows_with_every_change_of_holder(
    store: PostgresStore, engine: AsyncEngine
) -> None:
    assert await hold(store, "x") == 1
    await run_out(engine)
    # Nobody took it meanwhile: it is still the same one's.
    assert await hold(store, "x") == 1
    await run_out(engine)
    assert await hold(store, "y") == 2
    assert not await check(store, 1)
    assert await check(store, 2)
    await leave(store, "x")
    assert await check(store, 2)
    await leave(store, "y")
    assert not await check(store, 2)
    assert await hold(store, "y") == 3
    assert await check(store, 3)


async def test_nobody_takes_a_duty_over_while_its_holder_commits(
    store: PostgresStore, engine: AsyncEngine
) -> None:
    token = await hold(store, "x")
    assert token == 1
    await run_out(engine)
    async with store.transaction() as tx:
        assert await tx.duties.check("leases", token)
        # Nor does anybody wait for it: other duties have to be held meanwhile.
        assert await hold(store, "y") is None
    assert await hold(store, "y") == 2


async def test_a_holder_renews_while_it_works(store: PostgresStore, engine: AsyncEngine) -> None:
    """The lease outlasts a piece of work: nobody gets the duty in the moment after it."""
    token = await hold(store, "x")
    assert token == 1
    async with store.transaction() as tx:
        assert await tx.duties.check("leases", token)
        await run_out(engine)
        assert await hold(store, "x") == token
    assert await hold(store, "y") is None
    assert await check(store, token)


async def test_a_check_waits_for_who_is_taking_over(
    store: PostgresStore, engine: AsyncEngine
) -> None:
    assert await hold(store, "x") == 1
    await run_out(engine)
    async with store.transaction() as tx:
        assert await tx.duties.hold(["leases"], "y", 60.0) == {"leases": 2}
        checking = asyncio.create_task(check(store, 1))
        await until_waiting(engine)
        assert not checking.done()
    assert not await checking
    assert await check(store, 2)


async def test_a_duty_that_nobody_ever_held_is_not_anybodys(store: PostgresStore) -> None:
    assert not await check(store, 0)
    assert not await check(store, 1)
