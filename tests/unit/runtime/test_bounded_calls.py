"""Functions of others: what they answer and raise comes through, and nobody waits for ever."""

from __future__ import annotations

import pickle
import threading

import pytest

from federation.runtime.bounded_calls import BoundedCalls
from lab.patience import PATIENCE_SECONDS


def divided(number: int, *, by: int) -> float:
    return number / by


def end() -> None:
    raise SystemExit(3)


def late() -> None:
    raise TimeoutError("its own")


def test_answers_and_errors_come_through() -> None:
    calls = BoundedCalls(divided, PATIENCE_SECONDS)
    assert calls(6, by=3) == 2
    with pytest.raises(ZeroDivisionError):
        calls(6, by=0)
    assert calls(9, by=3) == 3
    with pytest.raises(SystemExit):
        BoundedCalls(end, PATIENCE_SECONDS)()
    own = BoundedCalls(late, PATIENCE_SECONDS)
    for _ in range(2):
        with pytest.raises(TimeoutError, match="its own"):
            own()


def test_it_goes_to_other_processes_as_its_function() -> None:
    calls = BoundedCalls(divided, PATIENCE_SECONDS)
    assert calls(6, by=3) == 2
    copied = pickle.loads(pickle.dumps(calls))  # noqa: S301 - made here
    assert copied(8, by=2) == 4


def test_once_it_has_rested_it_is_asked_again() -> None:
    """What nobody waits for any more is not asked later."""
    goes_on, asked = threading.Event(), list[int]()

    def slow(number: int) -> int:
        asked.append(number)
        goes_on.wait()
        return number

    calls = BoundedCalls(slow, 0.01, 0.0)
    for number in range(3):
        with pytest.raises(TimeoutError):
            calls(number)
    goes_on.set()
    patient = BoundedCalls(calls, PATIENCE_SECONDS)
    answer = None
    while answer is None:
        try:
            answer = patient(9)
        except TimeoutError:
            continue
    assert answer == 9
    assert asked[0] == 0
    assert not {1, 2} & set(asked)
