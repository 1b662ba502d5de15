"""Deadlines that have passed, and tokens of any text; how calls are refused: tests/api."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from federation.model.errors import DeadlineMissed
from federation.rpc.calls import ROUNDED_UP_SECONDS, refuse_late
from federation.services.secrets import parse_secret


def test_a_deadline_that_has_passed_is_one_also_when_it_is_rounded_up() -> None:
    for left in (-1.0, 0.0, ROUNDED_UP_SECONDS):
        with pytest.raises(DeadlineMissed):
            refuse_late(left)
    for left_to_others in (None, 2 * ROUNDED_UP_SECONDS):
        refuse_late(left_to_others)


@given(st.text(max_size=300))
@example("0123456789abcdef.secret\0")
@example("0123456789abcdef.secreté")
def test_any_text_is_a_token_or_not(token: str) -> None:
    parsed = parse_secret(token)
    assert parsed is None or parsed.token == token
