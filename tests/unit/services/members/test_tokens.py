"""Tokens with roles: who has one is told by it, until it ends, from where it may be used."""

from __future__ import annotations

import asyncio

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from federation.model.access import Role, Scope
from federation.model.errors import LimitExceeded, NotFound, PermissionRefused, Unauthenticated
from federation.services.access import tokens as tokens_module
from federation.services.access.tokens import Tokens
from federation.services.access_ports import NewToken
from federation.services.members.identity import USES_SECONDS, Identity
from federation.services.values import Principal, PrincipalKind
from federation.store.postgres import PostgresStore
from lab.services import UnsteadyStore
from tests.unit.services.conftest import StillClock


def wanted(*networks: str) -> NewToken:
    return NewToken(
        name="ci",
        role=Role.VIEWER,
        scope=Scope(namespaces=("shop",)),
        networks=networks,
        ttl_seconds=3600,
        created_by="admin",
    )


@pytest.fixture
def identity(store: PostgresStore, clock: StillClock) -> Identity:
    return Identity(store, clock)


@pytest.fixture
def tokens(store: PostgresStore, identity: Identity) -> Tokens:
    return Tokens(store, identity.forget)


async def test_who_has_a_token_is_told_by_it(
    identity: Identity, tokens: Tokens, engine: AsyncEngine
) -> None:
    secret, stored = await tokens.create(wanted())
    principal = await identity.identify(secret.token)
    assert principal == Principal(
        kind=PrincipalKind.TOKEN,
        credential_id=stored.id,
        role=Role.VIEWER,
        scope=Scope(namespaces=("shop",)),
        name="ci",
    )
    assert str(principal) == f"token ci ({stored.id})"
    assert identity.is_known(secret.token)
    async with engine.connect() as connection:
        rows = (await connection.execute(text("SELECT * FROM access_token"))).all()
    assert secret.secret not in str(rows)
    for wrong in (f"{secret.id}.wrong", f"tok-0.{secret.secret}", secret.id):
        with pytest.raises(Unauthenticated) as refusal:
            await identity.identify(wrong)
        assert secret.id not in refusal.value.message


async def test_a_revoked_one_ends_at_once_here_and_soon_elsewhere(
    identity: Identity, tokens: Tokens, store: PostgresStore, clock: StillClock
) -> None:
    elsewhere = Identity(store, clock)
    secret, stored = await tokens.create(wanted())
    for plane in (identity, elsewhere):
        await plane.identify(secret.token)
    here, there = identity.revocation(stored.id), elsewhere.revocation(stored.id)
    assert there is elsewhere.revocation(stored.id)
    await tokens.revoke(stored.id)
    assert here.done()
    assert not there.done()
    await elsewhere.look()
    assert there.done()
    for plane in (identity, elsewhere):
        with pytest.raises(Unauthenticated, match=f"{stored.id} was revoked at"):
            await plane.identify(secret.token)
        assert not plane.is_known(secret.token)
    with pytest.raises(NotFound):
        await tokens.revoke("tok-0")


async def test_revocations_are_looked_for_again_after_an_outage(
    tokens: Tokens, store: PostgresStore, clock: StillClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("federation.services.members.identity.LOOK_SECONDS", 0.01)
    unsteady = UnsteadyStore(store)
    identity = Identity(unsteady, clock)
    secret, stored = await tokens.create(wanted())
    await identity.identify(secret.token)
    ended = identity.revocation(stored.id)
    unsteady.reachable = False
    looking = asyncio.create_task(identity.keep_looking())
    await tokens.revoke(stored.id)
    assert (await identity.identify(secret.token)).credential_id == stored.id
    unsteady.reachable = True
    await ended
    looking.cancel()


async def test_an_expired_one_says_when(
    identity: Identity, tokens: Tokens, engine: AsyncEngine
) -> None:
    secret, stored = await tokens.create(wanted())
    async with engine.begin() as connection:
        await connection.execute(
            text(
                "UPDATE access_token SET created_at = '2026-01-01', "
                "expires_at = '2026-03-01 12:00:00+00'"
            )
        )
    with pytest.raises(Unauthenticated, match=f"{stored.id} expired at 2026-03-01T12:00:00Z"):
        await identity.identify(secret.token)


@pytest.mark.parametrize(
    ("address", "is_within"),
    [
        ("10.1.2.3", True),
        ("::ffff:10.1.2.3", True),
        ("2001:db8::7", True),
        ("11.0.0.1", False),
        ("2001:db9::7", False),
        ("unix:/run/socket", False),
        ("", False),
    ],
)
async def test_it_is_good_in_its_networks_alone(
    identity: Identity, tokens: Tokens, address: str, *, is_within: bool
) -> None:
    secret, _ = await tokens.create(wanted("10.0.0.0/8", "2001:db8::/32"))
    if is_within:
        await identity.identify(secret.token, address)
    else:
        with pytest.raises(PermissionRefused, match=r"from 10\.0\.0\.0/8, 2001:db8::/32 alone"):
            await identity.identify(secret.token, address)


async def test_the_last_use_is_kept(identity: Identity, tokens: Tokens, clock: StillClock) -> None:
    secret, _ = await tokens.create(wanted())
    began = clock.time
    for address in ("10.1.2.3", "10.1.2.4"):
        await identity.identify(secret.token, address)
        await identity.look()
    (used,) = await tokens.list("", 10)
    assert (used.last_used_at, used.last_used_from) == (began, "10.1.2.3")
    clock.time += USES_SECONDS
    await identity.identify(secret.token, "10.1.2.4")
    await identity.look()
    (used,) = await tokens.list("", 10)
    assert (used.last_used_at, used.last_used_from) == (clock.time, "10.1.2.4")


async def test_there_are_not_too_many(tokens: Tokens, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens_module, "MOST_TOKENS", 2)
    _, first = await tokens.create(wanted())
    await tokens.create(wanted())
    with pytest.raises(LimitExceeded):
        await tokens.create(wanted())
    await tokens.revoke(first.id)
    await tokens.create(wanted())
