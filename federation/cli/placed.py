"""How much of a binding has a cluster.

Must not ask anybody.
"""

from __future__ import annotations

from federation.model.placement import SchedulingType
from federation.v1 import resource_pb2


def requested_pods(spec: resource_pb2.ResourceBindingSpec) -> int:
    """Return the pods that a binding asks for, in its present clusters if each gets all of it."""
    pods = sum(part.replicas for part in spec.components) if spec.components else spec.replicas
    scheduling = spec.placement.replica_scheduling
    is_divided = (
        spec.placement.HasField("replica_scheduling")
        and scheduling.replica_scheduling_type != SchedulingType.DUPLICATED
    )
    if spec.components or not is_divided:
        pods *= max(1, len(spec.clusters))
    return pods


def placed_text(spec: resource_pb2.ResourceBindingSpec) -> str:
    """Pods with a cluster of those asked for, ``3/5``; yes or no for what has no pods."""
    pods = requested_pods(spec)
    if not pods:
        return "yes" if spec.clusters else "no"
    return f"{sum(share.replicas for share in spec.clusters)}/{pods}"


def placed_share(spec: resource_pb2.ResourceBindingSpec) -> float:
    """Which part of what is asked for has a cluster, from 0 to 1."""
    placed, _, requested = placed_text(spec).partition("/")
    return int(placed) / int(requested) if requested else float(placed == "yes")
