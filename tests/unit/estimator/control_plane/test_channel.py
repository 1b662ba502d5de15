from __future__ import annotations

import pytest

from estimator.control_plane.channel import open_channel
from federation.model.errors import InvalidRequest
from federation.runtime.addresses import Address, parse_endpoint


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("cp.example:7443", "cp.example", 7443),
        ("127.0.0.1:1", "127.0.0.1", 1),
        ("[::1]:7443", "::1", 7443),
    ],
)
def test_endpoints_are_read_and_written_alike(text: str, host: str, port: int) -> None:
    endpoint = parse_endpoint(text)
    assert endpoint == Address(host=host, port=port)
    assert str(endpoint) == text


@pytest.mark.parametrize(
    "text",
    ["cp.example", ":7443", "cp:", "cp:0", "cp:65536", "::1:7443", "http://cp:7443", "cp:\u0667"],
)
def test_what_is_no_endpoint_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="must be HOST:PORT"):
        parse_endpoint(text)


@pytest.mark.parametrize("text", ["localhost:1", "127.0.0.1:1", "127.9.9.9:1", "[::1]:1"])
async def test_plain_text_reaches_loopback(text: str) -> None:
    async with open_channel(parse_endpoint(text), None):
        pass


@pytest.mark.parametrize("text", ["cp.example:1", "10.0.0.1:1", "localhost.example:1", "[::]:1"])
def test_plain_text_goes_nowhere_else(text: str) -> None:
    with pytest.raises(InvalidRequest, match="loopback addresses only"):
        open_channel(parse_endpoint(text), None)
