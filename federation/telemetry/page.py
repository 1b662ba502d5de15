"""The page of metrics, made when it is asked for, and not more often than once a second.

Must not wait for the database for long: where that is away, the rest is told.
"""

from __future__ import annotations

import asyncio
import time
from importlib import import_module
from typing import Any, Final

from federation.certificate_ends import ends_of
from federation.model.errors import FederationError
from federation.telemetry.measured import Measured, Shared

OPEN_METRICS: Final = "application/openmetrics-text"
KEPT_SECONDS: Final = 1.0
DATABASE_SECONDS: Final = 1.0


class MetricsPages:
    """Belongs to one event loop."""

    def __init__(self, measured: Measured) -> None:
        self._measured = measured
        self._lock = asyncio.Lock()
        self._made: dict[bool, tuple[float, tuple[bytes, str]]] = {}

    async def page(self, accept: str) -> tuple[bytes, str]:
        """The page and its type: OpenMetrics where it is asked for."""
        open_metrics = OPEN_METRICS in accept
        async with self._lock:
            until, page = self._made.get(open_metrics, (0.0, (b"", "")))
            if time.monotonic() >= until:
                page = await self._new(open_metrics=open_metrics)
                self._made[open_metrics] = time.monotonic() + KEPT_SECONDS, page
        return page

    async def _new(self, *, open_metrics: bool) -> tuple[bytes, str]:
        # The library is loaded when somebody asks, and never on the event loop.
        families: Any = await asyncio.to_thread(import_module, "federation.telemetry.families")
        ends = await asyncio.to_thread(ends_of, self._measured.certificates)
        metrics = families.families_of(self._measured, await self._shared(), ends)
        page: tuple[bytes, str] = await asyncio.to_thread(
            families.written, metrics, open_metrics=open_metrics
        )
        return page

    async def _shared(self) -> Shared | None:
        """What all control planes share; None where nobody could say."""
        measured = self._measured
        try:
            async with asyncio.timeout(DATABASE_SECONDS):
                async with measured.store.reading() as read:
                    waiting = await read.waiting.tallies()
                    failing_duties = await read.duties.failures()
                    days_left = await read.partitions.days_left()
                return Shared(
                    waiting=waiting,
                    failover=await measured.failover.overview(),
                    failing_duties=failing_duties,
                    days_left=days_left,
                )
        except (FederationError, TimeoutError):
            return None
