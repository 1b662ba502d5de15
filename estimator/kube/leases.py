"""A lease of the API server, by which one of several processes is the one that works.

Must not decide who holds it: ``estimator.lease`` does.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

from estimator.kube.client import KubeCalls, decoded
from estimator.kube.objects import RawObject
from estimator.kube.translate import unix_seconds
from estimator.lease import Lease
from federation.model.errors import NotFound

LEASES: Final = "/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
LEASE: Final = f"{LEASES}/{{name}}"


class _LeaseSpec(RawObject, frozen=True):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class _LeaseMetadata(RawObject, frozen=True):
    resource_version: str = ""


class _RawLease(RawObject, frozen=True):
    metadata: _LeaseMetadata = _LeaseMetadata()
    spec: _LeaseSpec = _LeaseSpec()


class KubeLease:
    """The lease of that name. Methods raise what calls raise."""

    def __init__(self, calls: KubeCalls, *, namespace: str, name: str) -> None:
        self._calls = calls
        self._names = {"namespace": namespace, "name": name}

    async def read_lease(self) -> Lease | None:
        return await self._calls.in_thread(self._read)

    async def write_lease(self, lease: Lease) -> None:
        """Raises Conflict when it was changed, or made, since it was read."""
        await self._calls.in_thread(lambda: self._write(lease))

    def _read(self) -> Lease | None:
        try:
            content = self._calls.call("GET", LEASE, **self._names)
        except NotFound:
            return None
        raw = decoded(content, _RawLease)
        return Lease(
            holder=raw.spec.holder_identity or "",
            duration_seconds=float(raw.spec.lease_duration_seconds or 0),
            acquired_at=unix_seconds(raw.spec.acquire_time),
            renewed_at=unix_seconds(raw.spec.renew_time),
            transitions=raw.spec.lease_transitions or 0,
            version=raw.metadata.resource_version,
        )

    def _write(self, lease: Lease) -> None:
        metadata: dict[str, Any] = dict(self._names)
        body = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": metadata,
            "spec": {
                **({"holderIdentity": lease.holder} if lease.holder else {}),
                "leaseDurationSeconds": int(lease.duration_seconds),
                "acquireTime": _microsecond(lease.acquired_at),
                "renewTime": _microsecond(lease.renewed_at),
                "leaseTransitions": lease.transitions,
            },
        }
        if lease.version:
            metadata["resourceVersion"] = lease.version
            self._calls.call("PUT", LEASE, body, **self._names)
        else:
            self._calls.call("POST", LEASES, body, namespace=self._names["namespace"])


def _microsecond(time: float) -> str:
    return datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
