"""The ports of a demo: nobody else's, and no other demo's."""

from __future__ import annotations

import socket
from contextlib import ExitStack

from federation.demo.programs import LOOPBACK, claimed_port


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        port: int = probe.getsockname()[1]
        return port


def test_the_preferred_one_is_taken_when_it_is_free() -> None:
    preferred = free_port()
    with claimed_port(preferred) as port:
        assert port == preferred
    with claimed_port(preferred) as port:
        assert port == preferred


def test_two_demos_choose_two_ports_though_none_listens_yet() -> None:
    preferred = free_port()
    with ExitStack() as stack:
        ports = [stack.enter_context(claimed_port(preferred)) for _ in range(3)]
    assert len(set(ports)) == 3


def test_where_somebody_listens_another_one_is_taken() -> None:
    with socket.socket() as other:
        other.bind((LOOPBACK, 0))
        other.listen()
        with claimed_port(other.getsockname()[1]) as port:
            assert port != other.getsockname()[1]
            with socket.socket() as ours:
                ours.bind((LOOPBACK, port))
