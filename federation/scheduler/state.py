"""The input of one cycle: the binding, the fleet, available replicas, and prior replicas.

Must not change while a cycle runs: plugins only read it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from federation.model.arrays import BoolArray, FloatArray, IntArray, filled, nowhere, read_only
from federation.model.placement import Binding
from federation.model.reasons import Reason
from federation.scheduler.fleet import Fleet


@dataclass(frozen=True, slots=True, kw_only=True)
class BindingContext:
    """Facts about a binding beyond its own fields.

    ``affinity_peers`` and ``anti_affinity_peers`` hold the cluster names of each other scheduled
    binding of the same workload (anti-)affinity group. ``observed_affinity`` names the affinity
    group of the last decision; empty: there is none. Groups before it are tried again for a fresh
    binding only, because failing back is a rebalance, not a side effect. ``is_settled``: nothing
    asks for another placement, and clusters that the filters allow stay. ``triggers`` say why the
    binding is decided.
    """

    affinity_peers: tuple[frozenset[str], ...] = ()
    anti_affinity_peers: tuple[frozenset[str], ...] = ()
    observed_affinity: str = ""
    is_settled: bool = False
    triggers: tuple[Reason, ...] = ()

    @property
    def has_peers(self) -> bool:
        return bool(self.affinity_peers or self.anti_affinity_peers)


NO_CONTEXT = BindingContext()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CycleState:
    """The input of every plugin; arrays are in the fleet's order (axis c).

    ``available_c`` replicas fit beside the binding's own ones, 0 where unknown. ``placed_c`` marks
    clusters that hold the binding, also with 0 replicas, and ``prior_c`` has their replicas.
    ``tier_c`` is the overflow tier of each cluster, -1 outside the affinity.
    """

    binding: Binding
    fleet: Fleet
    available_c: IntArray
    prior_c: IntArray
    placed_c: BoolArray
    tier_c: IntArray
    surroundings: BindingContext
    now: float

    @property
    def capacity_c(self) -> IntArray:
        """Return the replicas of this binding that each cluster can hold, prior ones included."""
        if not self.binding.clusters:
            return self.available_c
        return read_only(self.available_c + self.prior_c)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SortState:
    """Bindings that wait; arrays are in their order (axis w), ``since_w`` in Unix seconds."""

    bindings: tuple[Binding, ...]
    priority_w: IntArray
    since_w: FloatArray


def prior_replicas(binding: Binding, fleet: Fleet) -> tuple[IntArray, BoolArray]:
    """Return (replicas, whether placed) by cluster; clusters that left the fleet are ignored."""
    if not binding.clusters:
        return filled(len(fleet), 0), nowhere(len(fleet))
    prior_c = np.zeros(len(fleet), np.int64)
    placed_c = np.zeros(len(fleet), np.bool_)
    for target in binding.clusters:
        position = fleet.index.get(target.name)
        if position is not None:
            prior_c[position] += target.replicas
            placed_c[position] = True
    return read_only(prior_c), read_only(placed_c)
