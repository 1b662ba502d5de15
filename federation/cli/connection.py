"""Where the control plane is: the options every online verb shares.

Must not read the environment itself: ``__main__`` declares the variables.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import click

from federation.client import BlockingClient, Client, Target
from federation.model.errors import FederationError, InvalidRequest, Unavailable

T = TypeVar("T")
# What gRPC's TLS library says of a certificate that it does not take.
UNTRUSTED = "CERTIFICATE_VERIFY_FAILED"


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """What was said about the control plane; nothing is opened before the first call."""

    endpoint: str
    token_file: Path
    ca: Path | None
    insecure: bool
    timeout_seconds: float

    def call(self, method: Callable[[Client], Awaitable[T]]) -> T:
        """One call, on a connection of its own."""
        with self._trust_explained(), BlockingClient(self._target()) as client:
            return client.call(method)

    def iterate(self, method: Callable[[Client], AsyncGenerator[T]]) -> Iterator[T]:
        """What a watch yields, on a connection of its own."""
        with self._trust_explained(), BlockingClient(self._target()) as client:
            yield from client.iterate(method)

    @contextmanager
    def _trust_explained(self) -> Iterator[None]:
        """Say which option is at fault where the library only says how the handshake failed."""
        try:
            yield
        except Unavailable as error:
            _, failed, cause = error.message.partition(UNTRUSTED)
            if not failed:
                raise
            cause = cause.removesuffix(": OK").lstrip(": ")
            remedy = "name its authority with --ca" if self.ca is None else f"--ca is {self.ca}"
            text = f"the certificate of {self.endpoint} is not trusted ({cause}): {remedy}"
            raise Unavailable(text) from error

    def _target(self) -> Target:
        return Target(
            endpoint=self.endpoint,
            token=_read(self.token_file, "--token-file").decode("ascii", "replace").strip(),
            ca_pem=None if self.ca is None else _read(self.ca, "--ca"),
            plaintext=self.insecure,
            timeout_seconds=self.timeout_seconds,
        )


def connection() -> Connection:
    """The connection of the command that runs."""
    found = click.get_current_context().find_object(Connection)
    if found is None:
        raise FederationError("no connection was set up")
    return found


def _read(path: Path, option: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InvalidRequest.of(option, f"cannot read {path}: {error.strerror}") from error
