"""The nodes of one cluster as columns, and one replica as the scheduler counts it.

Must not parse quantities or know how the columns are kept current: the snapshot builds them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from federation.model.arrays import BoolArray, IntArray
from federation.model.resources import CPU, MEMORY, PODS

# What kube-scheduler's scoring assumes of a container that names no amount of its own.
DEFAULT_CPU_MILLIS = 100
DEFAULT_MEMORY_BYTES = 200 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaRequest:
    """A replica's request to a node, in the three views that kube-scheduler keeps apart.

    Amounts are base units (cpu in millicores, everything else whole).

    - ``amounts``: the plain request. Fitting, BalancedAllocation and Volcano go by it. It names
      ``pods: 1``, because a pod slot is taken like any other resource.
    - ``nonzero``: cpu and memory as Fit scoring counts the incoming pod: a container without an
      amount counts 100m / 200Mi, and pod-level resources are ignored.
    - ``nonzero_placed``: cpu and memory as the node's non-zero sum grows once the pod is there:
      the same defaults, but pod-level resources are honoured.
    """

    amounts: Mapping[str, int]
    nonzero: Mapping[str, int]
    nonzero_placed: Mapping[str, int]

    @classmethod
    def of(cls, amounts: Mapping[str, int]) -> ReplicaRequest:
        """The request of a pod with one container that asks for ``amounts``."""
        nonzero = {
            CPU: amounts.get(CPU, DEFAULT_CPU_MILLIS),
            MEMORY: amounts.get(MEMORY, DEFAULT_MEMORY_BYTES),
        }
        return cls(amounts={**amounts, PODS: 1}, nonzero=nonzero, nonzero_placed=nonzero)

    def scored(self, resource: str) -> int:
        """The amount Fit scoring counts for this replica."""
        return self.nonzero.get(resource, self.amounts.get(resource, 0))


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeArrays:
    """Rows of nodes in name order; per resource one contiguous int64 array, in base units.

    Rows have no names here: a position is the snapshot's business, and ties go to the lower one.
    A resource without an array is 0 on every node. ``pods`` is an ordinary resource: slots in
    ``allocatable``, pods present in ``requested``. ``nonzero_requested`` holds cpu and memory
    with the scoring defaults of the pods present; without it the plain sums are scored.
    """

    size: int
    allocatable: Mapping[str, IntArray]
    requested: Mapping[str, IntArray]
    nonzero_requested: Mapping[str, IntArray] = field(default_factory=dict)

    def allocatable_n(self, resource: str) -> IntArray:
        """The amounts that the nodes offer to pods."""
        return self._column(self.allocatable, resource)

    def requested_n(self, resource: str) -> IntArray:
        """The requests of the pods on the nodes."""
        return self._column(self.requested, resource)

    def scored_n(self, resource: str) -> IntArray:
        """The amounts that the pods on the nodes count for in Fit scoring."""
        if resource in self.nonzero_requested:
            return self.nonzero_requested[resource]
        return self.requested_n(resource)

    def after(
        self,
        node_m: IntArray,
        placed_m: IntArray,
        request: ReplicaRequest,
        resources: Iterable[str],
    ) -> NodeArrays:
        """Rows ``node_m`` of these nodes, each holding ``placed_m`` more of the replica.

        A node may occur several times, in several states. Only ``resources`` are kept: building
        a state must not cost more than scoring it.
        """
        allocatable: dict[str, IntArray] = {}
        requested: dict[str, IntArray] = {}
        nonzero_requested: dict[str, IntArray] = {}
        for name in resources:
            amount = request.amounts.get(name, 0)
            allocatable[name] = self.allocatable_n(name)[node_m]
            requested[name] = self.requested_n(name)[node_m] + placed_m * amount
            if name in self.nonzero_requested or name in request.nonzero_placed:
                amount = request.nonzero_placed.get(name, amount)
                nonzero_requested[name] = self.scored_n(name)[node_m] + placed_m * amount
        return NodeArrays(
            size=len(node_m),
            allocatable=allocatable,
            requested=requested,
            nonzero_requested=nonzero_requested,
        )

    def _column(self, columns: Mapping[str, IntArray], resource: str) -> IntArray:
        column = columns.get(resource)
        return np.zeros(self.size, dtype=np.int64) if column is None else column


def room_n(nodes: NodeArrays, request: ReplicaRequest, max_replicas: int) -> IntArray:
    """How many of the replica each node still takes, at most ``most``."""
    room = np.full(nodes.size, max_replicas, dtype=np.int64)
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
