"""An issuer's keys: rotated, kept for a while when it is away, and not asked for too often."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from federation.authenticators.configured import key_source
from federation.authenticators.fetching import MOST_BYTES, fetched
from federation.authenticators.keys import (
    KEEP_SECONDS,
    PAUSE_SECONDS,
    RENEW_SECONDS,
    SigningKeys,
    keys_of,
)
from federation.model.errors import Unavailable
from lab.issuers import Issuer, running_issuer


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with running_issuer() as running:
        yield running


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def keys_from(issuer: Issuer, clock: Clock) -> SigningKeys:
    settings = SimpleNamespace(oidc_jwks="", oidc_issuer=issuer.url, oidc_ca=None)
    return SigningKeys(key_source(settings), clock)


async def test_a_new_key_is_found_and_an_old_one_forgotten(issuer: Issuer) -> None:
    clock = Clock()
    keys = keys_from(issuer, clock)
    assert await keys.find("first") is not None
    first = keys.generation
    issuer.rotate("second")
    # Nobody is asked again so soon, whoever brings an unknown key.
    assert await keys.find("second") is None
    assert len(issuer.asked) == 2
    clock.now += PAUSE_SECONDS
    found = await asyncio.gather(*(keys.find("second") for _ in range(50)))
    assert all(found)
    assert len(issuer.asked) == 4
    assert await keys.find("first") is None
    assert keys.generation > first


async def test_the_last_good_keys_serve_for_a_while(issuer: Issuer) -> None:
    clock = Clock()
    keys = keys_from(issuer, clock)
    await keys.find("first")
    issuer.status = 503
    clock.now += RENEW_SECONDS + 1
    # It is asked behind the answer.
    assert await keys.find("first") is not None
    clock.now += KEEP_SECONDS
    with pytest.raises(Unavailable, match=r"are not known: http://.* answers 503"):
        await keys.find("first")
    with pytest.raises(Unavailable):
        await keys.find("first")
    issuer.status = 200
    clock.now += PAUSE_SECONDS
    assert await keys.find("first") is not None


async def test_whom_it_does_not_trust_is_not_believed(issuer: Issuer) -> None:
    issuer.says_issuer = "https://issuer.example"
    with pytest.raises(Unavailable, match="is not that of"):
        await keys_from(issuer, Clock()).find("first")
    issuer.says_issuer, issuer.status = "", 302
    with pytest.raises(Unavailable, match="answers 302"):
        fetched(issuer.url)
    assert "/elsewhere" not in issuer.asked
    with pytest.raises(Unavailable, match="only https"):
        fetched("http://issuer.example/keys")
    issuer.status, issuer.says_issuer = 200, "x" * MOST_BYTES
    with pytest.raises(Unavailable, match="more than 1 MiB"):
        fetched(f"{issuer.url}/.well-known/openid-configuration")


OTHERS = {
    "symmetric": {"kty": "oct", "k": "AAAA", "kid": "a"},
    "for encryption": {"kty": "EC", "use": "enc", "kid": "a"},
    "short": {"kty": "RSA", "n": "AQAB", "e": "AQAB", "kid": "a"},
    "unreadable": {"kty": "EC", "crv": "P-256", "x": "!", "y": "", "kid": "a"},
    "unknown": {"kty": ["RSA"], "kid": "a"},
}


@pytest.mark.parametrize("entry", OTHERS.values(), ids=OTHERS)
def test_what_is_no_public_key_that_signs_is_passed_over(entry: object) -> None:
    with pytest.raises(Unavailable, match="no key that can be used"):
        keys_of(json.dumps({"keys": [entry, 7]}).encode())
    for broken in (b"{", b"[]", b'{"keys": 1}', b"[" * 100_000):
        with pytest.raises(Unavailable):
            keys_of(broken)
