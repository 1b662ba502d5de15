"""Tokens with roles: who has one is told by it, until it ends, from where it may be used."""

from __future__ import annotations

import asyncio

import pytest

from federation.model.access import Role, Scope
from federation.model.errors import LimitExceeded, PermissionRefused
from federation.services.access import tokens as tokens_module
from federation.services.access.tokens import Tokens
from federation.services.access_ports import NewToken
from federation.services.members.identity import Identity
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


async def test_there_are_not_too_many(tokens: Tokens, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens_module, "MOST_TOKENS", 2)
    _, first = await tokens.create(wanted())
    await tokens.create(wanted())
    with pytest.raises(LimitExceeded):
        await tokens.create(wanted())
    await tokens.revoke(first.id)
    await tokens.create(wanted())
