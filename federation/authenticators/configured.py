"""The authenticators that the settings ask for.

Must not authenticate anybody.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from federation.authenticators.fetching import fetched, object_of
from federation.authenticators.keys import SigningKeys
from federation.authenticators.oidc import OidcAuthenticator
from federation.codec.role_rules import read_role_rules
from federation.model.errors import Unavailable
from federation.runtime.files import read_whole
from federation.runtime.settings import Settings
from federation.services.members.identity import Authenticator
from federation.services.ports import Clock

DISCOVERY = "/.well-known/openid-configuration"


def authenticators_of(settings: Settings, clock: Clock) -> Sequence[Authenticator]:
    """Raises InvalidRequest where the file of rules breaks one."""
    if not settings.oidc_issuer or settings.role_rules is None:
        return ()
    oidc = OidcAuthenticator(
        issuer=settings.oidc_issuer,
        audience=settings.oidc_audience,
        rules=read_role_rules(settings.role_rules),
        keys=SigningKeys(key_source(settings)),
        clock=clock,
    )
    return (oidc,)


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
