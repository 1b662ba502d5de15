"""Pods of Jobs that finished, stored with their reservations, which they outlive.

Must not write counts that the newest ledger does not have: a binding of the same name may have been
created anew meanwhile.
"""

from __future__ import annotations

import asyncio
import logging

from federation.model.cluster import CapacityReport
from federation.model.shapes import ReservationKey
from federation.runtime.backoff import Backoff
from federation.services.fleet.registry import FleetOwner
from federation.services.journal_ports import Finished
from federation.services.ports import Store
from federation.services.troubles import Trouble

# More at once would keep the ledgers of too many clusters waiting.
CLUSTERS_AT_ONCE = 50
# Clusters where much is decided may have moved on just now.
AGAIN_SECONDS = 0.2
LONGEST_PAUSE_SECONDS = 15.0

logger = logging.getLogger(__name__)


class Finishing:
    """Counts of finished pods, written after reports: a crash makes them outstanding again."""

    def __init__(self, store: Store, fleet: FleetOwner) -> None:
        self._store = store
        self._fleet = fleet
        self._unwritten: dict[str, set[ReservationKey]] = {}
        self._wanted = asyncio.Event()

    def note(self, cluster: str, report: CapacityReport) -> None:
        """A report that is about to be applied."""
        for echo in report.echoes:
            if echo.finished and self._finished(cluster, echo.key) < echo.finished:
                self._unwritten.setdefault(cluster, set()).add(echo.key)
                self._wanted.set()

    async def run(self) -> None:
        """Until cancelled."""
        backoff = Backoff(first_seconds=AGAIN_SECONDS, cap_seconds=LONGEST_PAUSE_SECONDS)
        trouble = Trouble(logger, "what finished is not written")
        while True:
            await self._wanted.wait()
            try:
                await self.write()
                trouble.over()
                backoff.reset()
            except Exception as error:  # noqa: BLE001 - told; without it what finished would count as outstanding
                trouble.met(error)
            if self._wanted.is_set():
                await asyncio.sleep(backoff.next_seconds())

    async def write(self) -> None:
        """Write what can be written now; the rest stays. Raises Unavailable."""
        clusters = sorted(self._unwritten)[:CLUSTERS_AT_ONCE]
        async with self._store.transaction() as tx:
            versions = await tx.journal.lock(clusters)
            # Elsewhere something happened that is not known here yet.
            current = [
                name
                for name in clusters
                if self._fleet.has(name) and versions.get(name) == self._fleet.version(name)
            ]
            await tx.reservations.finish(
                [
                    finished
                    for name in current
                    for finished in self._newest(name, self._unwritten[name])
                ]
            )
        for name in clusters:
            if name in current or name not in versions:
                del self._unwritten[name]
        if not self._unwritten:
            self._wanted.clear()

    def _newest(self, cluster: str, keys: set[ReservationKey]) -> list[Finished]:
        return [
            Finished(
                binding=key.binding,
                cluster=cluster,
                component=key.component,
                shape=key.shape,
                finished=finished,
            )
            for key in sorted(keys)
            if (finished := self._finished(cluster, key))
        ]

    def _finished(self, cluster: str, key: ReservationKey) -> int:
        """Return the finished pods by the ledger."""
        held = self._fleet.ledger(cluster).of_binding(key.binding)
        return max(
            (reservation.finished for reservation in held if reservation.key == key), default=0
        )
