"""One candidate for a lease, for as long as it runs: claims it, renews it, gives it back.

Must not decide when a lease may be claimed: ``election`` does.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final, Protocol

from estimator.binder.election import RENEW_SECONDS, Election
from estimator.lease import Lease
from federation.model.errors import Conflict, FederationError

RESIGN_ATTEMPTS: Final = 3

logger = logging.getLogger(__name__)


class LeaseStore(Protocol):
    """Where the lease is. Both raise FederationError."""

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
