"""Score plugins: how well a cluster suits the binding, 0 to 100, higher is better.

Must not filter: a cluster of score 0 is still a candidate.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from federation.model.arrays import IntArray, filled
from federation.scheduler.state import CycleState

ScorePlugin = Callable[[CycleState], IntArray]

MAX_SCORE = 100


def cluster_locality(state: CycleState) -> IntArray:
    """Score 100 where the binding is already, also with 0 replicas, else 0."""
    if not state.binding.clusters:
        return filled(len(state.fleet), 0)
    return np.where(state.placed_c, MAX_SCORE, 0)


def available_replicas(state: CycleState) -> IntArray:
    """Score the capacity for the binding in percent of the highest capacity of a cluster."""
    capacity_c = state.capacity_c
    highest = int(capacity_c.max(initial=0))
    return capacity_c * MAX_SCORE // max(highest, 1)


def packing(state: CycleState) -> IntArray:
    """Score the part of a cluster's capacity that the binding would use: best fit first.

    100: the binding would fill the cluster. 0: there is no capacity.
    """
    capacity_c = state.capacity_c
    used_c = np.minimum(capacity_c, state.binding.replicas)
    return used_c * MAX_SCORE // np.maximum(capacity_c, 1)


SCORES: Mapping[str, ScorePlugin] = {
    "ClusterLocality": cluster_locality,
    "AvailableReplicas": available_replicas,
    "Packing": packing,
}
