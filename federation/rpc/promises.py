"""What bindings hold, over the wire: released early, or kept longer by renewing a lease.

Must not decide anything: reads the message, calls the use case, writes the answer.
"""

from __future__ import annotations

from typing import Protocol

from federation.codec.decisions import reservation_messages
from federation.codec.ranges import distinct, is_cluster_name, lease_seconds, required
from federation.codec.strict import refuse_nul
from federation.codec.timestamps import timestamp_from_seconds
from federation.codec.violations import Violations
from federation.services.values import HeldReservation
from federation.v1 import scheduling_pb2 as messages


class Releasing(Protocol):
    """Ends or prolongs what bindings hold."""

    async def release(
        self, namespace: str, name: str, uid: str, clusters: tuple[str, ...]
    ) -> tuple[HeldReservation, ...]:
        """What was released, as it was. Raises NotFound, InvalidRequest, PreconditionFailed."""
        ...

    async def renew(self, namespace: str, name: str, uid: str, lease_seconds: int | None) -> float:
        """The lease's new end, in Unix seconds. Raises NotFound, PreconditionFailed."""
        ...


async def released(
    request: messages.ReleaseReservationRequest, releasing: Releasing
) -> messages.ReleaseReservationResponse:
    """Raises InvalidRequest, and what ``Releasing.release`` raises."""
    found = _named(request)
    for position, name in enumerate(request.clusters):
        if not is_cluster_name(name):
            found.add(f"clusters[{position}]", f"{name[:64]!r} cannot be a cluster's name")
    distinct(request.clusters, "clusters", found)
    found.check()
    held = await releasing.release(
        request.namespace, request.name, request.uid, tuple(request.clusters)
    )
    return messages.ReleaseReservationResponse(released=reservation_messages(held))


async def renewed(
    request: messages.RenewLeaseRequest, releasing: Releasing
) -> messages.RenewLeaseResponse:
    """Raises InvalidRequest, and what ``Releasing.renew`` raises."""
    found = _named(request)
    seconds = None
    if request.HasField("lease_seconds"):
        seconds = lease_seconds(request.lease_seconds, "leaseSeconds", found)
    found.check()
    expires_at = await releasing.renew(request.namespace, request.name, request.uid, seconds)
    return messages.RenewLeaseResponse(lease_expire_time=timestamp_from_seconds(expires_at))


def _named(request: messages.ReleaseReservationRequest | messages.RenewLeaseRequest) -> Violations:
    found = Violations()
    required(request.name, "name", found)
    refuse_nul(request, "", found)
    return found
