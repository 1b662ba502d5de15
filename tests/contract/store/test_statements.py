"""Each statement of the store carries a registered name, and sessions say whose they are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from sqlalchemy import text

import federation.store
from federation.store.engine import create_engine
from federation.store.statements import FREE, LOCKING, NAMES, RESHAPING, Lock, locks_of, named
from federation.store.tables import binding
from lab.lock_orders import LockOrders, name_of

ROOT = Path(__file__).resolve().parents[3]
SOURCES = sorted(Path(federation.store.__file__).parent.glob("*.py"))
# In a text, or as the first argument of `named`.
WRITTEN = re.compile(r"/\* fedsched:([a-z_.]+) \*/|named\(\s*\"([a-z_.]+)\"")


def written_names() -> list[str]:
    sources = (path.read_text() for path in SOURCES if path.stem != "statements")
    return [first or second for source in sources for first, second in WRITTEN.findall(source)]


def test_the_registry_has_all_names_and_no_statement_has_the_name_of_another() -> None:
    names = written_names()
    assert sorted(names) == sorted(NAMES)


def test_a_statement_either_locks_rows_or_does_not() -> None:
    locking = frozenset().union(*LOCKING.values())
    assert not locking & FREE
    assert not locking & RESHAPING
    assert set(LOCKING) == set(Lock)
    assert locks_of("journal.append_and_advance") == (Lock.LEDGER, Lock.JOURNAL)


@pytest.mark.parametrize("statement", [binding.select(), binding.insert(), binding.delete()])
def test_a_name_stands_behind_the_first_keyword(statement: object) -> None:
    compiled = str(named("bindings.find", statement))  # type: ignore[type-var]  # one of three
    assert name_of(compiled) == "bindings.find"
    assert name_of("/* fedsched:bindings.find */ SELECT 1") is None


def test_the_order_of_locks_is_documented() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    listed = re.findall(r"^\| (\d+) \| `([A-Z_]+)` \|", page, re.MULTILINE)
    assert listed == [(str(lock.value), lock.name) for lock in Lock]


async def test_a_lock_that_is_taken_too_late_is_noticed(database_url: str) -> None:
    engine = create_engine(database_url)
    orders = LockOrders()
    orders.watch()
    try:
        async with engine.connect() as connection:
            await connection.execute(text("SELECT /* fedsched:waiting.lock */ 1"))
            await connection.execute(text("SELECT /* fedsched:bindings.lock */ 1"))
            await connection.execute(text("SELECT /* fedsched:waiting.put */ 1"))
            await connection.rollback()
            await connection.execute(text("SELECT /* fedsched:bindings.lock */ 1"))
            await connection.execute(text("SELECT 1"))
    finally:
        orders.stop()
        await engine.dispose()
    assert orders.violations == [
        "bindings.lock takes BINDING after waiting.lock has taken WAITING",
        "a statement has no name: SELECT 1",
    ]


async def test_a_session_says_of_which_control_plane_it_is(database_url: str) -> None:
    engine = create_engine(database_url, "5f0a")
    async with engine.connect() as connection:
        name = await connection.scalar(text("SELECT current_setting('application_name')"))
    await engine.dispose()
    assert name == "fedsched/5f0a"
