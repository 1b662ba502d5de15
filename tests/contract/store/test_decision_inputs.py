"""Bodies that decisions share: kept once, also by several at once, and forgotten when unused."""

from __future__ import annotations

import asyncio
import hashlib
from contextlib import suppress
from dataclasses import replace
from uuid import uuid4

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from federation.history.packed_inputs import SharedBodies
from federation.model.placement import Binding
from federation.store.decision_inputs import KNOWN_SECONDS, USED_SECONDS
from federation.store.postgres import PostgresStore, PostgresTransaction
from tests.stores import new_decision, until_waiting

CONTENTS = [f"content {number}".encode() for number in range(5)]
NAMES = [hashlib.sha256(content).digest() for content in CONTENTS]
ALL = SharedBodies(NAMES[0], dict(zip(NAMES, CONTENTS, strict=True)))
AGE = text("UPDATE decision_input SET used_at = now() - make_interval(secs => :seconds)")
USED = text("SELECT count(*) FROM decision_input WHERE used_at > now() - interval '1 min'")


async def add(tx: PostgresTransaction, *shared: SharedBodies) -> None:
    new = new_decision(Binding(name=f"web-{uuid4()}"))
    await tx.decisions.add_all([replace(new, trace=new.trace._replace(shared=shared))])


async def kept(store: PostgresStore) -> dict[bytes, bytes]:
    async with store.reading() as read:
        return dict(await read.decisions.shared(NAMES))


async def test_bodies_are_kept_once_whoever_writes_them(engine: AsyncEngine) -> None:
    async def write(bodies: SharedBodies) -> None:
        another = PostgresStore(engine)
        for _ in range(3):
            async with another.transaction() as tx:
                await add(tx, bodies, bodies)

    # In other orders: none waits for the other in a circle.
    others = SharedBodies(NAMES[3], dict(reversed(ALL.bodies.items())))
    await asyncio.gather(*(write(bodies) for bodies in (ALL, others) * 3))
    assert await kept(PostgresStore(engine)) == ALL.bodies


async def test_what_was_rolled_back_is_written_with_the_next(store: PostgresStore) -> None:
    with suppress(RuntimeError):
        async with store.transaction() as tx:
            await add(tx, ALL)
            raise RuntimeError
    assert await kept(store) == {}
    async with store.transaction() as tx:
        await add(tx, ALL)
    assert await kept(store) == ALL.bodies


async def test_bodies_are_forgotten_when_nothing_was_made_on_them_for_long(
    engine: AsyncEngine, store: PostgresStore
) -> None:
    async with store.transaction() as tx:
        await add(tx, ALL)
    async with engine.begin() as connection:
        await connection.execute(AGE, {"seconds": 100.0 + USED_SECONDS - KNOWN_SECONDS})
    async with store.transaction() as tx:
        assert await tx.decisions.prune_shared(100.0, 1000) == 0
    # Used again, by a process that does not know them.
    async with PostgresStore(engine).transaction() as tx:
        await add(tx, SharedBodies(NAMES[1], {NAMES[1]: CONTENTS[1]}))
    async with engine.begin() as connection:
        assert (await connection.execute(USED)).scalar_one() == 1
    async with store.transaction() as tx:
        assert await tx.decisions.prune_shared(0.0, 3) == 0
        assert await tx.decisions.prune_shared(-KNOWN_SECONDS * 2, 3) == 3
        assert await tx.decisions.prune_shared(-KNOWN_SECONDS * 2, 3) == 1
    assert await kept(store) == {NAMES[1]: CONTENTS[1]}


async def test_a_body_that_is_forgotten_while_it_is_put_is_there(
    engine: AsyncEngine, store: PostgresStore
) -> None:
    async with store.transaction() as tx:
        await add(tx, ALL)

    async def put_again() -> None:
        async with PostgresStore(engine).transaction() as tx:
            await add(tx, ALL)

    async with store.transaction() as tx:
        assert await tx.decisions.prune_shared(-KNOWN_SECONDS * 2 - USED_SECONDS, 1000) == 5
        putting = asyncio.create_task(put_again())
        await until_waiting(engine)
    await putting
    assert await kept(store) == ALL.bodies
