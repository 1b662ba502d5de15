"""What tells who somebody is: JWTs, and what identity providers and API servers answer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest.mock import patch

from cryptography.hazmat.primitives.asymmetric import ed25519
from jwt.algorithms import OKPAlgorithm

from federation.authenticators import token_review
from federation.authenticators.keys import SigningKeys
from federation.authenticators.oidc import OidcAuthenticator
from federation.authenticators.token_review import TokenReviewAuthenticator, reviewer
from federation.codec.role_rules import role_rules_from_document
from federation.model.errors import FederationError
from federation.parts import SystemClock
from lab.fuzz.fuzzing import FuzzTarget
from lab.issuers import AUDIENCE, Issuer, forged, jwk_of

URL = "http://issuer"
RULES = role_rules_from_document(
    {
        "apiVersion": "fedsched.io/v1",
        "kind": "RoleRules",
        "rules": [
            {"from": "oidc", "claim": "sub", "value": "*", "role": "viewer"},
            {"from": "kubernetes", "claim": "groups", "value": "*", "role": "viewer"},
        ],
    }
)


def who_is_it(folder: Path) -> Iterator[FuzzTarget]:
    issuer = Issuer(url=URL)
    issuer.rotate("first")
    yield _jwt(issuer)
    yield _jwks(issuer)
    yield _token_review(folder)


def _jwt(issuer: Issuer) -> FuzzTarget:
    keys = SigningKeys(lambda: json.dumps(issuer.jwks()).encode())

    def take(content: bytes) -> object:
        return asyncio.run(_oidc(keys).identify(content.decode(errors="replace")))

    strange = forged({"alg": "ES256", "kid": ["first"]}, {"exp": "1e999"})
    seeds = [issuer.token(), issuer.token(exp=1), strange, forged({"alg": "none"}, [])]
    return FuzzTarget(
        name="JWT", take=take, seeds=[each.encode() for each in seeds], refusals=(FederationError,)
    )


def _jwks(issuer: Issuer) -> FuzzTarget:
    """Keys as they are read, and then used."""
    bearer = issuer.token()
    rsa_issuer = Issuer(url=URL)
    rsa_issuer.rotate("second", is_rsa=True)
    edwards = OKPAlgorithm.to_jwk(ed25519.Ed25519PrivateKey.generate().public_key(), as_dict=True)
    listed = [
        jwk_of("first", issuer.keys["first"]),
        jwk_of("second", rsa_issuer.keys["second"]),
        {**edwards, "kid": "third", "alg": "EdDSA"},
        {"kty": "oct", "k": "AA", "kid": "fourth"},
    ]

    def take(content: bytes) -> object:
        return asyncio.run(_oidc(SigningKeys(lambda: content)).identify(bearer))

    seeds = ({"keys": listed}, {"keys": listed[:1]})
    return FuzzTarget(
        name="JWKS",
        take=take,
        seeds=[json.dumps(each).encode() for each in seeds],
        refusals=(FederationError,),
    )


def _oidc(keys: SigningKeys) -> OidcAuthenticator:
    return OidcAuthenticator(
        issuer=URL, audience=AUDIENCE, rules=RULES, keys=keys, clock=SystemClock()
    )


def _token_review(folder: Path) -> FuzzTarget:
    token = folder / "token"
    token.write_text("ours")
    user = {"username": "system:serviceaccount:a:b", "uid": "u", "groups": ["system:authenticated"]}
    status = {"authenticated": True, "user": user, "audiences": [AUDIENCE]}
    refused = {"authenticated": False, "error": "token is expired"}

    return FuzzTarget(
        name="TokenReview",
        take=_reviewed(reviewer(URL, AUDIENCE, token, None)),
        seeds=[
            json.dumps({"kind": "TokenReview", "spec": {}, "status": each}).encode()
            for each in (status, refused)
        ],
        refusals=(FederationError,),
    )


def _reviewed(review: Callable[[str], object]) -> Callable[[bytes], object]:
    def take(content: bytes) -> object:
        authenticator = TokenReviewAuthenticator(
            review, audience=AUDIENCE, rules=RULES, clock=SystemClock()
        )
        with patch.object(token_review, "fetched", lambda *_, **__: content):
            return asyncio.run(authenticator.identify("a.b.c"))

    return take
