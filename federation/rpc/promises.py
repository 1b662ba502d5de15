"""What bindings hold, over the wire: released early, or kept longer by renewing a lease.

Must not decide anything: reads the message, calls the use case, writes the answer.
"""

from __future__ import annotations

from federation.codec.decisions import reservation_messages
from federation.codec.ranges import distinct, is_cluster_name, lease_seconds, required
from federation.codec.strict import refuse_nul
from federation.codec.timestamps import timestamp_from_seconds
from federation.codec.violations import Violations
from federation.services.scheduling.release import ReleaseService
from federation.v1 import scheduling_pb2 as messages


async def released(
    request: messages.ReleaseReservationRequest, releases: ReleaseService
) -> messages.ReleaseReservationResponse:
    """Release reservations. Raises InvalidRequest, and what ``ReleaseService.release`` raises."""
    found = _named(request)
    for position, name in enumerate(request.clusters):
        if not is_cluster_name(name):
            found.add(f"clusters[{position}]", f"{name[:64]!r} cannot be a cluster's name")
    distinct(request.clusters, "clusters", found)
    found.check()
    held = await releases.release(
        request.namespace, request.name, request.uid, tuple(request.clusters)
    )
    return messages.ReleaseReservationResponse(released=reservation_messages(held))


async def renewed(
    request: messages.RenewLeaseRequest, releases: ReleaseService
) -> messages.RenewLeaseResponse:
    """Renew a lease. Raises InvalidRequest, and what ``ReleaseService.renew`` raises."""
    found = _named(request)
    seconds = None
    if request.HasField("lease_seconds"):
        seconds = lease_seconds(request.lease_seconds, "leaseSeconds", found)
    found.check()
    expires_at = await releases.renew(request.namespace, request.name, request.uid, seconds)
    return messages.RenewLeaseResponse(lease_expire_time=timestamp_from_seconds(expires_at))


def _named(request: messages.ReleaseReservationRequest | messages.RenewLeaseRequest) -> Violations:
    found = Violations()
    required(request.name, "name", found)
    refuse_nul(request, "", found)
    return found
