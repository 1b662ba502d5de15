"""Decisions with their promises on one and on two control planes over one database."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from federation.model.errors import Unavailable
from federation.services.journal import Change
from federation.store import engine as engine_module
from federation.store.engine import create_engine
from federation.store.postgres import PostgresStore
from lab.services import (
    Agents,
    Deciders,
    apply,
    decided,
    make_deciders,
)
from tests.contract.store.test_failures import ForgetfulWire
from tests.unit.services.conftest import (
    ControlPlane,
    MeddledStore,
    StillClock,
    only,
    rows,
)


@pytest.mark.parametrize("losses", [1, 2])
async def test_a_connection_that_was_lost_silently_costs_another_try_and_no_more(
    one: ControlPlane,
    database_url: str,
    engine: AsyncEngine,
    agents: Agents,
    clock: StillClock,
    monkeypatch: pytest.MonkeyPatch,
    losses: int,
) -> None:
    monkeypatch.setattr(engine_module, "UNASKED_SECONDS", 3600.0)
    wire = ForgetfulWire(database_url)

    async def lose() -> None:
        nonlocal losses
        wire.forget_all()
        losses -= 1
        if losses:
            meddled.meddle = lose

    async with wire.laid() as url:
        lossy = create_engine(url)
        meddled = MeddledStore(PostgresStore(lossy))
        deciders = make_deciders(meddled, one.fleet, agents, clock)
        assert decided(await apply(deciders.scheduling, only("a", 1))) == {"a": 1}
        is_lost_for_good = losses > 1
        meddled.meddle = lose
        scheduling = apply(deciders.scheduling, replace(only("a"), name="late", uid=""))
        if is_lost_for_good:
            with pytest.raises(Unavailable):
                await scheduling
        else:
            assert decided(await scheduling) == {"a": 2}
        await lossy.dispose()
    assert await rows(engine, "decision") == (1 if is_lost_for_good else 2)


async def test_an_observer_that_fails_after_the_commit_lets_nothing_be_decided_again(
    one: ControlPlane, deciders: Deciders, engine: AsyncEngine, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_: Change) -> None:
        raise RuntimeError("a fault of the observer")

    one.fleet.observe(fail)
    answers = await asyncio.gather(
        *(apply(deciders.scheduling, replace(only("a"), name=name, uid="")) for name in "xyz")
    )
    assert [decided(each) for each in answers] == [{"a": 2}] * 3
    assert await rows(engine, "decision") == 3
    assert "an observer failed" in caplog.text
