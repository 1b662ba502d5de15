"""Clusters that are silent in virtual time, since when, and the breaker's verdict.

Must not move anything.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from federation.failover.breaker import Breaker, BreakerLimits, ClusterOrigin, judged
from federation.failover.silence import Silence, Silences
from federation.model.cluster import Cluster

# Three heartbeats of five seconds.
SILENCE_SECONDS: Final = 15.0


class SilentClusters:
    """Silent clusters by name. The control plane listens since ``began`` (Unix seconds)."""

    def __init__(self, began: float) -> None:
        self._began = began
        self._silent: dict[str, Silence] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._silent

    def add(self, name: str, now: float) -> None:
        """The cluster is silent from now on, if it is not already."""
        self._silent.setdefault(name, Silence(now, now + SILENCE_SECONDS))

    def remove(self, name: str) -> bool:
        """The cluster is heard; whether it was silent."""
        return self._silent.pop(name, None) is not None

    def stale(self, now: float) -> list[str]:
        return [name for name, silence in self._silent.items() if silence.stale_at <= now]

    def stale_at(self, name: str) -> float:
        return self._silent[name].stale_at

    def times(self, lost_seconds: float, lost: Collection[str]) -> list[float]:
        """Return when clusters become stale, and when they are lost that are not ``lost`` yet."""
        after = max(lost_seconds, SILENCE_SECONDS)
        times = [silence.stale_at for silence in self._silent.values()]
        return times + [
            silence.since + after for name, silence in self._silent.items() if name not in lost
        ]

    def newly_lost(self, now: float, lost_seconds: float, lost: Collection[str]) -> list[str]:
        return [name for name in self._silences(now).lost(lost_seconds) if name not in lost]

    def judged(
        self, breaker: Breaker, clusters: Collection[Cluster], now: float, limits: BreakerLimits
    ) -> Breaker:
        """Return the breaker as it is now."""
        return judged(
            breaker,
            self._silences(now),
            {cluster.name: ClusterOrigin(cluster.region, cluster.provider) for cluster in clusters},
            heard=[cluster.name for cluster in clusters if cluster.name not in self._silent],
            lost=[cluster.name for cluster in clusters if cluster.lost_since is not None],
            limits=limits,
        )

    def _silences(self, now: float) -> Silences:
        silent = {name: self._silent[name] for name in sorted(self.stale(now))}
        return Silences(looked_at=now, listening_since=self._began, silent=silent)
