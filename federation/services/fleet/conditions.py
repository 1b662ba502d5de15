"""Conditions of clusters that change without a write to the store: ready, over-committed.

Must not act on them. Ready clusters are chosen by the snapshot, and over-committed clusters keep
all their promises.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from federation.model.reasons import Reason
from federation.services.fleet.registry import FleetOwner
from federation.services.journal import Change, ClusterChanged, ReportAdvanced
from federation.services.ports import Timer
from federation.services.troubles import Trouble

LOOK_SECONDS: Final = 1.0
# Changes that are passed on before the event loop runs other tasks again.
MAX_CHANGES_AT_ONCE: Final = 250

logger = logging.getLogger(__name__)


class Readiness:
    """Notices clusters that become stale or unseen, or are ready again, as time goes by.

    ``notify`` is called with a change for each of them. Belongs to one event loop.
    """

    def __init__(self, fleet: FleetOwner, clock: Timer, notify: Callable[[Change], None]) -> None:
        self._fleet = fleet
        self._clock = clock
        self._notify = notify
        self._unseen: dict[str, Reason] = {}

    async def keep_looking(self) -> None:
        """Call ``look`` every second until cancelled."""
        trouble = Trouble(logger, "readiness not looked at")
        while True:
            try:
                await self.look()
                trouble.over()
            except Exception as error:  # noqa: BLE001 - told; watchers have to hear of clusters that go stale
                trouble.met(error)
            await self._clock.sleep(LOOK_SECONDS)

    async def look(self) -> None:
        """Notify of all clusters whose reason not to be ready differs from the last look."""
        snapshot = self._fleet.snapshot
        unseen = snapshot.unseen_at(self._clock.now())
        reasons = [unseen.values[code] for code in unseen.code_c.tolist()]
        previous, self._unseen = self._unseen, dict(zip(snapshot.names, reasons, strict=True))
        changed = [
            name for name, reason in self._unseen.items() if previous.get(name, reason) != reason
        ]
        for start in range(0, len(changed), MAX_CHANGES_AT_ONCE):
            for name in changed[start : start + MAX_CHANGES_AT_ONCE]:
                self._notify(ClusterChanged(cluster=name))
            await asyncio.sleep(0)


class Overcommitment:
    """Counts and logs replicas whose reservations do not fit into a cluster's newest report.

    Only the control plane that serves the cluster's agent does so.
    """

    def __init__(self, fleet: FleetOwner) -> None:
        self._fleet = fleet
        self._unplaced_replicas: dict[str, int] = {}

    @property
    def clusters(self) -> int:
        """The number of over-committed clusters whose agents are connected to this process."""
        return len(self._unplaced_replicas)

    def changed(self, change: Change) -> None:
        """Update the count of a change's cluster; call it after the change was applied."""
        if isinstance(change, ClusterChanged) and (change.deleted or change.emptied):
            self._unplaced_replicas.pop(change.cluster, None)
        if not isinstance(change, ReportAdvanced) or not self._fleet.has(change.cluster):
            return
        presence = self._fleet.known(change.cluster).presence
        previous = self._unplaced_replicas.pop(change.cluster, 0)
        if not presence.connected or presence.peer:
            return
        overcommitted = self._fleet.view(change.cluster).overcommitted
        if overcommitted:
            self._unplaced_replicas[change.cluster] = overcommitted
        if overcommitted != previous:
            self._log(change, overcommitted)

    def _log(self, change: ReportAdvanced, replicas: int) -> None:
        fields = {
            "cluster": change.cluster,
            "replicas_without_room": replicas,
            "epoch": change.epoch,
            "sequence": change.sequence,
        }
        if replicas:
            logger.warning("cluster is over-committed", extra={"fields": fields})
        else:
            logger.info("cluster has room for its promises again", extra={"fields": fields})
