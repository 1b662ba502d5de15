"""Which of several binders binds: the one that holds the lease.

Pure: time is passed in, and the API server's copy of the lease too. Must not trust the clocks of
other machines: a lease has run out when it has not changed for as long as it lasts, seen from here.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from estimator.lease import LEASE_SECONDS, Lease

RENEW_SECONDS: Final = 2.0
# Who could not renew for so long stops binding, well before another one may begin.
GIVE_UP_SECONDS: Final = 10.0


class Election:
    """One candidate's view. ``now`` is of a clock that does not go back."""

    def __init__(self, identity: str) -> None:
        self.identity = identity
        self._seen: Lease | None = None
        self._seen_at = 0.0
        self._renewed_at: float | None = None

    def is_leader(self, now: float) -> bool:
        return self._renewed_at is not None and now < self._renewed_at + GIVE_UP_SECONDS

    def claim(self, found: Lease | None, now: float, wall: float) -> Lease | None:
        """What to write to become or stay the leader; None while another one is."""
        if found is None:
            return Lease(holder=self.identity, acquired_at=wall, renewed_at=wall)
        if found != self._seen:
            self._seen, self._seen_at = found, now
        if found.holder == self.identity:
            return replace(found, duration_seconds=LEASE_SECONDS, renewed_at=wall)
        self._renewed_at = None
        if found.holder and now < self._seen_at + found.duration_seconds:
            return None
        return Lease(
            holder=self.identity,
            acquired_at=wall,
            renewed_at=wall,
            transitions=found.transitions + 1,
            version=found.version,
        )

    def written(self, asked_at: float) -> None:
        """The claim was stored; it counts from when it was asked for."""
        self._renewed_at = asked_at

    def lost(self) -> None:
        """Another one was faster."""
        self._renewed_at = None

    def resignation(self, found: Lease | None) -> Lease | None:
        """What to write to let another one begin at once; None when there is nothing to give."""
        self._renewed_at = None
        if found is None or found.holder != self.identity:
            return None
        return replace(found, holder="", duration_seconds=1.0)
