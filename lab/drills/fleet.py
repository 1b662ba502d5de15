"""A small fleet of simulated clusters, and what is asked of it. Must not call anything."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from federation.model.workload import ReplicaRequirements
from lab.chaos.members import Member
from lab.fleets import GIB
from lab.workloads import AGGREGATED, workload_message

CLUSTERS, NODES = 4, 25
REQUIREMENTS: Final = ReplicaRequirements(request={"cpu": 100, "memory": GIB // 16})


def members(cores: int = 32, nodes: int = NODES) -> dict[str, Member]:
    """By name. Their nodes are alike."""
    node = [cores * 1000, cores * 4 * GIB, 250, 100 * GIB, 0]
    nodes_rn = np.tile(np.array(node, dtype=np.int64)[:, None], (1, nodes))
    return {
        f"member{number}": Member(f"member{number}", nodes_rn, {}, seed=number)
        for number in range(CLUSTERS)
    }


def binding(name: str, replicas: int = 2) -> Any:
    size = REQUIREMENTS.request
    return workload_message(name, size, replicas, scheduling=AGGREGATED, namespace="drill")
