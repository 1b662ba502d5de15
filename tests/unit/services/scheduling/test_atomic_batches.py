"""Atomic batches: all items are placed in one transaction, or none is and nothing is stored."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from federation.model.errors import (
    Conflict,
    FederationError,
    LimitExceeded,
)
from federation.model.placement import Binding
from federation.services.fleet.registry import FleetOwner
from federation.services.scheduling import queue as waiting
from federation.services.scheduling.attempt import TRIES_WITHOUT_LOCKS
from federation.services.scheduling.batches import BatchItem, schedule_batch
from federation.services.values import Scheduled
from federation.store.postgres import PostgresStore
from lab.services import Deciders, apply, decided
from tests.unit.services.conftest import (
    ControlPlane,
    MeddledStore,
    held,
    only,
    rows,
)

Answers = Sequence[Scheduled | FederationError]


def named(name: str, binding: Binding) -> Binding:
    return replace(binding, name=name, uid="")


def items(*bindings: Binding) -> list[BatchItem]:
    """Named w0, w1 and so on, in order."""
    return [BatchItem(binding=named(f"w{n}", each)) for n, each in enumerate(bindings)]


async def together(plane: Deciders, batch: Sequence[BatchItem]) -> Answers:
    return await schedule_batch(plane.scheduling, batch, atomic=True)


def shares(answers: Answers) -> list[dict[str, int]]:
    return [decided(each) if isinstance(each, Scheduled) else {} for each in answers]


async def transactions(engine: AsyncEngine) -> int:
    """How many have written decisions."""
    async with engine.connect() as connection:
        counted = await connection.execute(text("SELECT count(DISTINCT xmin::text) FROM decision"))
        return int(counted.scalar_one())


async def nothing_is_stored(engine: AsyncEngine, fleet: FleetOwner) -> bool:
    """Nor known to hold anything."""
    counts = [await rows(engine, table) for table in ("binding", "decision", "reservation")]
    held_by = [fleet.ledger(name).bindings() for name in fleet.snapshot.names]
    return not any(counts) and not any(held_by)


async def test_what_another_one_took_meanwhile_decides_the_whole_batch_again(
    one: ControlPlane, other: ControlPlane, meddled: MeddledStore, store: PostgresStore
) -> None:
    rival = replace(only("b", 1), name="rival", uid="")
    meddled.meddle = lambda: apply(one.deciders.scheduling, rival)
    assert shares(await together(other.deciders, items(only("a"), only("b")))) == [
        {"a": 2},
        {"b": 2},
    ]
    greedy = replace(only("c", 2), name="greedy", uid="")
    meddled.meddle = lambda: apply(one.deciders.scheduling, greedy)
    batch = [BatchItem(binding=named(f"x{n}", only("c", n))) for n in (1, 2)]
    answers = await together(other.deciders, batch)
    assert shares(answers) == [{}, {}]
    assert [await held(store, each.binding) for each in batch] == [{}, {}]
    assert await held(store, greedy) == {"c": 2}
    await other.follow()
    assert set(other.fleet.ledger("c").bindings()) == {"shop/greedy"}


async def test_a_batch_that_others_keep_winning_against_is_decided_under_locks(
    one: ControlPlane, other: ControlPlane, meddled: MeddledStore, engine: AsyncEngine
) -> None:
    """Before each of its transactions somebody changes one of its bindings."""
    changed = named("w0", only("a", 1))
    await apply(one.deciders.scheduling, changed)
    replicas = iter(range(2, 30))
    before = TRIES_WITHOUT_LOCKS

    async def meddle() -> None:
        number = next(replicas)
        await apply(one.deciders.scheduling, replace(changed, labels={"n": str(number)}))
        if number < 2 + before:
            meddled.meddle = meddle

    meddled.meddle = meddle
    answers = await together(other.deciders, items(only("a", 3), only("b", 3)))
    assert shares(answers) == [{"a": 3}, {"b": 3}]
    assert next(replicas) == 3 + before


async def test_a_batch_that_never_comes_through_is_a_conflict(
    one: ControlPlane, other: ControlPlane, meddled: MeddledStore, engine: AsyncEngine
) -> None:
    changed = named("w0", only("a", 1))
    await apply(one.deciders.scheduling, changed)
    numbers = iter(range(1000))

    async def meddle() -> None:
        meddled.meddle = meddle
        await apply(one.deciders.scheduling, replace(changed, labels={"n": str(next(numbers))}))

    meddled.meddle = meddle
    with pytest.raises(Conflict):
        await together(other.deciders, items(only("a", 3), only("b", 3)))
    meddled.meddle = None
    assert await rows(engine, "binding") == 1


async def test_callers_of_two_control_planes_never_have_half_a_batch(
    one: ControlPlane, other: ControlPlane, store: PostgresStore, engine: AsyncEngine
) -> None:
    """Twelve batches of a replica in each cluster, where three of them fit."""
    batches = [
        [BatchItem(binding=named(f"{n}-{name}", only(name, 1))) for name in "abc"]
        for n in range(12)
    ]
    answers = await asyncio.gather(
        *(
            together((one, other)[number % 2].deciders, batch)
            for number, batch in enumerate(batches)
        )
    )
    placed = Counter(len([each for each in shares(answer) if each]) for answer in answers)
    assert placed == {3: 3, 0: 9}
    for batch, answer in zip(batches, answers, strict=True):
        assert [await held(store, each.binding) for each in batch] == shares(answer)
    assert await transactions(engine) == 3


async def test_too_many_leave_nothing_behind(
    deciders: Deciders, engine: AsyncEngine, fleet: FleetOwner, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(waiting, "MAX_WAITING", 2)
        with pytest.raises(LimitExceeded):
            await together(deciders, items(*[only("a", 1)] * 3))
    assert await nothing_is_stored(engine, fleet)
    assert await together(deciders, []) == []
