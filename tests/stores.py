"""Fixtures of the store on the test's database. Must not fill it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

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
