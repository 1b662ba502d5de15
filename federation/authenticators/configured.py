"""The authenticators that the settings ask for.

Must not authenticate anybody.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from federation.authenticators.certificates import CertificateAuthenticator
from federation.authenticators.fetching import fetched, object_of
from federation.authenticators.keys import SigningKeys
from federation.authenticators.oidc import OidcAuthenticator
from federation.authenticators.token_review import TokenReviewAuthenticator, reviewer
from federation.codec.role_rules import read_role_rules
from federation.model.errors import Unavailable
from federation.runtime.files import read_whole
from federation.runtime.settings import Settings
from federation.services.members.identity import Authenticator, Vouchers
from federation.services.ports import Clock

DISCOVERY = "/.well-known/openid-configuration"


def vouchers_of(settings: Settings, clock: Clock) -> Vouchers:
    """Raises InvalidRequest where the file of rules breaks one."""
    if settings.role_rules is None:
        return Vouchers()
    rules, found = read_role_rules(settings.role_rules), list[Authenticator]()
    url, audience = settings.token_review, settings.token_review_audience
    if settings.oidc_issuer:
        oidc = OidcAuthenticator(
            issuer=settings.oidc_issuer,
            audience=settings.oidc_audience,
            rules=rules,
            keys=SigningKeys(key_source(settings)),
            clock=clock,
            is_only=not url,
        )
        found.append(oidc)
    if url:
        review = review_source(settings)
        found.append(TokenReviewAuthenticator(review, audience=audience, rules=rules, clock=clock))
    certificates = CertificateAuthenticator(rules, clock) if settings.client_listen else None
    return Vouchers(bearers=found, certificates=certificates)


def review_source(settings: Settings) -> Callable[[str], Mapping[str, Any]]:
    """What asks the API server whose a token is."""
    return reviewer(
        settings.token_review,
        settings.token_review_audience,
        settings.token_review_token,
        settings.token_review_ca,
    )


def key_source(settings: Settings) -> Callable[[], bytes]:
    """What fetches the JWKS: a file, a URL, or what the issuer's discovery document names."""
    named, issuer, ca = settings.oidc_jwks, settings.oidc_issuer, settings.oidc_ca
    if named.startswith(("https://", "http://")):
        return lambda: fetched(named, ca)
    if named:
        return lambda: read_whole(Path(named))
    return lambda: fetched(discovered(issuer, fetched(issuer.rstrip("/") + DISCOVERY, ca)), ca)


def discovered(issuer: str, content: bytes) -> str:
    """Where the keys are. Raises Unavailable for the document of somebody else."""
    document = object_of(content, "the discovery document")
    if document.get("issuer") != issuer:
        raise Unavailable(f"the discovery document is not that of {issuer}")
    keys = document.get("jwks_uri")
    if not isinstance(keys, str):
        raise Unavailable("the discovery document names no jwks_uri")
    return keys
