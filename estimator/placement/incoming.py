"""A pod that still has to get a node, as the extender and the binder judge it.

Must not know Kubernetes' JSON, which ``estimator.kube`` reads, nor nodes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from estimator.binpack.arrays import ReplicaRequest
from federation.model.echoes import UNKNOWN_ORIGIN, PodOrigin
from federation.model.resources import PODS
from federation.model.workload import NodeClaim

# The ``schedulerName`` of pods that the agent's own binder binds.
SCHEDULER_NAME: Final = "fedsched-binpack"


@dataclass(frozen=True, slots=True, kw_only=True)
class IncomingPod:
    """A pod. ``node`` is empty until it is bound; ``created_at`` is in Unix seconds.

    ``unjudged`` names what it asks for that depends on more than one node's resources, labels
    and taints. ``held`` says why nobody may schedule it yet: it is gated, or being deleted.
    ``is_prepared``: its volumes or devices are prepared before it is bound, which takes a while.
    ``origin`` is what promises find it by. ``version`` is the API server's of this state; 0: it is
    not known.
    """

    uid: str
    namespace: str
    name: str
    request: ReplicaRequest
    node_claim: NodeClaim
    node: str = ""
    scheduler_name: str = ""
    priority: int = 0
    created_at: float = 0.0
    labels: Mapping[str, str] = field(default_factory=dict)
    unjudged: tuple[str, ...] = ()
    held: str = ""
    is_prepared: bool = False
    origin: PodOrigin = UNKNOWN_ORIGIN
    version: int = 0

    @property
    def amounts(self) -> dict[str, int]:
        """The positive amounts, without the pod slot: how claims and bound pods are counted."""
        amounts = self.request.amounts.items()
        return {name: amount for name, amount in amounts if amount > 0 and name != PODS}


@dataclass(frozen=True, slots=True, kw_only=True)
class PodEvent:
    """Something people shall find at the pod. A warning says why it has no node."""

    pod: IncomingPod
    is_warning: bool
    reason: str
    message: str
