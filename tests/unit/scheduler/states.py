"""Cycle states for tests of single plugins. Must not decide what a test is about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from federation.model.cluster import Cluster
from federation.model.placement import Binding
from federation.scheduler.affinity import tiers
from federation.scheduler.fleet import Fleet
from federation.scheduler.state import ALONE, CycleState, Surroundings, prior_replicas


def state_of(
    clusters: Sequence[Cluster],
    binding: Binding,
    *,
    fits: Mapping[str, int] | None = None,
    surroundings: Surroundings = ALONE,
    now: float = 1_000.0,
) -> CycleState:
    """The state of a first cycle; ``fits`` is 10 for every cluster unless given."""
    fleet = Fleet.of(clusters)
    prior_c, placed_c = prior_replicas(binding, fleet)
    affinity = binding.placement.affinity
    return CycleState(
        binding=binding,
        fleet=fleet,
        available_c=np.array([(fits or {}).get(name, 10) for name in fleet.names], dtype=np.int64),
        prior_c=prior_c,
        placed_c=placed_c,
        tier_c=tiers(() if affinity is None else (affinity,), fleet),
        surroundings=surroundings,
        now=now,
    )
