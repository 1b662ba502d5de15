"""Tokens of the form ``id.secret``: made here, shown once, kept as a hash.

Must not store or log anything. Secrets have 256 random bits, so one SHA-256 is enough: there is
nothing to guess, and no password to stretch.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from dataclasses import dataclass, field

ID_BYTES = 8
SECRET_BYTES = 32
# The prefix of ids of people's and programs' tokens tells them from other secrets.
TOKEN_PREFIX = "tok-"  # noqa: S105 - no secret
MAX_TOKEN_CHARACTERS = 256  # What callers send is hashed: bound the work.


@dataclass(frozen=True, slots=True, kw_only=True)
class Secret:
    """An identifier that may be logged, and the secret that may not."""

    id: str
    secret: str = field(repr=False)

    @property
    def token(self) -> str:
        return f"{self.id}.{self.secret}"

    @property
    def hash(self) -> bytes:
        return hashlib.sha256(self.secret.encode()).digest()

    def matches(self, secret_hash: bytes) -> bool:
        """Whether this is the secret behind the hash; takes as long when it is not."""
        return hmac.compare_digest(self.hash, secret_hash)


def make_secret() -> Secret:
    return Secret(id=secrets.token_hex(ID_BYTES), secret=secrets.token_urlsafe(SECRET_BYTES))


def make_token() -> Secret:
    """Make the secret of a token with a role."""
    secret = make_secret()
    return Secret(id=TOKEN_PREFIX + secret.id, secret=secret.secret)


def parse_secret(token: str) -> Secret | None:
    """Parse a token; None if it does not have the form of one."""
    if len(token) > MAX_TOKEN_CHARACTERS or not token.isascii() or "\0" in token:
        return None
    identifier, dot, secret = token.partition(".")
    if not (identifier and dot and secret):
        return None
    return Secret(id=identifier, secret=secret)
