"""Signals that come at any moment: raised where a program can stop, told where it must not."""

from __future__ import annotations

import signal

import pytest

from federation.runtime.interruptions import Interruptions


def arrive(interruptions: Interruptions) -> None:
    interruptions.arrive(signal.SIGTERM, None)


def test_it_raises_where_that_is_allowed_and_only_once() -> None:
    interruptions = Interruptions()
    with pytest.raises(KeyboardInterrupt), interruptions.allowed():
        arrive(interruptions)
    arrive(interruptions)


def test_one_that_came_before_is_raised_as_soon_as_it_may_be() -> None:
    interruptions = Interruptions()
    arrive(interruptions)
    with pytest.raises(KeyboardInterrupt), interruptions.allowed():
        pytest.fail("it is too late")


def test_what_must_not_be_interrupted_is_ended_first() -> None:
    interruptions, done = Interruptions(), []

    def work() -> None:
        with interruptions.allowed():
            with interruptions.held():
                arrive(interruptions)
                done.append("held")
            done.append("after")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done == ["held"]


def fail(interruptions: Interruptions, *, is_interrupted: bool) -> None:
    """Where it must not be interrupted."""
    with interruptions.held():
        if is_interrupted:
            arrive(interruptions)
        raise ValueError("failed")


def test_what_fails_where_it_must_not_be_interrupted_leaves_interrupts_on() -> None:
    interruptions = Interruptions()
    with interruptions.allowed():
        with pytest.raises(ValueError, match="failed"):
            fail(interruptions, is_interrupted=False)
        with pytest.raises(KeyboardInterrupt):
            arrive(interruptions)


def test_one_that_waited_is_raised_though_what_it_waited_for_fails() -> None:
    interruptions = Interruptions()
    with interruptions.allowed(), pytest.raises(KeyboardInterrupt) as raised:
        fail(interruptions, is_interrupted=True)
    assert isinstance(raised.value.__context__, ValueError)


def test_it_tells_and_does_not_raise_where_somebody_wants_to_be_told() -> None:
    interruptions, told = Interruptions(), []
    with interruptions.told(lambda: told.append("now")):
        assert told == []
        arrive(interruptions)
        assert told == ["now"]
    arrive(interruptions)
    assert told == ["now"]


def test_it_tells_at_once_of_one_that_came_before() -> None:
    interruptions, told = Interruptions(), []
    arrive(interruptions)
    with interruptions.told(lambda: told.append("before")):
        assert told == ["before"]
