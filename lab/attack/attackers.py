"""Strangers who send much, or never say what they want, and an agent that harms others.

Must not need more than a stranger has, or the credential of the agent's own cluster.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import secrets
import selectors
import socket
import ssl
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any
from urllib.parse import urlsplit

import grpc
import jwt
from cryptography.hazmat.primitives.asymmetric import ec

from federation.runtime.addresses import Address, parse_address
from federation.services.secrets import TOKEN_PREFIX
from federation.v1.agents_pb2 import ConnectRequest, Report
from federation.v1.agents_pb2_grpc import AgentsStub
from lab.attack.attack import GOALS, PEAK_MIB, REST_GOALS, Attack
from lab.attack.target import Target
from lab.callers import bearer
from lab.control_planes import heartbeat, hello, report
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
# More than one caller may have of any limit.
VIEWER_CHANNELS, WATCHES_PER_CHANNEL, SCARCE_CALLERS = 3, 200, 10
SCARCE_PAUSE_SECONDS = 0.05
WATCHES = (
    "/federation.v1.Clusters/WatchClusters",
    "/federation.v1.Scheduling/WatchBindings",
)
SCARCE = (
    "/federation.v1.Simulation/Simulate",
    "/federation.v1.Scoring/ScoreNodes",
    "/federation.v1.Scheduling/ListBindings",
    "/federation.v1.Scheduling/ListQueue",
)
OPEN = "/federation.v1.Clusters/EnrollCluster"

# Shares bound what one caller has at once, and not how often it asks.
SHARE_GOALS = {"RSS at peak, MiB": PEAK_MIB, "complaints": 0.0, **REST_GOALS}

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
    asyncio.run(_flood_calls(target, bad_token, FLOOD_SECONDS * force))


def flood_of_forged_jwts(target: Target, force: float) -> None:
    asyncio.run(_flood_calls(target, forged_jwt(target), FLOOD_SECONDS * force))


async def _flood_calls(target: Target, metadata: Callable[[], Metadata], seconds: float) -> None:
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


CONNECTIONS = 1_100
HELD_SECONDS = 15.0
DRIP_SECONDS = 1.0
CONNECT_SECONDS = 5.0
RECEIVE_BYTES = 65_536
# Of those wanted, at the end of most seconds. In some the server ends those that are late.
LEAST_HELD = 0.9


@dataclass(slots=True)
class Dripped:
    """How many connections were made, and how many were open at the end of each second."""

    made: int = 0
    held: list[int] = field(default_factory=list)


def slow_loris_on_the_web_port(target: Target, force: float) -> None:
    """The server ends the oldest, so that few are held; it would prove nothing if none came."""
    address = parse_address(urlsplit(target.web).netloc)
    wanted = int(CONNECTIONS * force)
    dripped = drip(address, b"GET /readyz HTTP/1.1\r\n", b"x: y\r\n", wanted, HELD_SECONDS * force)
    assert dripped.made >= wanted, dripped


def slow_loris_on_the_api_port(target: Target, force: float) -> None:
    """Half a handshake: over TLS part of a hello, in plain text part of the preface."""
    address = parse_address(target.endpoint)
    wanted = int(CONNECTIONS * force)
    # Nothing within a record is read before all of it is there.
    opening, drop = (b"PRI * HTTP/2", b"") if target.ca is None else (half_client_hello(), b"\0")
    dripped = drip(address, opening, drop, wanted, HELD_SECONDS * force)
    assert median(dripped.held) >= LEAST_HELD * wanted, dripped


def half_client_hello() -> bytes:
    """Its record says how much is to come; a drop a second for minutes does not make it whole."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    connection = ssl.create_default_context().wrap_bio(
        incoming, outgoing, server_hostname="localhost"
    )
    with contextlib.suppress(ssl.SSLWantReadError):
        connection.do_handshake()
    hello = outgoing.read()
    return hello[: len(hello) // 2]


def drip(address: Address, opening: bytes, drop: bytes, wanted: int, seconds: float) -> Dripped:
    """Holds connections open by saying a little now and then; the lost ones are made anew."""
    until = time.monotonic() + seconds
    dripped, held = Dripped(), list[socket.socket]()
    with selectors.DefaultSelector() as selector:
        try:
            while time.monotonic() < until:
                while len(held) < wanted and time.monotonic() < until:
                    try:
                        made = socket.create_connection(
                            (address.host, address.port), CONNECT_SECONDS
                        )
                        made.sendall(opening)
                    except OSError:
                        break
                    made.setblocking(False)
                    selector.register(made, selectors.EVENT_READ)
                    held.append(made)
                    dripped.made += 1
                for each in [*held]:
                    try:
                        each.sendall(drop)
                    except OSError:
                        _drop(each, held, selector)
                time.sleep(DRIP_SECONDS)
                for key, _ in selector.select(0):
                    assert isinstance(key.fileobj, socket.socket)
                    if _is_over(key.fileobj):
                        _drop(key.fileobj, held, selector)
                dripped.held.append(len(held))
        finally:
            for each in held:
                each.close()
    return dripped


def _is_over(each: socket.socket) -> bool:
    try:
        return not each.recv(RECEIVE_BYTES)
    except OSError:
        return True


def _drop(each: socket.socket, held: list[socket.socket], selector: selectors.BaseSelector) -> None:
    with contextlib.suppress(KeyError):
        selector.unregister(each)
    each.close()
    held.remove(each)


CLUSTER = "malicious"
BEATS_PER_SECOND = 4_000
REPORTS_PER_SECOND = 500
BURSTS_PER_SECOND = 100
REDIAL_SECONDS = 0.1

Speak = Callable[[int], ConnectRequest]


def flood_of_heartbeats(target: Target, force: float) -> None:
    """All of them confirm the one report, which is the most work."""
    told = report()
    beat = heartbeat(told.sequence, told.content_hash)

    def speak(number: int) -> ConnectRequest:
        message = {"heartbeat": beat} if number else {"report": told}
        return ConnectRequest(cluster=CLUSTER, **message)

    asyncio.run(_flood(target, speak, BEATS_PER_SECOND, FLOOD_SECONDS * force))


def flood_of_reports(target: Target, force: float) -> None:
    first = report()

    def speak(number: int) -> ConnectRequest:
        told = Report()
        told.CopyFrom(first)
        told.sequence = number + 1
        told.content_hash = f"hash-{number}"
        return ConnectRequest(cluster=CLUSTER, report=told)

    asyncio.run(_flood(target, speak, REPORTS_PER_SECOND, FLOOD_SECONDS * force))


def flood_of_connections(target: Target, force: float) -> None:
    """Hello, and gone again."""
    asyncio.run(_flood(target, None, BURSTS_PER_SECOND, FLOOD_SECONDS * force))


async def _flood(target: Target, speak: Speak | None, per_second: int, seconds: float) -> None:
    """Dials again whenever it is sent away."""
    credential = await asyncio.to_thread(target.enrolled, CLUSTER)
    until = time.monotonic() + seconds
    async with target.aio_channel() as channel:
        stub: Any = AgentsStub(channel)
        while time.monotonic() < until:
            call = stub.Connect(metadata=bearer(credential), timeout=2 * FLOOD_SECONDS)
            listening = asyncio.create_task(_listen(call))
            try:
                await call.write(ConnectRequest(cluster=CLUSTER, hello=hello()))
                if speak is not None:
                    await _speak(call, speak, per_second, until)
                else:
                    await asyncio.sleep(1 / per_second)
            except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
                await asyncio.sleep(REDIAL_SECONDS)
            finally:
                call.cancel()
                await listening


def one_viewer_takes_all(target: Target, force: float) -> None:
    """Take all watches and calls that one token can get, and hold them."""
    asyncio.run(_take_all(target.token_of("ROLE_VIEWER"), target, FLOOD_SECONDS * force))


async def _take_all(token: str, target: Target, seconds: float) -> None:
    """Open watches beyond every limit, and ask again and again for what has few places."""
    until = time.monotonic() + seconds
    metadata = bearer(token)

    async def ask(call: Any) -> None:
        while time.monotonic() < until:
            with contextlib.suppress(grpc.aio.AioRpcError):
                await call(b"", metadata=metadata, timeout=seconds + 1.0)
            await asyncio.sleep(SCARCE_PAUSE_SECONDS)

    async with contextlib.AsyncExitStack() as channels:
        work = []
        for _ in range(VIEWER_CHANNELS):
            channel = await channels.enter_async_context(target.aio_channel())
            watches: list[Any] = [
                channel.unary_stream(path)(b"", metadata=metadata, timeout=seconds)
                for path in WATCHES
                for _ in range(WATCHES_PER_CHANNEL)
            ]
            work += [asyncio.create_task(_listen(watch)) for watch in watches]
            calls: list[Any] = [channel.unary_unary(path) for path in SCARCE]
            work += [
                asyncio.create_task(ask(call)) for call in calls for _ in range(SCARCE_CALLERS)
            ]
        await asyncio.gather(*work)


async def _speak(call: Any, speak: Speak, per_second: int, until: float) -> None:
    """As fast as told, or as the control plane takes it."""
    begun, said = time.monotonic(), 0
    while time.monotonic() < until:
        await call.write(speak(said))
        said += 1
        ahead = begun + said / per_second - time.monotonic()
        if ahead > 1 / BURSTS_PER_SECOND:
            await asyncio.sleep(ahead)


async def _listen(call: Any) -> None:
    try:
        async for _ in call:
            pass
    except (grpc.aio.AioRpcError, asyncio.CancelledError):
        return


ATTACKS = (
    Attack(name="big calls with bad tokens", run=big_calls_with_bad_tokens, goals=GOALS),
    Attack(name="big calls without a token", run=big_calls_without_token, goals=GOALS),
    Attack(name="big enrolments", run=big_enrolments, goals=GOALS),
    Attack(name="flood of bad tokens", run=flood_of_bad_tokens, goals=GOALS),
    Attack(name="flood of forged JWTs", run=flood_of_forged_jwts, goals=GOALS),
    Attack(name="slow-loris on the web port", run=slow_loris_on_the_web_port, goals=GOALS),
    Attack(name="slow-loris on the API port", run=slow_loris_on_the_api_port, goals=GOALS),
    Attack(name="flood of heartbeats", run=flood_of_heartbeats, goals=GOALS),
    Attack(name="flood of reports", run=flood_of_reports, goals=GOALS),
    Attack(name="flood of connections", run=flood_of_connections, goals=GOALS),
    Attack(name="one viewer takes all", run=one_viewer_takes_all, goals=SHARE_GOALS),
)
