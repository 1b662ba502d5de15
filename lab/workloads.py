"""Bindings as programs ask for them: so many replicas of one size, divided in one of four ways.

Must not know who decides them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from federation.codec.bindings import binding_to_message
from federation.model.placement import (
    Binding,
    ClusterAffinity,
    DivisionPreference,
    Placement,
    ReplicaScheduling,
    SchedulingType,
)
from federation.model.workload import NodeClaim, ReplicaRequirements, TargetCluster
from federation.v1.resource_pb2 import ResourceBinding

DYNAMIC: Final = ReplicaScheduling(type=SchedulingType.DIVIDED, dynamic=True)
AGGREGATED: Final = ReplicaScheduling(
    type=SchedulingType.DIVIDED, preference=DivisionPreference.AGGREGATED
)
BY_FIXED_WEIGHTS: Final = ReplicaScheduling(type=SchedulingType.DIVIDED)
DUPLICATED: Final = ReplicaScheduling(type=SchedulingType.DUPLICATED)


def workload(
    name: str,
    request: Mapping[str, int],
    replicas: int = 1,
    scheduling: ReplicaScheduling = DYNAMIC,
    *,
    namespace: str = "bench",
    among: Iterable[str] = (),
    runs: Mapping[str, int] | None = None,
    claim: NodeClaim | None = None,
    placement: Placement | None = None,
    **fields: Any,
) -> Binding:
    """``among``: clusters that it may go to, any without them; ``runs``: replicas by cluster."""
    names = tuple(among)
    affinity = ClusterAffinity(cluster_names=names) if names else None
    return Binding(
        **{
            "namespace": namespace,
            "name": name,
            "uid": f"uid-of-{name}",
            "replicas": replicas,
            "requirements": ReplicaRequirements(request=request, node_claim=claim),
            "clusters": tuple(
                TargetCluster(name=cluster, replicas=count)
                for cluster, count in (runs or {}).items()
            ),
            "placement": placement or Placement(affinity=affinity, replica_scheduling=scheduling),
            **fields,
        }
    )


def workload_message(
    name: str, request: Mapping[str, int], replicas: int = 1, **options: Any
) -> ResourceBinding:
    """The same as it goes over the wire."""
    return binding_to_message(workload(name, request, replicas, **options))
