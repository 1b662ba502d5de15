"""Which clock is wrong, as far as an agent can tell."""

from __future__ import annotations

import pytest

from estimator.control_plane.clocks import PlaneClocks


@pytest.mark.parametrize(
    ("ahead_seconds", "explanation"),
    [
        (
            {"a:1": 600.0},
            "this clock is 600 s ahead of the control plane's at a:1: check which of them is wrong",
        ),
        (
            {"b:1": 0.4, "a:1": 600.0},
            (
                "this clock is 600 s ahead of the control plane's at a:1, and agrees with that at "
                "b:1: the clock at a:1 is wrong"
            ),
        ),
        (
            {"b:1": -599.0, "a:1": -600.0},
            (
                "this clock is 600 s behind the control plane's at a:1, which agrees with that at "
                "b:1: this clock is wrong"
            ),
        ),
        (
            {"b:1": 90.0, "a:1": 600.0},
            "this clock is 600 s ahead of the control plane's at a:1: check which of them is wrong",
        ),
        (
            {"b:1": 0.0, "c:1": 600.0, "a:1": 600.0},
            "this clock is 600 s ahead of the control plane's at a:1: check which of them is wrong",
        ),
    ],
)
def test_two_clocks_that_agree_are_right(ahead_seconds: dict[str, float], explanation: str) -> None:
    clocks = PlaneClocks()
    for endpoint, seconds in ahead_seconds.items():
        clocks.dial(endpoint)
        clocks.note(seconds)
    assert clocks.explain() == explanation


def test_a_clock_that_agrees_shows_which_other_one_is_wrong() -> None:
    clocks = PlaneClocks()
    for endpoint, seconds in {"a:1": 600.0, "b:1": 0.0}.items():
        clocks.dial(endpoint)
        clocks.note(seconds)
    (explanation,) = clocks.differing()
    assert explanation.endswith("agrees with that at b:1: the clock at a:1 is wrong")


def test_nothing_is_said_of_a_clock_that_was_not_told() -> None:
    assert PlaneClocks().explain() == ""
