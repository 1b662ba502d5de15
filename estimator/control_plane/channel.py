"""The channel to the control plane: TLS under one root, or plain text on a loopback address.

Must not fall back from the one to the other.
"""

from __future__ import annotations

from collections.abc import Sequence

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
        """As ``open_channel``, to the endpoint whose turn it is."""
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
