"""The store on the test's database, and when somebody waits in it. Must not fill it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from uuid import uuid4

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from federation.model.placement import Binding
from federation.services.ports import NewDecision, Settled, StoredBinding, Transaction
from federation.services.values import DecisionRecord, Verdict
from federation.store.engine import create_engine
from federation.store.postgres import PostgresStore


@pytest.fixture
async def engine(database_url: str) -> AsyncIterator[AsyncEngine]:
    made = create_engine(database_url)
    yield made
    await made.dispose()


@pytest.fixture
async def fresh_engine(fresh_database_url: str) -> AsyncIterator[AsyncEngine]:
    """On a database of the test's own, whose schema it may change."""
    made = create_engine(fresh_database_url)
    yield made
    await made.dispose()


@pytest.fixture
def store(engine: AsyncEngine) -> PostgresStore:
    return PostgresStore(engine)


# Those of this database that wait for a row or a transaction of another one.
WAITING = text("""
    SELECT count(*) FROM pg_stat_activity
    WHERE datname = current_database() AND wait_event_type = 'Lock'
""")


async def until_waiting(engine: AsyncEngine, count: int = 1) -> None:
    """Returns when as many connections wait for a lock."""
    async with asyncio.timeout(30), engine.connect() as connection:
        while (await connection.execute(WAITING)).scalar_one() < count:
            await connection.rollback()


async def add_binding(tx: Transaction, binding: Binding) -> StoredBinding | None:
    """None where the name is taken."""
    return (await tx.bindings.add_all([binding])).get((binding.namespace, binding.name))


async def put_binding(
    tx: Transaction, binding_id: int, binding: Binding, outcome: Settled
) -> StoredBinding:
    (stored,) = (await tx.bindings.put_all([(binding_id, binding, outcome)])).values()
    return stored


async def keep_decision(
    tx: Transaction, binding_id: int, binding: Binding, verdict: Verdict
) -> DecisionRecord:
    """Under a new id."""
    new = NewDecision(id=str(uuid4()), binding_id=binding_id, binding=binding, verdict=verdict)
    return DecisionRecord(
        id=new.id,
        namespace=binding.namespace,
        name=binding.name,
        binding_generation=binding.generation,
        created_at=await tx.decisions.add_all([new]),
        decision=verdict.decision,
        evidence=verdict.evidence,
        promises=verdict.promises,
    )
