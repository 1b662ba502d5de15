"""How many replicas of one shape fit: per node the scarcest resource decides. Exact, whole-array.

Must not choose between nodes: ``estimator.binpack`` does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from estimator.estimation.filter import feasible_n
from estimator.snapshot import Snapshot
from federation.model.arrays import BoolArray, IntArray
from federation.model.resources import PODS
from federation.model.workload import ReplicaRequirements


def replicas_n(snapshot: Snapshot, requirements: ReplicaRequirements) -> IntArray:
    """Replicas that fit on each node (axis n), 0 where the claim rules it out."""
    feasible = feasible_n(snapshot.table, requirements.node_claim)
    return room_n(snapshot.free_n, requirements.request, feasible)


def room_n(
    free_n: Callable[[str], IntArray], request: Mapping[str, int], feasible: BoolArray
) -> IntArray:
    """Floor(free / request) of the scarcest resource, free pod slots included, at least 0.

    ``free_n`` gives a resource's free amounts. A request without a positive amount takes pod
    slots alone.
    """
    room = np.where(feasible, free_n(PODS), 0)
    for name, amount in without_slots(request).items():
        np.minimum(room, free_n(name) // amount, out=room)
    return np.maximum(room, 0, out=room)


def without_slots(request: Mapping[str, int]) -> dict[str, int]:
    """The positive amounts, without pods: a replica takes one slot whatever it says."""
    return {name: amount for name, amount in request.items() if amount > 0 and name != PODS}
