"""The keys that an issuer signs with: fetched off the event loop, kept, and rotated.

Must not verify anything with them.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import jwt
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

from federation.authenticators.fetching import object_of
from federation.model.errors import DeadlineMissed, FederationError, Unavailable
from federation.services.threads import Threads
from federation.services.troubles import Trouble

# Asymmetric ones alone: what verifies cannot sign. A key takes those of its kind.
RSA: Final = frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"})
ALGORITHMS: Final = RSA | {"ES256", "ES384", "ES512", "EdDSA"}
LEAST_RSA_BITS, MOST_RSA_BITS = 2048, 8192
MOST_KEYS: Final = 100
# Keys are fetched again after the first, while the old ones serve; when that keeps failing, the
# last good ones serve until the second.
RENEW_SECONDS: Final = 300.0
KEEP_SECONDS: Final = 3600.0
# Between two tries, whoever asks: an unknown key may be a new one, or nobody's.
PAUSE_SECONDS: Final = 10.0
# Longer than one fetch takes at most.
FETCH_SECONDS: Final = 15.0
FETCHING: Final = Threads("fetching of keys", workers=2, most_waiting=10)

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class VerificationKey:
    """A public key, and the algorithms that it may be used with."""

    key: Any
    algorithms: frozenset[str]


class SigningKeys:
    """Keys by their ``kid``. ``fetch`` waits for a JWKS document; it is called in a thread."""

    def __init__(
        self, fetch: Callable[[], bytes], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._fetch = fetch
        self._clock = clock
        self._keys: Mapping[str, VerificationKey] = {}
        self._fetched_at = self._tried_at = float("-inf")
        self._fetching: asyncio.Task[None] | None = None
        self._error: FederationError | None = None
        self._trouble = Trouble(logger, "keys of the issuer not fetched")
        # What was verified with keys of an older generation is verified again.
        self.generation = 0

    async def find(self, key_id: str) -> VerificationKey | None:
        """None where the issuer has no such key. Raises Unavailable while its keys are unknown."""
        age = self._clock() - self._fetched_at
        if key_id not in self._keys or age > KEEP_SECONDS:
            await self._renewed()
        elif age > RENEW_SECONDS:
            self._renewing()
        if self._clock() - self._fetched_at > KEEP_SECONDS:
            why = self._error.message if self._error else "they are being fetched"
            raise Unavailable(f"The keys of the issuer of JWTs are not known: {why}.")
        return self._keys.get(key_id)

    async def _renewed(self) -> None:
        fetching = self._renewing()
        if fetching is not None:
            # Others wait for it as well, and go on when this caller does not.
            await asyncio.shield(fetching)

    def _renewing(self) -> asyncio.Task[None] | None:
        """The fetch that is under way; None where the last one is too near."""
        if self._fetching is None or self._fetching.done():
            if self._clock() - self._tried_at < PAUSE_SECONDS:
                return None
            self._tried_at = self._clock()
            self._fetching = asyncio.create_task(self._fetch_once())
        return self._fetching

    async def _fetch_once(self) -> None:
        try:
            async with asyncio.timeout(FETCH_SECONDS):
                content = await FETCHING.run(self._fetch)
            keys = keys_of(content)
        except TimeoutError:
            self._failed(DeadlineMissed(f"no answer within {FETCH_SECONDS:g} s"))
        except FederationError as error:
            self._failed(error)
        else:
            self._error, self._keys, self._fetched_at = None, keys, self._clock()
            self.generation += 1
            self._trouble.over()

    def _failed(self, error: FederationError) -> None:
        self._error = error
        self._trouble.met(error)


def keys_of(content: bytes) -> Mapping[str, VerificationKey]:
    """The keys of a JWKS that sign, by ``kid``. Raises Unavailable where there is none."""
    listed = object_of(content, "the JWKS").get("keys")
    if not isinstance(listed, list):
        raise Unavailable("the JWKS has no list of keys")
    found: dict[str, VerificationKey] = {}
    for entry in listed[:MOST_KEYS]:
        key = _key(entry) if isinstance(entry, dict) else None
        if key is not None:
            found[str(entry.get("kid", ""))] = key
    if not found:
        raise Unavailable("the JWKS has no key that can be used")
    return found


def _key(entry: dict[str, Any]) -> VerificationKey | None:
    """None for what is no public key that signs."""
    if entry.get("use", "sig") != "sig" or entry.get("kty") == "oct":
        return None
    try:
        read = jwt.PyJWK(entry)
    except (jwt.PyJWTError, TypeError, ValueError):
        return None
    public = isinstance(read.key, RSAPublicKey)
    if public and not LEAST_RSA_BITS <= read.key.key_size <= MOST_RSA_BITS:
        return None
    of_kind = RSA if public and "alg" not in entry else {read.algorithm_name}
    algorithms = ALGORITHMS & of_kind
    return VerificationKey(key=read.key, algorithms=algorithms) if algorithms else None
