"""Control planes that know each other, and what lets them in."""

from __future__ import annotations

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from federation.model.errors import Unauthenticated
from federation.services.journal_ports import Replica
from federation.services.members.identity import Identity
from federation.services.members.replicas import RENEW_SECONDS, Replicas
from federation.services.ports import Clock
from federation.services.values import Principal, PrincipalKind
from federation.store.postgres import PostgresStore


def replica(store: PostgresStore, clock: Clock, name: str) -> Replicas:
    made = Replicas(store, clock, name)
    made.endpoint = f"{name}.example:7443"
    return made


async def meet(store: PostgresStore, *replicas: Replicas) -> None:
    for each in replicas:
        async with store.transaction() as tx:
            await each.meet(tx)


async def test_they_know_each_other_and_not_themselves(store: PostgresStore, clock: Clock) -> None:
    a, b = replica(store, clock, "a"), replica(store, clock, "b")
    await meet(store, a, b, a)
    assert a.peer("b") == Replica(id="b", endpoint="b.example:7443")
    assert a.peer("a") is None
    assert a.endpoints == {"b.example:7443"}
    assert b.endpoints == {"a.example:7443"}


async def test_one_that_leaves_is_not_known_any_more(store: PostgresStore, clock: Clock) -> None:
    a, b = replica(store, clock, "a"), replica(store, clock, "b")
    await meet(store, a, b)
    await a.leave()
    await meet(store, b)
    assert b.peer("a") is None


async def test_one_that_is_silent_is_not_known_for_long(
    store: PostgresStore, clock: Clock, engine: AsyncEngine
) -> None:
    a, b = replica(store, clock, "a"), replica(store, clock, "b")
    await meet(store, a, b)
    for seconds, is_known in ((10, True), (10, False)):
        async with engine.begin() as connection:
            older = f"UPDATE replica SET heard_at = heard_at - interval '{seconds} s'"
            await connection.execute(text(f"{older} WHERE id = 'a'"))
        await meet(store, b)
        assert (b.peer("a") is not None) is is_known


async def test_a_credential_is_a_control_planes_and_ends_with_it(
    store: PostgresStore, clock: Clock
) -> None:
    a = replica(store, clock, "a")
    assert a.bearer == ""
    await a.keep_credential()
    caller = await Identity(store, clock).identify(a.bearer)
    assert caller == Principal(kind=PrincipalKind.REPLICA, credential_id=a.bearer.partition(".")[0])
    await a.leave()
    with pytest.raises(Unauthenticated):
        await Identity(store, clock).identify(a.bearer)


async def test_a_credential_is_renewed_and_the_old_one_goes_on(
    store: PostgresStore, clock: Clock
) -> None:
    a = replica(store, clock, "a")
    await a.keep_credential()
    first = a.bearer
    await a.keep_credential()
    assert a.bearer == first
    clock.time += RENEW_SECONDS
    await a.keep_credential()
    assert a.bearer != first
    for bearer in (first, a.bearer):
        assert (await Identity(store, clock).identify(bearer)).kind is PrincipalKind.REPLICA


async def test_only_the_hash_of_a_credential_is_kept(
    store: PostgresStore, clock: Clock, engine: AsyncEngine
) -> None:
    a = replica(store, clock, "a")
    await a.keep_credential()
    secret = a.bearer.partition(".")[2]
    async with engine.connect() as connection:
        (row,) = (await connection.execute(text("SELECT * FROM credential"))).all()
    assert row.kind == "replica"
    assert secret not in repr(row)
    assert row.expires_at is not None
