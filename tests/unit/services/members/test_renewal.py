"""Credentials over the days: no order of connecting, missing and renewing locks an agent out."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import bindparam, text
from sqlalchemy.ext.asyncio import AsyncEngine

from federation.model.errors import NotFound, Unauthenticated
from federation.services.agent_values import AgentHello
from federation.services.members.join import Registration
from federation.services.members.renewal import Renewal
from federation.services.members.reports import Reporting
from federation.store.postgres import PostgresStore
from lab.services import join

DAY_SECONDS = 86_400.0
HELLO = AgentHello(epoch=1)


@pytest.fixture
def renewal(store: PostgresStore) -> Renewal:
    return Renewal(store, renew_seconds=DAY_SECONDS)


async def pass_days(engine: AsyncEngine, days: float) -> None:
    """Make all credentials as much older, by moving everything they say back."""
    statement = text(
        "UPDATE credential SET created_at = created_at - :by, expires_at = expires_at - :by"
    ).bindparams(bindparam("by", timedelta(days=days)))
    async with engine.begin() as connection:
        await connection.execute(statement)


async def test_an_agent_that_was_away_for_29_days_comes_back(
    registration: Registration, reporting: Reporting, renewal: Renewal, engine: AsyncEngine
) -> None:
    issued = await join(registration, "a")
    # The oldest that a credential gets while its agent is connected.
    while not renewal.is_due(issued.id, (await renewal.ages([issued.id]))[issued.id]):
        await pass_days(engine, 0.01)
    await pass_days(engine, 29)
    await reporting.connected("a", HELLO, issued.id)
    await pass_days(engine, 1)
    with pytest.raises(Unauthenticated):
        await reporting.connected("a", HELLO, issued.id)


@given(st.text("0123456789abcdef", min_size=16, max_size=16))
def test_a_credential_is_due_within_its_last_third_and_not_at_its_end(credential_id: str) -> None:
    renewal = Renewal(None, renew_seconds=1000.0)  # never asked
    assert not renewal.is_due(credential_id, 699.0)
    assert renewal.is_due(credential_id, 951.0)


async def test_the_old_one_is_good_until_the_new_one_is_used(
    registration: Registration, reporting: Reporting, renewal: Renewal
) -> None:
    old = await join(registration, "a")
    new = await renewal.renew("a", old.id)
    assert new.expires_at >= old.expires_at
    for _ in range(2):
        await reporting.connected("a", HELLO, old.id)
    await reporting.connected("a", HELLO, new.id)
    with pytest.raises(Unauthenticated):
        await reporting.connected("a", HELLO, old.id)


async def test_new_ones_that_got_lost_do_not_lock_the_agent_out(
    registration: Registration, reporting: Reporting, renewal: Renewal
) -> None:
    in_use = await join(registration, "a")
    lost = [await renewal.renew("a", in_use.id) for _ in range(3)]
    await reporting.connected("a", HELLO, in_use.id)
    # There is one overlap: of those that were lost only the newest could still be used.
    ages = await renewal.ages([in_use.id, *(each.id for each in lost)])
    assert set(ages) == {in_use.id, lost[-1].id}


async def test_who_was_revoked_gets_no_new_one(
    registration: Registration, renewal: Renewal, store: PostgresStore
) -> None:
    issued = await join(registration, "a")
    async with store.transaction() as tx:
        await tx.credentials.revoke_all("a")
    with pytest.raises(Unauthenticated):
        await renewal.renew("a", issued.id)
    with pytest.raises(NotFound):
        await renewal.renew("nobody", issued.id)


async def test_ages_are_told_of_valid_ones_only(
    registration: Registration, renewal: Renewal, engine: AsyncEngine
) -> None:
    first, second = await join(registration, "a"), await join(registration, "b")
    await pass_days(engine, 3)
    fresh = await join(registration, "c")
    ages = await renewal.ages([first.id, second.id, fresh.id, "unknown"])
    assert ages[first.id] == pytest.approx(3 * DAY_SECONDS, abs=60)
    assert ages[fresh.id] < 60
    await pass_days(engine, 27)
    assert set(await renewal.ages([first.id, second.id, fresh.id])) == {fresh.id}
