"""The lease by which one of several processes works: its rules, a candidate, and the API server's.

Must not trust the clocks of other machines: a lease has run out when it has not changed for as
long as it lasts, seen from here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final, Protocol

from estimator.kube.client import KubeClient, decoded
from estimator.kube.objects import RawObject
from estimator.kube.translate import unix_seconds
from federation.model.errors import Conflict, FederationError, NotFound

LEASE_SECONDS: Final = 15.0
RENEW_SECONDS: Final = 2.0
# Who could not renew for so long stops working, well before another one may begin.
GIVE_UP_SECONDS: Final = 10.0
RESIGN_ATTEMPTS: Final = 3
LEASES: Final = "/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
LEASE: Final = f"{LEASES}/{{name}}"

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """A lease as stored. ``holder`` is empty when it was given back. Times are Unix seconds.

    ``version`` is the API server's, empty for a lease that does not exist yet.
    """

    holder: str
    duration_seconds: float = LEASE_SECONDS
    acquired_at: float = 0.0
    renewed_at: float = 0.0
    transitions: int = 0
    version: str = ""


class Election:
    """One candidate's view. ``now`` is of a clock that does not go back."""

    def __init__(self, identity: str) -> None:
        self.identity = identity
        self._seen: Lease | None = None
        self._seen_at = 0.0
        self._renewed_at: float | None = None

    def is_leader(self, now: float) -> bool:
        return self._renewed_at is not None and now < self._renewed_at + GIVE_UP_SECONDS

    def claim(self, stored: Lease | None, now: float, wall: float) -> Lease | None:
        """Return the lease to write to become or stay the leader; None while another one is."""
        if stored is None:
            return Lease(holder=self.identity, acquired_at=wall, renewed_at=wall)
        if stored != self._seen:
            self._seen, self._seen_at = stored, now
        if stored.holder == self.identity:
            return replace(stored, duration_seconds=LEASE_SECONDS, renewed_at=wall)
        self._renewed_at = None
        if stored.holder and now < self._seen_at + stored.duration_seconds:
            return None
        return Lease(
            holder=self.identity,
            acquired_at=wall,
            renewed_at=wall,
            transitions=stored.transitions + 1,
            version=stored.version,
        )

    def written(self, asked_at: float) -> None:
        """The claim was stored; it counts from when it was asked for."""
        self._renewed_at = asked_at

    def lost(self) -> None:
        """Another one was faster."""
        self._renewed_at = None

    def resignation(self, stored: Lease | None) -> Lease | None:
        """Return the lease that lets another one begin at once; None without one to give."""
        self._renewed_at = None
        if stored is None or stored.holder != self.identity:
            return None
        return replace(stored, holder="", duration_seconds=1.0)


class LeaseStore(Protocol):
    """The place of a lease. Both methods raise FederationError."""

    async def read_lease(self) -> Lease | None: ...

    async def write_lease(self, lease: Lease) -> None:
        """Raises Conflict when it was changed since it was read."""
        ...


class LeaseCandidate:
    """Stands for election. ``clock`` is in Unix seconds, ``monotonic`` does not go back."""

    def __init__(
        self,
        election: Election,
        leases: LeaseStore,
        *,
        clock: Callable[[], float],
        monotonic: Callable[[], float],
    ) -> None:
        self._election = election
        self._leases = leases
        self._clock = clock
        self._monotonic = monotonic

    async def stand(self, on_held: Callable[[], None]) -> None:
        """Until cancelled. ``on_held`` is called whenever the lease was won or renewed."""
        while True:
            try:
                now = self._monotonic()
                claim = self._election.claim(await self._leases.read_lease(), now, self._clock())
                if claim is not None:
                    await self._leases.write_lease(claim)
                    self._election.written(now)
                    on_held()
            except Conflict:
                self._election.lost()
            except FederationError as error:
                logger.warning("the lease: %s", error.message)
            await asyncio.sleep(RENEW_SECONDS)

    async def resign(self) -> None:
        """Let another one begin at once: otherwise it waits until the lease has run out."""
        why_not = ""
        for _ in range(RESIGN_ATTEMPTS):
            try:
                lease = self._election.resignation(await self._leases.read_lease())
                if lease is not None:
                    await self._leases.write_lease(lease)
            except Conflict as error:
                # A renewal was on its way when it was stopped.
                why_not = error.message
            except FederationError as error:
                why_not = error.message
                break
            else:
                return
        logger.warning("the lease was not given back: %s", why_not)


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
    """The lease of that name. Methods raise as requests do."""

    def __init__(self, client: KubeClient, *, namespace: str, name: str) -> None:
        self._client = client
        self._names = {"namespace": namespace, "name": name}

    async def read_lease(self) -> Lease | None:
        try:
            content = await self._client.request("GET", LEASE, names=self._names)
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

    async def write_lease(self, lease: Lease) -> None:
        """Raises Conflict when it was changed, or made, since it was read."""
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
            await self._client.request("PUT", LEASE, body, names=self._names)
        else:
            await self._client.request("POST", LEASES, body, names=self._names)


def _microsecond(time: float) -> str:
    return datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
