"""The store on the test's database, and when somebody waits in it. Must not fill it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from federation.model.placement import Binding
from federation.scheduler.decision import Outcome
from federation.services.binding_ports import StoredBinding
from federation.services.decision_ports import NewDecision
from federation.services.packed_traces import packed_traces
from federation.services.ports import Transaction
from federation.services.values import DecisionRecord, ReportEvidence, Verdict
from federation.store.engine import create_engine
from federation.store.postgres import PostgresStore
from lab.decisions import make_decision
from lab.patience import until


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


NOWHERE = Verdict(decision=make_decision(outcome=Outcome.UNSCHEDULABLE), evidence=ReportEvidence())

# Those of this database that wait for a row or a transaction of another one.
WAITING = text("""
    SELECT count(*) FROM pg_stat_activity
    WHERE datname = current_database() AND wait_event_type = 'Lock'
""")


# Decisions are of a day that is long over.
AGE_DECISIONS = "UPDATE decision SET created_at = now() - interval '9 days', day = '2001-01-01'"


async def until_waiting(engine: AsyncEngine, count: int = 1) -> None:
    """Returns when as many connections wait for a lock."""
    async with engine.connect() as connection:

        async def waiting() -> int:
            await connection.rollback()
            return int((await connection.execute(WAITING)).scalar_one())

        await until(waiting, lambda found: found >= count)


def new_decision(
    binding: Binding, verdict: Verdict = NOWHERE, *, placed: bool = False, **given: Any
) -> NewDecision:
    """Under a new id; about a new binding unless ``binding_id`` is given."""
    return NewDecision(
        **({"id": str(uuid4()), "binding_id": None} | given),
        binding=binding,
        verdict=verdict,
        trace=packed_traces([verdict])[0],
        placed=placed,
    )


async def add_binding(tx: Transaction, binding: Binding) -> StoredBinding | None:
    """With a decision that leaves it where it is; None where the name is taken."""
    stored, _ = await put_binding(tx, None, binding)
    return stored


async def put_binding(
    tx: Transaction,
    binding_id: int | None,
    binding: Binding,
    verdict: Verdict = NOWHERE,
    *,
    placed: bool = False,
    group: str = "",
) -> tuple[StoredBinding | None, DecisionRecord]:
    """A binding, new without an id, and a decision about it under a new id."""
    new = new_decision(
        binding, verdict, binding_id=binding_id, placed=placed, observed_affinity=group
    )
    settled = await tx.decisions.add_all([new])
    record = DecisionRecord(
        id=new.id,
        namespace=binding.namespace,
        name=binding.name,
        binding_generation=binding.generation,
        created_at=settled.at,
        decision=verdict.decision,
        evidence=verdict.evidence,
        promises=verdict.promises,
    )
    return settled.bindings.get((binding.namespace, binding.name)), record


async def keep_decision(
    tx: Transaction, binding_id: int, binding: Binding, verdict: Verdict
) -> DecisionRecord:
    """A decision that leaves its binding where it is."""
    _, record = await put_binding(tx, binding_id, binding, verdict)
    return record
