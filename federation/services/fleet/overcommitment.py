"""Says aloud when promises find no room any more in a cluster's newest report, and when they do.

Must not do anything about it: rooms keep what may become theirs, and nothing is dropped.
"""

from __future__ import annotations

import logging

from federation.services.fleet.registry import FleetOwner
from federation.services.journal import Change, ClusterChanged, ReportAdvanced

logger = logging.getLogger(__name__)


class Overcommitment:
    """``changed`` is to be called of every change, after it was applied.

    Of a fleet's control planes the one that serves the agent speaks.
    """

    def __init__(self, fleet: FleetOwner) -> None:
        self._fleet = fleet
        self._without_room: dict[str, int] = {}

    @property
    def clusters(self) -> int:
        """How many have promises without room, of those whose agents are connected here."""
        return len(self._without_room)

    def changed(self, change: Change) -> None:
        if isinstance(change, ClusterChanged) and (change.deleted or change.emptied):
            self._without_room.pop(change.cluster, None)
        if not isinstance(change, ReportAdvanced) or not self._fleet.has(change.cluster):
            return
        presence = self._fleet.known(change.cluster).presence
        before = self._without_room.pop(change.cluster, 0)
        if not presence.connected or presence.peer:
            return
        overcommitted = self._fleet.view(change.cluster).overcommitted
        if overcommitted:
            self._without_room[change.cluster] = overcommitted
        if overcommitted != before:
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
