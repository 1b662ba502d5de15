"""Whether the contract was held up to a real API server, or to the fake alone."""

from __future__ import annotations

import ssl
import urllib.request

from lab.kubeapi.api import RealServer


def test_a_real_server_is_asked_too(real: RealServer) -> None:
    trusting = ssl.create_default_context(cafile=str(real.ca))
    with urllib.request.urlopen(f"{real.url}/readyz", context=trusting) as answer:
        assert answer.read() == b"ok"
