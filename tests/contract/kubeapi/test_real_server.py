"""Whether the contract was held up to a real API server, or to the fake alone."""

from __future__ import annotations

import ssl
import urllib.request


def test_a_real_server_is_asked_too(real_url: str) -> None:
    unverified = ssl._create_unverified_context()  # noqa: S323 - its certificate is its own
    with urllib.request.urlopen(f"{real_url}/readyz", context=unverified) as answer:
        assert answer.read() == b"ok"
