"""What one cycle knows: the binding, the fleet, availability, and what runs where.

Must not change while a cycle runs: plugins read it and answer.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from federation.model.arrays import BoolArray, FloatArray, IntArray, filled, nowhere, read_only
from federation.model.placement import Binding
from federation.model.reasons import Reason
from federation.scheduler.fleet import Fleet


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What the control plane knows about a binding beyond its own fields.

    ``affinity_peers`` and ``anti_affinity_peers`` are the cluster names of each other scheduled
    binding of the same workload (anti-)affinity group. ``observed_affinity`` names the affinity
    group of the last decision: groups before it are not tried again unless the binding is fresh
    (failing back is a rebalance, not a side effect); empty means from the first. ``is_settled``
    says that nothing asks for another placement: what the filters allow stays as it is.
    ``triggers`` say why it is decided.
    """

    affinity_peers: tuple[frozenset[str], ...] = ()
    anti_affinity_peers: tuple[frozenset[str], ...] = ()
    observed_affinity: str = ""
    is_settled: bool = False
    triggers: tuple[Reason, ...] = ()

    @property
    def has_peers(self) -> bool:
        return bool(self.affinity_peers or self.anti_affinity_peers)


ALONE = Surroundings()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CycleState:
    """The input of every plugin, arrays in the fleet's order (axis c).

    ``available_c`` is what fits beside the binding's own replicas, 0 where unknown.
    ``placed_c`` says where the binding is already (with 0 replicas too), ``prior_c`` with how
    many. ``tier_c`` is the overflow tier of each cluster, -1 outside the affinity.
    """

    binding: Binding
    fleet: Fleet
    available_c: IntArray
    prior_c: IntArray
    placed_c: BoolArray
    tier_c: IntArray
    surroundings: Surroundings
    now: float

    @property
    def capacity_c(self) -> IntArray:
        """What each cluster could hold of this binding, its own replicas there included."""
        if not self.binding.clusters:
            return self.available_c
        return read_only(self.available_c + self.prior_c)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SortState:
    """Bindings that wait, arrays in their order (axis w); ``since_w`` in Unix seconds."""

    bindings: tuple[Binding, ...]
    priority_w: IntArray
    since_w: FloatArray


def prior_replicas(binding: Binding, fleet: Fleet) -> tuple[IntArray, BoolArray]:
    """(replicas, whether placed) per cluster; entries of unknown clusters count as gone."""
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
