"""Callers without a credential who send much, or often.

Must not need anything that a stranger does not have.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
import time
from collections.abc import Callable, Sequence
from typing import Any

import grpc
import jwt
from cryptography.hazmat.primitives.asymmetric import ec

from federation.services.secrets import TOKEN_PREFIX
from lab.attack.attack import GOALS, Attack
from lab.attack.target import Target
from lab.callers import bearer
from lab.issuers import AUDIENCE

MEBIBYTE = 1 << 20
# A little less than what is refused by its size alone.
PAYLOAD = bytes(4 * MEBIBYTE - 64)
AT_ONCE = 300
FLOOD_SECONDS = 10.0
FLOOD_CALLERS = 50
CALL_SECONDS = 60.0
CHANNELS = 30
FORGED = 1000

GUARDED = "/federation.v1.Scheduling/Schedule"
OPEN = "/federation.v1.Clusters/EnrollCluster"

Metadata = Sequence[tuple[str, str]]


def bad_token() -> Metadata:
    """Well-formed, an agent's or a person's: only the database can tell that there is none such."""
    kind = secrets.choice(["", TOKEN_PREFIX])
    return bearer(f"{kind}{secrets.token_hex(8)}.{secrets.token_urlsafe(32)}")


def forged_jwt(target: Target) -> Callable[[], Metadata]:
    """Of the right form, for the right audience, under a key that the issuer has: only the
    signature is another key's.
    """
    key, claims = ec.generate_private_key(ec.SECP256R1()), {"iss": target.issuer, "aud": AUDIENCE}
    # Signing costs as much as verifying does: a few are enough, as none is remembered.
    made = itertools.cycle(
        bearer(
            jwt.encode(
                {**claims, "sub": f"ann-{number}", "exp": int(time.time()) + 3600},
                key,
                algorithm="ES256",
                headers={"kid": "first"},
            )
        )
        for number in range(FORGED)
    )
    return lambda: next(made)


def big_calls_with_bad_tokens(target: Target, force: float) -> None:
    asyncio.run(_big_calls(target, GUARDED, bad_token, int(AT_ONCE * force)))


def big_calls_without_token(target: Target, force: float) -> None:
    asyncio.run(_big_calls(target, GUARDED, tuple, int(AT_ONCE * force)))


def big_enrolments(target: Target, force: float) -> None:
    asyncio.run(_big_calls(target, OPEN, tuple, int(AT_ONCE * force)))


async def _big_calls(
    target: Target, path: str, metadata: Callable[[], Metadata], count: int
) -> None:
    """All at once, over several connections."""
    channels = [target.aio_channel() for _ in range(CHANNELS)]
    try:
        calls = [
            _refused(channels[number % CHANNELS], path, PAYLOAD, metadata())
            for number in range(count)
        ]
        await asyncio.gather(*calls)
    finally:
        for channel in channels:
            await channel.close()


def flood_of_bad_tokens(target: Target, force: float) -> None:
    asyncio.run(_flood(target, bad_token, FLOOD_SECONDS * force))


def flood_of_forged_jwts(target: Target, force: float) -> None:
    asyncio.run(_flood(target, forged_jwt(target), FLOOD_SECONDS * force))


async def _flood(target: Target, metadata: Callable[[], Metadata], seconds: float) -> None:
    until = time.monotonic() + seconds

    async def go_on(channel: grpc.aio.Channel) -> None:
        while time.monotonic() < until:
            await _refused(channel, GUARDED, b"", metadata())

    async with target.aio_channel() as channel:
        await asyncio.gather(*(go_on(channel) for _ in range(FLOOD_CALLERS)))


async def _refused(
    channel: grpc.aio.Channel, path: str, payload: bytes, metadata: Metadata
) -> None:
    call: Any = channel.unary_unary(path)
    try:
        await call(payload, metadata=metadata, timeout=CALL_SECONDS)
    except grpc.aio.AioRpcError:
        return
    raise AssertionError(f"{path} took a call that it must refuse")


ATTACKS = (
    Attack(name="big calls with bad tokens", run=big_calls_with_bad_tokens, goals=GOALS),
    Attack(name="big calls without a token", run=big_calls_without_token, goals=GOALS),
    Attack(name="big enrolments", run=big_enrolments, goals=GOALS),
    Attack(name="flood of bad tokens", run=flood_of_bad_tokens, goals=GOALS),
    Attack(name="flood of forged JWTs", run=flood_of_forged_jwts, goals=GOALS),
)
