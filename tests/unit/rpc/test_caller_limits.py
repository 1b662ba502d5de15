from __future__ import annotations

from contextlib import ExitStack

import pytest

from federation.model.access import CallerLimits, Role
from federation.model.errors import LimitExceeded
from federation.rpc.caller_limits import LimitedCallers
from federation.services.values import Principal, PrincipalKind


def holder(credential_id: str, **limits: int) -> Principal:
    return Principal(
        kind=PrincipalKind.TOKEN,
        credential_id=credential_id,
        role=Role.VIEWER,
        limits=CallerLimits(**limits),
    )


def test_a_second_earns_the_calls_of_a_second() -> None:
    now = [100.0]
    callers = LimitedCallers(lambda: now[0])
    fast, other = holder("a", calls_per_second=3), holder("b", calls_per_second=3)

    def calls(principal: Principal) -> int:
        for count in range(10):
            try:
                with callers.call(principal):
                    pass
            except LimitExceeded:
                return count
        return 10

    assert (calls(fast), calls(fast), calls(other)) == (3, 0, 3)
    now[0] += 1.0
    assert (calls(fast), calls(holder("c"))) == (3, 10)


def test_a_call_that_ends_makes_place_for_another() -> None:
    callers, principal = LimitedCallers(), holder("a", calls_at_once=2)
    with ExitStack() as stack:
        stack.enter_context(callers.call(principal))
        for _ in range(2):
            with callers.call(principal), pytest.raises(LimitExceeded), callers.call(principal):
                pass
        with callers.call(holder("b", calls_at_once=1)):
            pass
