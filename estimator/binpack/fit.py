"""Whether and how often a replica fits a node, as NodeResourcesFit filters.

Must not look at labels, taints or affinity: those come in as a mask.
"""

from __future__ import annotations

import numpy as np

from estimator.binpack.arrays import NodeArrays, ReplicaRequest
from federation.model.arrays import BoolArray, IntArray
from federation.model.resources import PODS


def room_n(nodes: NodeArrays, request: ReplicaRequest, most: int) -> IntArray:
    """How many of the replica each node still takes, at most ``most``."""
    room = np.full(nodes.size, most, dtype=np.int64)
    for resource, amount in request.amounts.items():
        if amount > 0:
            free_n = nodes.allocatable_n(resource) - nodes.requested_n(resource)
            np.minimum(room, free_n // amount, out=room)
    return np.maximum(room, 0, out=room)


def insufficient(nodes: NodeArrays, request: ReplicaRequest) -> dict[str, BoolArray]:
    """Per requested resource, in name order, the nodes that have too little of it free."""
    return {
        resource: amount > nodes.allocatable_n(resource) - nodes.requested_n(resource)
        for resource, amount in sorted(request.amounts.items())
        if amount > 0
    }


def unresolvable(nodes: NodeArrays, request: ReplicaRequest) -> dict[str, BoolArray]:
    """Per requested resource, in name order, the nodes that would have too little even if empty.

    Pod slots are left out: kube-scheduler always lets preemption try to free one.
    """
    return {
        resource: amount > nodes.allocatable_n(resource)
        for resource, amount in sorted(request.amounts.items())
        if amount > 0 and resource != PODS
    }
