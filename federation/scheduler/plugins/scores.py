"""Score plugins: how good a cluster is for the binding, 0 to 100, higher is better.

Must not filter: a score of 0 is still a candidate.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from federation.model.arrays import IntArray, filled
from federation.scheduler.state import CycleState

ScorePlugin = Callable[[CycleState], IntArray]

MAX_SCORE = 100


def cluster_locality(state: CycleState) -> IntArray:
    """100 where the binding already is, an entry with 0 replicas included, else 0."""
    if not state.binding.clusters:
        return filled(len(state.fleet), 0)
    return np.where(state.placed_c, MAX_SCORE, 0)


def available_replicas(state: CycleState) -> IntArray:
    """Capacity for the binding in percent of the roomiest cluster's."""
    capacity_c = state.capacity_c
    most = int(capacity_c.max(initial=0))
    return capacity_c * MAX_SCORE // max(most, 1)


def packing(state: CycleState) -> IntArray:
    """How little capacity a share strands: the part of a cluster's room that the binding uses.

    100 where the binding would fill the cluster, less the more of it would stay open, 0 without
    room: best fit first.
    """
    capacity_c = state.capacity_c
    used_c = np.minimum(capacity_c, state.binding.replicas)
    return used_c * MAX_SCORE // np.maximum(capacity_c, 1)


SCORES: Mapping[str, ScorePlugin] = {
    "ClusterLocality": cluster_locality,
    "AvailableReplicas": available_replicas,
    "Packing": packing,
}
