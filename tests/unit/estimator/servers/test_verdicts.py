"""Scores of all scales as the points that kube-scheduler takes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from estimator.binpack.arrays import ReplicaRequest
from estimator.binpack.balanced_allocation import BalancedAllocation
from estimator.binpack.fit_strategies.most_allocated import MostAllocated
from estimator.binpack.profile import ScoringProfile, WeightedPlugin
from estimator.binpack.strategy import ResourceWeight
from estimator.binpack.volcano import VolcanoBinpack
from estimator.servers.extender import ten_points

CPU_ALONE = (ResourceWeight(resource="cpu", weight=1),)


@pytest.mark.parametrize(
    ("score", "points"), [(0, 0), (4, 0), (5, 1), (14, 1), (59, 6), (60, 6), (95, 10), (100, 10)]
)
def test_hundred_becomes_ten_by_the_nearest_point(score: int, points: int) -> None:
    strategy = MostAllocated(weights=CPU_ALONE)
    assert ten_points(strategy, ReplicaRequest.of({}), np.array([score])).tolist() == [points]


def test_points_of_other_scales() -> None:
    request = ReplicaRequest.of({"cpu": 1})
    volcano = VolcanoBinpack(weight=5, weights=CPU_ALONE)
    assert ten_points(volcano, request, np.array([0.0, 437.5, 500.0])).tolist() == [0, 9, 10]
    repelling = VolcanoBinpack(weight=-5, weights=CPU_ALONE)
    assert ten_points(repelling, request, np.array([0.0, -500.0])).tolist() == [10, 0]
    nothing = ScoringProfile(scheduler_name="s", plugins=())
    assert ten_points(nothing, request, np.array([0, 0])).tolist() == [0, 0]


@given(
    fit=st.integers(1, 100),
    balanced=st.integers(1, 100),
    scores=st.lists(st.integers(0, 100), min_size=2, max_size=20),
)
def test_points_stay_in_range_and_in_order(fit: int, balanced: int, scores: list[int]) -> None:
    plugins = (
        WeightedPlugin(strategy=MostAllocated(weights=CPU_ALONE), weight=fit),
        WeightedPlugin(strategy=BalancedAllocation(weights=CPU_ALONE), weight=balanced),
    )
    profile = ScoringProfile(scheduler_name="s", plugins=plugins)
    score_n = np.array(sorted(scores)) * (fit + balanced)
    points = ten_points(profile, ReplicaRequest.of({"cpu": 1}), score_n).tolist()
    assert points == sorted(points)
    assert min(points) >= 0
    assert max(points) <= 10
