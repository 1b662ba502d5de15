"""What the binder needs of the cluster besides the picture of it.

Must not know how any of it is done.
"""

from __future__ import annotations

from typing import Protocol

from estimator.lease import Lease
from estimator.placing.incoming import PodEvent


class ClusterWrites(Protocol):
    """Everything the binder writes. All raise FederationError."""

    async def bind(self, *, namespace: str, name: str, uid: str, node: str) -> None:
        """Returns when the pod is bound to that node, by this call or by one before."""
        ...

    async def tell(self, event: PodEvent) -> None:
        """Record an event; a warning also in the pod's condition PodScheduled."""
        ...

    async def read_lease(self) -> Lease | None: ...

    async def write_lease(self, lease: Lease) -> None:
        """Raises Conflict when it was changed since it was read."""
        ...
