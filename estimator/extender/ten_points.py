"""Any strategy's scores as the 0 to 10 that an extender gives.

Linear from the strategy's lowest score to its highest, to the nearest whole point, halves up: a
kube-scheduler score s of 0 to 100 becomes floor(s / 10 + 0.5). kube-scheduler multiplies points by
10 and by the extender's weight; it clamps nothing, so neither may a score leave the range here.
Must not compute scores.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from estimator.binpack.arrays import Int64Array, ReplicaRequest
from estimator.binpack.profile import ScoringProfile
from estimator.binpack.strategy import MAX_NODE_SCORE, ScoreArray, Strategy
from estimator.binpack.volcano import VolcanoBinpack

MAX_POINTS: Final = 10


def ten_points(strategy: Strategy, request: ReplicaRequest, score_n: ScoreArray) -> Int64Array:
    """Points of every node; all 0 where the strategy cannot tell nodes apart."""
    lowest, highest = _range(strategy, request)
    if lowest == highest:
        return np.zeros(len(score_n), dtype=np.int64)
    points_n = np.floor((score_n - lowest) * MAX_POINTS / (highest - lowest) + 0.5)
    return np.clip(points_n, 0, MAX_POINTS).astype(np.int64)


def _range(strategy: Strategy, request: ReplicaRequest) -> tuple[int, int]:
    """The lowest and the highest score there can be."""
    if isinstance(strategy, VolcanoBinpack):
        most = MAX_NODE_SCORE * strategy.weight
        return min(0, most), max(0, most)
    if isinstance(strategy, ScoringProfile):
        weights = (plugin.weight for plugin in strategy.plugins if plugin.has_a_say(request))
        return 0, MAX_NODE_SCORE * sum(weights)
    return 0, MAX_NODE_SCORE
