"""What of an issuer's answers is taken for a key, and which answers are taken; see test_oidc.py."""

from __future__ import annotations

import json

import pytest

from federation.authenticators.fetching import MOST_BYTES, fetched
from federation.authenticators.keys import keys_of
from federation.model.errors import Unavailable
from lab.issuers import running_issuer


def test_only_what_an_issuer_answers_itself_is_taken() -> None:
    with running_issuer() as issuer:
        issuer.status = 302
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
