"""How true promises are: which of their replicas have nodes, and which still wait for one.

Must not do anything about it. Echoes tell: what agents count of the pods of promises.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from federation.model.cluster import CapacityReport
from federation.model.shapes import ReservationKey

# A scheduler has found a node by then, where there is one.
LATE_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SettledReplicas:
    """Of the newest report of a cluster: how many replicas are on nodes, and by promise since when
    (Unix seconds) how many wait for one.
    """

    bound: int = 0
    waiting: Mapping[ReservationKey, tuple[float, int]] = field(default_factory=dict)


class Settling:
    """Of the clusters whose agents report here. Belongs to one event loop."""

    def __init__(self) -> None:
        self._settled: dict[str, SettledReplicas] = {}

    def note(self, cluster: str, report: CapacityReport, now: float) -> None:
        """A report was stored."""
        before = self._settled.get(cluster, SettledReplicas()).waiting
        self._settled[cluster] = SettledReplicas(
            bound=sum(echo.bound for echo in report.echoes),
            waiting={
                echo.key: (before.get(echo.key, (now, 0))[0], echo.unbound)
                for echo in report.echoes
                if echo.unbound
            },
        )

    def forget(self, cluster: str) -> None:
        """Its agent is not connected here any more."""
        self._settled.pop(cluster, None)

    def totals(self, now: float) -> Mapping[str, int]:
        """Replicas that reports show: on nodes, waiting for one, and so for long."""
        totals = {"bound": 0, "pending": 0, "late": 0}
        for settled in self._settled.values():
            totals["bound"] += settled.bound
            for since, replicas in settled.waiting.values():
                totals["late" if now - since >= LATE_SECONDS else "pending"] += replicas
        return totals
