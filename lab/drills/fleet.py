"""A small fleet of simulated clusters, and what is asked of it. Must not call anything."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from federation.codec.bindings import binding_to_message
from federation.model.placement import (
    Binding,
    DivisionPreference,
    Placement,
    ReplicaScheduling,
    SchedulingType,
)
from federation.model.workload import ReplicaRequirements
from lab.chaos.members import Member
from lab.fleets import GIB

CLUSTERS, NODES = 4, 25
REQUIREMENTS: Final = ReplicaRequirements(request={"cpu": 100, "memory": GIB // 16})
SCHEDULING: Final = ReplicaScheduling(
    type=SchedulingType.DIVIDED, preference=DivisionPreference.AGGREGATED
)


def members(cores: int = 32, nodes: int = NODES) -> dict[str, Member]:
    """By name. Their nodes are alike."""
    node = [cores * 1000, cores * 4 * GIB, 250, 100 * GIB, 0]
    nodes_rn = np.tile(np.array(node, dtype=np.int64)[:, None], (1, nodes))
    return {
        f"member{number}": Member(f"member{number}", nodes_rn, {}, seed=number)
        for number in range(CLUSTERS)
    }


def binding(name: str, replicas: int = 2) -> Any:
    return binding_to_message(
        Binding(
            namespace="drill",
            name=name,
            uid=f"uid-of-{name}",
            replicas=replicas,
            requirements=REQUIREMENTS,
            placement=Placement(replica_scheduling=SCHEDULING),
        )
    )
