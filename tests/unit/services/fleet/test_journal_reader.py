"""How often the journal is read while it cannot be; all else of following is said by tests/api."""

from __future__ import annotations

import asyncio
import random

import pytest

from federation.services.fleet import journal_reader
from federation.store.engine import create_engine
from federation.store.postgres import PostgresStore
from lab.commanded_stores import CommandedStore
from lab.services import fleet_of

AWAY = 6


async def test_while_the_database_is_away_it_tries_ever_less_often(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pauses: list[float] = []

    async def note(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == AWAY:
            raise asyncio.CancelledError

    monkeypatch.setattr(journal_reader.asyncio, "sleep", note)
    monkeypatch.setattr(random, "uniform", lambda _least, most: most)
    commanded = CommandedStore()
    store = commanded(PostgresStore(create_engine("postgresql://unused")))
    commanded.is_reachable = False
    with pytest.raises(asyncio.CancelledError):
        await journal_reader.Following(store, fleet_of()).run()
    assert pauses == [0.25, 0.5, 1.0, 2.0, 4.0, 8.0]
