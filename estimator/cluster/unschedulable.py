"""How many of an owner's pods the cluster's own scheduler finds no node for.

Pure. Must not guess at why.
"""

from __future__ import annotations

from collections.abc import Iterable

from estimator.nodes import Pod, WorkloadRef


def unschedulable_replicas(pods: Iterable[Pod], owner: WorkloadRef, *, since: float) -> int:
    """Pods of the owner that have been unschedulable since ``since`` (Unix seconds) or longer.

    Of a Deployment those of its newest ReplicaSet, which its newest pod belongs to: the pods of
    the others are on their way out.
    """
    owned = [pod for pod in pods if pod.namespace == owner.namespace and pod.owner == owner]
    newest = max(owned, key=lambda pod: (pod.created_at, pod.revision), default=None)
    return sum(
        pod.unschedulable_since is not None and pod.unschedulable_since <= since
        for pod in owned
        if newest is not None and pod.revision == newest.revision
    )
