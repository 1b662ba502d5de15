"""Pods that still need a node, for tests of who gets one.

Must not hold any judgement.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from estimator.binder.gangs import MINIMUM_LABEL, NAME_LABEL
from estimator.binpack.arrays import ReplicaRequest
from estimator.placement.incoming import IncomingPod
from federation.model.workload import NodeClaim


def incoming(name: str, request: Mapping[str, int] | None = None, **changes: Any) -> IncomingPod:
    """A pod of namespace d; a tenth of a core unless said otherwise."""
    fields: dict[str, Any] = {
        "uid": f"{name}-uid",
        "namespace": "d",
        "name": name,
        "request": ReplicaRequest.of({"cpu": 100} if request is None else request),
        "node_claim": NodeClaim(),
        **changes,
    }
    return IncomingPod(**fields)


def member(name: str, group: str, minimum: object, **changes: Any) -> IncomingPod:
    """A pod of a gang."""
    labels = {NAME_LABEL: group, MINIMUM_LABEL: str(minimum)}
    return incoming(name, labels=labels, **changes)
