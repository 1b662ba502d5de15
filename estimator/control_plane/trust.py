"""The control plane's certificate authority, fetched over HTTP and held to its fingerprint.

Must not trust what was fetched for anything but being the pinned certificate.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import ssl
import urllib.error
import urllib.request
from typing import Final
from urllib.parse import urlsplit

from federation.model.errors import InvalidRequest, PermissionRefused, Unavailable

MAX_CA_BYTES: Final = 64 * 1024
FETCH_TIMEOUT_SECONDS: Final = 10.0

_CERTIFICATE: Final = re.compile(
    r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL
)


def parse_fingerprint(text: str) -> str:
    """SHA-256 in lower-case hex; colons, blanks and a leading ``sha256:`` are taken too.

    Raises ValueError with the rule that is broken.
    """
    digits = re.sub(r"[:\s]", "", text.lower().removeprefix("sha256:"))
    if not re.fullmatch(r"[0-9a-f]{64}", digits):
        raise ValueError("must be a SHA-256 in hex, 64 digits")
    return digits


def fetch_pinned_ca(url: str, fingerprint: str) -> bytes:
    """PEM of the certificate at ``url`` whose DER form has this SHA-256, and of no other.

    Blocks. Raises Unavailable when it cannot be fetched, PermissionRefused when it is another.
    """
    text = _fetch(url).decode("ascii", errors="replace")
    match = _CERTIFICATE.search(text)
    if match is None:
        raise PermissionRefused(f"{url} holds no PEM certificate")
    try:
        der = ssl.PEM_cert_to_DER_cert(match[0])
    except ValueError as error:
        raise PermissionRefused(f"{url} holds a certificate that cannot be read") from error
    found = hashlib.sha256(der).hexdigest()
    if not hmac.compare_digest(found, fingerprint):
        raise PermissionRefused(
            f"the CA certificate at {url} is not the pinned one: its SHA-256 is {found}, "
            f"--ca-sha256 says {fingerprint}"
        )
    return ssl.DER_cert_to_PEM_cert(der).encode("ascii")


def _fetch(url: str) -> bytes:
    if urlsplit(url).scheme not in ("http", "https"):
        raise InvalidRequest.of("--ca-url", "must be an http:// or https:// address")
    try:
        with urllib.request.urlopen(url, timeout=FETCH_TIMEOUT_SECONDS) as answer:  # noqa: S310 - scheme checked above
            content: bytes = answer.read(MAX_CA_BYTES + 1)
    except urllib.error.HTTPError as error:
        raise Unavailable(f"{url} answers {error.code} {error.reason}") from error
    except (OSError, ValueError) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        raise Unavailable(f"{url} cannot be fetched: {reason}") from error
    if len(content) > MAX_CA_BYTES:
        raise PermissionRefused(f"{url} holds more than {MAX_CA_BYTES} bytes: no CA certificate")
    return content
