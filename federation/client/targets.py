"""Where control planes are, and how to be let in.

Must not connect to any.
"""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from federation.model.errors import InvalidRequest

MAX_TIMEOUT_SECONDS: Final = 86_400.0
MAX_RETRIES: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Control planes on one database, and how to be let in.

    ``endpoint`` is one, or several with commas between: the first that can be reached is asked,
    until it goes away. ``ca_pem`` is the only root trusted; None uses the system's. ``plaintext``
    switches TLS off, for a control plane on the loopback interface. With ``cert_pem`` and
    ``key_pem`` a client certificate is shown, to a control plane's port for those. What may be
    repeated without harm is tried so many ``retries`` times more while nobody is available.
    """

    endpoint: str
    token: str = ""
    ca_pem: bytes | None = None
    cert_pem: bytes | None = None
    key_pem: bytes | None = None
    plaintext: bool = False
    timeout_seconds: float = 30.0
    retries: int = 0

    def __post_init__(self) -> None:
        """Raises InvalidRequest for what gRPC would only complain about later, and darkly."""
        if not self.endpoint:
            raise InvalidRequest.of("endpoint", "is required")
        if not all(self.endpoints):
            raise InvalidRequest.of("endpoint", "must name one between two commas")
        if not 0 < self.timeout_seconds <= MAX_TIMEOUT_SECONDS:
            rule = f"must be above 0 and at most {MAX_TIMEOUT_SECONDS:g} seconds"
            raise InvalidRequest.of("timeout", rule)
        if not 0 <= self.retries <= MAX_RETRIES:
            raise InvalidRequest.of("retries", f"must be 0 to {MAX_RETRIES}")
        if not (self.token.isascii() and self.token.isprintable()):
            raise InvalidRequest.of("token", "must be printable ASCII characters on one line")
        if (self.cert_pem is None) != (self.key_pem is None):
            raise InvalidRequest.of("clientCert", "comes with its key, and its key with it")
        if self.ca_pem is not None and not _is_certificates(self.ca_pem):
            raise InvalidRequest.of("ca", "holds no certificate in PEM form")

    @property
    def connection(self) -> tuple[object, ...]:
        """What connections are made of: targets that are alike in it can share theirs."""
        return self.endpoint, self.plaintext, self.ca_pem, self.cert_pem, self.key_pem

    @property
    def endpoints(self) -> Sequence[str]:
        return endpoints_of(self.endpoint)


def endpoints_of(endpoint: str) -> Sequence[str]:
    """One, or several with commas between, in their order and each once."""
    return tuple(dict.fromkeys(each.strip() for each in endpoint.split(",")))


def _is_certificates(pem: bytes) -> bool:
    try:
        context = ssl.create_default_context(cadata=pem.decode("ascii"))
    except (ssl.SSLError, ValueError):
        return False
    # Without any data the library would take the system's.
    return bool(pem.strip()) and bool(context.get_ca_certs() or b"-BEGIN CERTIFICATE-" in pem)
