"""Deadlines that have passed, and whose address a peer's is; how calls are refused: tests/api."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from federation.model.errors import DeadlineMissed
from federation.rpc.calls import ROUNDED_UP_SECONDS, refuse_late
from federation.rpc.strangers import address_of
from federation.services.secrets import parse_secret


def test_a_deadline_that_has_passed_is_one_also_when_it_is_rounded_up() -> None:
    for left in (-1.0, 0.0, ROUNDED_UP_SECONDS):
        with pytest.raises(DeadlineMissed):
            refuse_late(left)
    for left_to_others in (None, 2 * ROUNDED_UP_SECONDS):
        refuse_late(left_to_others)


@pytest.mark.parametrize(
    ("peer", "address"),
    [
        ("ipv4:127.0.0.1:53412", "127.0.0.1"),
        ("ipv6:%5B::1%5D:53412", "::/64"),
        ("ipv6:[2001:db8:1:2:3:4:5:6]:1", "2001:db8:1:2::/64"),
        ("ipv6:%5Bfe80::1%25eth0%5D:1", "fe80::/64"),
        ("ipv6:%5B::ffff:10.0.0.1%5D:1", "10.0.0.1"),
        ("unix:", "unix:"),
    ],
)
def test_an_address_is_that_of_a_network_customer(peer: str, address: str) -> None:
    assert address_of(peer) == address


@given(st.text(max_size=300))
@example("0123456789abcdef.secret\0")
@example("0123456789abcdef.secreté")
def test_any_text_is_a_token_or_not(token: str) -> None:
    parsed = parse_secret(token)
    assert parsed is None or parsed.token == token
