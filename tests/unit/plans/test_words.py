"""Words for what a plan comes to."""

from __future__ import annotations

import pytest

from federation.plans.plan import Gain, PlanKind
from federation.plans.words import gain_words


@pytest.mark.parametrize(
    ("gain", "at_best"),
    [
        # The bound counts parts of replicas that no node can run.
        (
            Gain(wanted=3, moved=0, bound=3),
            "3 replicas could move at most: no way to do it was found",
        ),
        (Gain(wanted=3, moved=0, bound=0), "0 replicas could move: no plan does more"),
        (
            Gain(wanted=3, moved=2, bound=3),
            "3 replicas could move: within 33.3 % of the best possible",
        ),
        (
            Gain(wanted=3, moved=3, bound=3),
            "3 replicas could move: within 0 % of the best possible",
        ),
    ],
)
def test_a_plan_that_moves_nothing_claims_no_distance(gain: Gain, at_best: str) -> None:
    assert gain_words(PlanKind.DRAIN, gain).at_best == at_best
