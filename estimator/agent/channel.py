"""Channels to control planes, one endpoint after another, and how far their clocks are off.

Must not fall back from TLS to plain text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import grpc
import grpc.aio

from federation.model.errors import InvalidRequest
from federation.runtime.addresses import Address

KEEPALIVE_MILLIS = 30_000
KEEPALIVE_TIMEOUT_MILLIS = 10_000


class Dialler:
    """Opens channels to one endpoint after the other, from ``first`` on, round and round."""

    def __init__(self, endpoints: Sequence[Address], *, first: int) -> None:
        self._endpoints = endpoints
        self._next = first

    @property
    def dialled(self) -> str:
        """The endpoint that was opened last."""
        return str(self._endpoints[(self._next - 1) % len(self._endpoints)])

    def open(self, ca_pem: bytes | None) -> grpc.aio.Channel:
        """Open a channel as ``open_channel`` does, to the endpoint whose turn it is."""
        self._next += 1
        return open_channel(self._endpoints[(self._next - 1) % len(self._endpoints)], ca_pem)


def open_channel(endpoint: Address, ca_pem: bytes | None) -> grpc.aio.Channel:
    """A channel that trusts ``ca_pem`` alone; plain text without one.

    Raises InvalidRequest for plain text to anything but a loopback address.
    """
    options = [
        ("grpc.keepalive_time_ms", KEEPALIVE_MILLIS),
        ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MILLIS),
        ("grpc.keepalive_permit_without_calls", 0),
        # Dialling again is ours to pace, and a proxy between would see the plain text.
        ("grpc.enable_retries", 0),
        ("grpc.max_reconnect_backoff_ms", 1_000),
    ]
    if ca_pem is not None:
        credentials = grpc.ssl_channel_credentials(root_certificates=ca_pem)
        return grpc.aio.secure_channel(str(endpoint), credentials, options)
    if not endpoint.is_loopback:
        raise InvalidRequest.of(
            "--insecure",
            f"plain text goes to loopback addresses only, not to {endpoint}: "
            "give --ca-url and --ca-sha256, or --ca-file",
        )
    options.append(("grpc.enable_http_proxy", 0))
    return grpc.aio.insecure_channel(str(endpoint), options)


TOLERATED_CLOCK_SECONDS: Final = 5.0


class PlaneClocks:
    """By how many seconds the agent's clock is ahead of each control plane's, by endpoint."""

    def __init__(self) -> None:
        self._ahead_seconds: dict[str, float] = {}
        self._dialled = ""

    def dial(self, endpoint: str) -> None:
        """Take what is noted next as told by this control plane."""
        self._dialled = endpoint

    def note(self, ahead_seconds: float) -> None:
        """The agent's clock is so far ahead of the control plane's that was dialled."""
        self._ahead_seconds[self._dialled] = ahead_seconds

    def differing(self) -> list[str]:
        """Return an explanation for each control plane whose clock is another one."""
        return [
            self.explain(endpoint)
            for endpoint, seconds in sorted(self._ahead_seconds.items())
            if abs(seconds) > TOLERATED_CLOCK_SECONDS
        ]

    def explain(self, endpoint: str | None = None) -> str:
        """Return how a control plane's clock differs, and which one is wrong; else the dialled."""
        explained = self._dialled if endpoint is None else endpoint
        ahead_seconds = self._ahead_seconds.get(explained)
        if ahead_seconds is None:
            return ""
        plane = explained or "the control plane"
        way = "ahead of" if ahead_seconds > 0 else "behind"
        text = f"this clock is {abs(ahead_seconds):.0f} s {way} the control plane's"
        if explained:
            text += f" at {explained}"
        like_agent, like_plane = [], []
        for another, other_seconds in sorted(self._ahead_seconds.items()):
            if another == explained:
                continue
            if abs(other_seconds) <= TOLERATED_CLOCK_SECONDS:
                like_agent.append(another)
            elif abs(other_seconds - ahead_seconds) <= TOLERATED_CLOCK_SECONDS:
                like_plane.append(another)
        if like_agent and not like_plane:
            agreeing = ", ".join(like_agent)
            return f"{text}, and agrees with that at {agreeing}: the clock at {plane} is wrong"
        if like_plane and not like_agent:
            agreeing = ", ".join(like_plane)
            return f"{text}, which agrees with that at {agreeing}: this clock is wrong"
        return f"{text}: check which of them is wrong"
