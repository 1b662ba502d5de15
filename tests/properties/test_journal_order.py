"""Readers of the journal miss nothing, however its writers come, go and end."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from contextlib import suppress

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from federation.model.errors import Unavailable
from federation.services.journal import START, ClusterChanged, Position
from federation.store.postgres import PostgresStore
from tests.stores import engine, store

__all__ = ["engine", "store"]

WRITERS, TRANSACTIONS = 10, 25
MAX_TRIPS = 4
COMMITTED = text("SELECT id FROM journal ORDER BY id")
TERMINATE = text("""
    SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE datname = current_database() AND state = 'idle in transaction'
    ORDER BY random() LIMIT 1
""")


class Undone(Exception):
    """Ends a transaction without a commit."""


async def write(store: PostgresStore, rng: random.Random) -> None:
    """Append in transactions of which some are short, some long, and some roll back."""
    for _ in range(TRANSACTIONS):
        with suppress(Undone, Unavailable):
            async with store.transaction() as tx:
                for _ in range(rng.randint(1, 3)):
                    for _ in range(rng.randint(0, MAX_TRIPS)):
                        await tx.journal.oldest()
                    await tx.journal.append([ClusterChanged(cluster="a")] * rng.randint(1, 3))
                if rng.random() < 0.2:
                    raise Undone


async def follow(store: PostgresStore, limit: int, ended: asyncio.Event) -> Sequence[Position]:
    """Return the positions of all entries in the order in which they were read."""
    positions = [START]
    while True:
        was_ended = ended.is_set()
        async with store.reading() as read:
            entries = await read.journal.read(positions[-1], limit)
        positions += [entry.position for entry in entries]
        if was_ended and len(entries) < limit:
            return positions[1:]


async def terminate(engine: AsyncEngine, ended: asyncio.Event) -> None:
    """End sessions that are in a transaction, one after the other."""
    async with engine.connect() as connection:
        while not ended.is_set():
            # A session of its own, which is not in a transaction while it looks for others.
            await connection.execute(TERMINATE)
            await connection.rollback()
            for _ in range(MAX_TRIPS * WRITERS):
                await connection.execute(COMMITTED)
                await connection.rollback()


@pytest.mark.parametrize("seed", range(3))
async def test_each_committed_entry_is_read_once_and_in_order(
    store: PostgresStore, engine: AsyncEngine, seed: int
) -> None:
    rng, ended = random.Random(seed), asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        readers = [tasks.create_task(follow(store, limit, ended)) for limit in (3, 1000)]
        tasks.create_task(terminate(engine, ended))
        async with asyncio.TaskGroup() as writers:
            for number in range(WRITERS):
                writers.create_task(write(store, random.Random(rng.random() + number)))
        ended.set()
    async with engine.connect() as connection:
        committed = (await connection.scalars(COMMITTED)).all()
    assert len(committed) > WRITERS
    for reader in readers:
        assert reader.result() == committed
