"""Promised replicas that are on nodes, and that wait for one, by the echoes of reports.

Must not act on them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from federation.model.cluster import CapacityReport
from federation.model.shapes import ReservationKey

# A scheduler has found a node by then, if there is one.
LATE_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SettledReplicas:
    """Replicas on nodes by the newest report of a cluster, and replicas that wait for a node.

    These are by promise, with the time (Unix seconds) since which they wait.
    """

    bound: int = 0
    waiting: Mapping[ReservationKey, tuple[float, int]] = field(default_factory=dict)


class Settling:
    """Settled replicas of clusters whose agents report here. Belongs to one event loop."""

    def __init__(self) -> None:
        self._settled: dict[str, SettledReplicas] = {}

    def note(self, cluster: str, report: CapacityReport, now: float) -> None:
        """Note a report that was stored."""
        last = self._settled.get(cluster, SettledReplicas()).waiting
        self._settled[cluster] = SettledReplicas(
            bound=sum(echo.bound for echo in report.echoes),
            waiting={
                echo.key: (last.get(echo.key, (now, 0))[0], echo.unbound)
                for echo in report.echoes
                if echo.unbound
            },
        )

    def forget(self, cluster: str) -> None:
        """Forget a cluster whose agent is not connected here any more."""
        self._settled.pop(cluster, None)

    def totals(self, now: float) -> Mapping[str, int]:
        """Count replicas on nodes, replicas that wait for one, and those that wait for long."""
        totals = {"bound": 0, "pending": 0, "late": 0}
        for settled in self._settled.values():
            totals["bound"] += settled.bound
            for since, replicas in settled.waiting.values():
                totals["late" if now - since >= LATE_SECONDS else "pending"] += replicas
        return totals
