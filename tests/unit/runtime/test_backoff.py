from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from federation.runtime.backoff import CAP_SECONDS, Backoff


def test_the_ceiling_doubles_up_to_the_cap_and_starts_again() -> None:
    backoff = Backoff(lambda ceiling: ceiling)
    assert [backoff.next_seconds() for _ in range(7)] == [1, 2, 4, 8, 16, 30, 30]
    backoff.reset()
    assert backoff.next_seconds() == 1


@given(st.lists(st.floats(0, 1), max_size=50))
def test_jitter_is_full_and_never_beyond_the_cap(draws: list[float]) -> None:
    remaining = iter(draws)
    backoff = Backoff(lambda ceiling: next(remaining) * ceiling)
    assert all(0 <= backoff.next_seconds() <= CAP_SECONDS for _ in draws)
