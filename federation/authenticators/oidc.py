"""Callers by the JWTs of one issuer.

Must not fetch anything itself, nor believe anything of a token before its signature is verified.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import jwt

from federation.authenticators.keys import ALGORITHMS, SigningKeys
from federation.authenticators.subjects import KnownBearers, subject_of
from federation.model.errors import Unauthenticated
from federation.model.role_rules import RoleRules, Voucher
from federation.services.ports import Clock
from federation.services.values import Principal

MOST_CHARACTERS: Final = 12 * 1024
# The clocks of two machines may differ by as much.
LEEWAY_SECONDS: Final = 30.0
# Of objects within claims, which are named with dots: realm_access.roles.
DEPTH: Final = 3
_OPTIONS: Final[Any] = {
    "require": ["exp", "iss", "aud", "sub"],
    "enforce_minimum_key_length": True,
}
_REASONS: Final[Sequence[tuple[type[jwt.PyJWTError], str]]] = (
    (jwt.ExpiredSignatureError, "it has expired"),
    (jwt.ImmatureSignatureError, "it is not valid yet"),
    (jwt.InvalidAudienceError, "it is for another audience"),
    (jwt.InvalidIssuerError, "it is of another issuer"),
    (jwt.MissingRequiredClaimError, "it lacks one of the claims exp, iss, aud and sub"),
    (jwt.InvalidSignatureError, "its signature is not that of the issuer"),
)


class OidcAuthenticator:
    """Implements ``identity.Authenticator`` for JWTs that ``issuer`` made for ``audience``."""

    def __init__(
        self,
        *,
        issuer: str,
        audience: str,
        rules: RoleRules,
        keys: SigningKeys,
        clock: Clock,
        is_only: bool = True,
    ) -> None:
        self._issuer = issuer
        self._audience = audience
        self._rules = rules
        self._keys = keys
        self._is_only = is_only
        self._known = KnownBearers(clock)

    def takes(self, bearer: str) -> bool:
        """Whether it has the form of a JWT, and where others take some, too, says this issuer.

        Tokens of ours have one dot.
        """
        return bearer.count(".") == 2 and (self._is_only or _issuer(bearer) == self._issuer)

    def knows(self, bearer: str) -> bool:
        """Whether it was verified before, and still holds."""
        return self._known.find(bearer, self._keys.generation) is not None

    async def identify(self, bearer: str) -> Principal:
        """Raises Unauthenticated, PermissionRefused, and Unavailable without the issuer's keys."""
        if (known := self._known.find(bearer, self._keys.generation)) is not None:
            return known
        if len(bearer) > MOST_CHARACTERS or not bearer.isascii():
            raise _refused(f"it has more than {MOST_CHARACTERS} characters, or others than ASCII")
        header = _header(bearer)
        algorithm, key_id = header.get("alg"), header.get("kid", "")
        if not isinstance(algorithm, str) or algorithm not in ALGORITHMS:
            raise _refused("its algorithm is none that is allowed")
        key = await self._keys.find(key_id) if isinstance(key_id, str) else None
        # Of the generation before, where another one comes meanwhile.
        generation = self._keys.generation
        if key is None:
            raise _refused("the issuer has no key of its kid")
        if algorithm not in key.algorithms:
            raise _refused("its algorithm is not that of its key")
        claims = self._claims(bearer, key.key, algorithm)
        principal = subject_of(
            self._rules, Voucher.OIDC, claims["sub"], texts_of(claims), self._issuer
        )
        ends_at = float(claims["exp"]) + LEEWAY_SECONDS
        self._known.remember(bearer, principal, ends_at, generation)
        return principal

    def _claims(self, bearer: str, key: Any, algorithm: str) -> Mapping[str, Any]:
        try:
            claims: Mapping[str, Any] = jwt.decode(
                bearer,
                key,
                algorithms=[algorithm],
                audience=self._audience,
                issuer=self._issuer,
                leeway=LEEWAY_SECONDS,
                options=_OPTIONS,
            )
            float(claims["exp"])
        except jwt.PyJWTError as error:
            raise _refused(_reason(error)) from error
        except (ValueError, TypeError, OverflowError, RecursionError) as error:
            raise _refused("it cannot be read") from error
        return claims


def texts_of(claims: Mapping[str, Any]) -> Mapping[str, Sequence[str]]:
    """Claims as texts; what is within an object is named with dots."""
    found: dict[str, Sequence[str]] = {}
    for name, value in _flattened(claims, DEPTH):
        listed = value if isinstance(value, list) else [value]
        found.setdefault(name, [_text(each) for each in listed if isinstance(each, str | int)])
    return found


def _flattened(claims: Mapping[str, Any], depth: int) -> Iterator[tuple[str, Any]]:
    """The outer ones first: what is within an object never stands for them."""
    yield from ((name, value) for name, value in claims.items() if not isinstance(value, dict))
    for name, value in claims.items():
        if isinstance(value, dict) and depth > 1:
            yield from ((f"{name}.{inner}", each) for inner, each in _flattened(value, depth - 1))


def _text(value: str | int) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _header(bearer: str) -> Mapping[str, Any]:
    try:
        header: Mapping[str, Any] = jwt.get_unverified_header(bearer)
    except (jwt.PyJWTError, ValueError, TypeError, RecursionError) as error:
        raise _refused("it cannot be read") from error
    return header


def _issuer(bearer: str) -> str | None:
    """What it says of itself, which is nothing to believe yet."""
    if len(bearer) > MOST_CHARACTERS:
        return None
    try:
        claims = jwt.decode(bearer, options={"verify_signature": False})
    except (jwt.PyJWTError, ValueError, TypeError, OverflowError, RecursionError):
        return None
    issuer = claims.get("iss")
    return issuer if isinstance(issuer, str) else None


def _reason(error: jwt.PyJWTError) -> str:
    return next((text for kind, text in _REASONS if isinstance(error, kind)), "it cannot be read")


def _refused(reason: str) -> Unauthenticated:
    return Unauthenticated(f"The JWT is not valid: {reason}.")
