from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from federation.model.errors import PreconditionFailed, Unauthenticated, Unavailable
from federation.services.members.identity import (
    TRUSTED_SECONDS,
    Identity,
)
from federation.services.members.join import Registration
from federation.services.secrets import make_secret, parse_secret
from federation.services.values import PrincipalKind
from federation.store.postgres import PostgresStore
from lab.services import join
from tests.unit.services.conftest import StillClock


@pytest.fixture
def identity(store: PostgresStore, clock: StillClock) -> Identity:
    return Identity(store, clock)


async def revoke_all(engine: AsyncEngine) -> None:
    async with engine.begin() as connection:
        await connection.execute(text("UPDATE credential SET revoked_at = now()"))


async def first_admin_token(identity: Identity) -> str:
    kept: list[str] = []
    assert await identity.ensure_admin_token(kept.append)
    return kept[0]


def never_kept(token: str) -> None:
    raise PreconditionFailed("disk full")


async def test_the_first_start_makes_the_admin_token_and_later_ones_do_not(
    identity: Identity,
) -> None:
    token = await first_admin_token(identity)
    assert not await identity.ensure_admin_token(never_kept)
    assert (await identity.identify(token)).kind is PrincipalKind.ADMIN


async def test_of_several_first_starts_one_has_the_token(identity: Identity) -> None:
    kept: list[str] = []
    made = await asyncio.gather(*(identity.ensure_admin_token(kept.append) for _ in range(5)))
    assert sum(made) == len(kept) == 1


async def test_a_token_that_could_not_be_kept_was_never_made(identity: Identity) -> None:
    with pytest.raises(PreconditionFailed, match="disk full"):
        await identity.ensure_admin_token(never_kept)
    assert await first_admin_token(identity)


async def test_nobody_is_called_unknown_in_a_database_that_was_emptied(
    fresh_engine: AsyncEngine, clock: StillClock
) -> None:
    identity = Identity(PostgresStore(fresh_engine), clock)
    unknown = make_secret().token
    with pytest.raises(Unauthenticated):
        await identity.identify(unknown)
    async with fresh_engine.begin() as connection:
        await connection.execute(text("TRUNCATE history"))
    with pytest.raises(Unavailable, match="was emptied"):
        await identity.identify(unknown)


async def test_a_revoked_credential_is_refused_once_its_trust_has_run_out(
    identity: Identity, engine: AsyncEngine, clock: StillClock
) -> None:
    token = await first_admin_token(identity)
    await identity.identify(token)
    await revoke_all(engine)
    clock.time += TRUSTED_SECONDS + 1
    with pytest.raises(Unauthenticated):
        await identity.identify(token)


async def test_a_remembered_credential_expires_all_the_same(
    store: PostgresStore, registration: Registration, clock: StillClock
) -> None:
    identity = Identity(store, clock)
    issued = await join(registration, "member1")
    clock.time = issued.expires_at - 1
    await identity.identify(issued.credential)
    async with store._engine.begin() as connection:
        await connection.execute(text("UPDATE credential SET expires_at = now()"))
    clock.time = issued.expires_at
    with pytest.raises(Unauthenticated):
        await identity.identify(issued.credential)


@given(st.text(max_size=300))
def test_any_text_is_a_token_or_not(token: str) -> None:
    parsed = parse_secret(token)
    assert parsed is None or parsed.token == token


def test_secrets_differ_and_are_not_shown() -> None:
    one, other = make_secret(), make_secret()
    assert one.id != other.id
    assert one.secret != other.secret
    assert one.secret not in repr(one)
    assert one.matches(one.hash)
    assert not one.matches(other.hash)
