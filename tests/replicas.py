"""One of several control planes in one process: its services over a shared store."""

from __future__ import annotations

import asyncio
import math

from federation.scheduler.plugins.profile import DEFAULT_PROFILES
from federation.services.fleet.journal_reader import Following
from federation.services.fleet.registry import FleetOwner
from federation.services.members.reports import Reporting, ReportTimes
from federation.services.scheduling.pipeline import DecisionPipeline
from federation.services.scheduling.release import ReleaseService
from federation.store.postgres import PostgresStore


class Clock:
    """Stands still. Implements ports.Clock."""

    def now(self) -> float:
        return 1_000_000.0

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class Replica:
    """One control plane's services.

    ``knowing`` are clusters of which it knows all: it lived through it, or a report told it.
    """

    def __init__(self, store: PostgresStore) -> None:
        self.fleet = FleetOwner(store)
        self.following = Following(store, self.fleet)
        beat = ReportTimes(batch_seconds=0.0)
        self.reporting = Reporting(store, self.fleet, Clock(), beat, following=self.following)
        self.pipeline = DecisionPipeline(
            store, self.fleet, self.following, Clock(), DEFAULT_PROFILES
        )
        self.releases = ReleaseService(store, self.fleet, self.following)
        self.knowing: set[str] = set()

    async def start(self) -> None:
        await self.fleet.load(grace_until=math.inf)

    def free_cells(self, cluster: str) -> list[object]:
        """Return the nodes that best fit and spreading leave free in a cluster."""
        snapshot = self.fleet.snapshot
        room = snapshot.rooms.rooms[snapshot.positions[cluster]]
        assert room is not None
        return [
            (cells.pool_k.tolist(), cells.count_k.tolist(), cells.min_rk.tolist())
            for cells in (room.filled.cells, room.spread.cells)
        ]
