"""Clusters in virtual time: which are silent, stale or lost, and the breaker's verdict.

Must not move bindings.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from federation.failover.breaker import Breaker, BreakerLimits, ClusterOrigin, judged
from federation.failover.silence import Silence, Silences
from federation.model.cluster import UNREACHABLE_KEY, Cluster, Taint, TaintEffect

# Three heartbeats of five seconds.
SILENCE_SECONDS: Final = 15.0


class VirtualClusters:
    """Clusters and their silences. The control plane listens since ``began`` (Unix seconds)."""

    def __init__(self, clusters: Iterable[Cluster], began: float) -> None:
        self._clusters = {cluster.name: cluster for cluster in clusters}
        self._origins = {
            name: ClusterOrigin(cluster.region, cluster.provider)
            for name, cluster in self._clusters.items()
        }
        # Clusters that came with the taint of a lost one are lost, too.
        self._lost = {name for name, cluster in self._clusters.items() if _is_lost(cluster)}
        self._began = began
        self._silent: dict[str, Silence] = {}
        self._changed: set[str] = set()

    def cluster(self, name: str) -> Cluster:
        """Return a cluster with its taints of now."""
        return self._clusters[name]

    def changes(self, now: float) -> list[Cluster]:
        """Return the clusters that changed since the last call; a stale one is not ready."""
        stale = set(self.stale(now))
        changed, self._changed = self._changed | stale, set()
        return [
            replace(self._clusters[name], ready=False) if name in stale else self._clusters[name]
            for name in sorted(changed)
        ]

    def is_silent(self, name: str) -> bool:
        """Return whether a cluster is not heard."""
        return name in self._silent

    def fall_silent(self, name: str, now: float) -> None:
        """Let a cluster be silent from now on, if it is not already."""
        self._silent.setdefault(name, Silence(now, now + SILENCE_SECONDS))

    def speak(self, name: str) -> bool:
        """Let a cluster be heard, which is not lost then; return whether it was silent."""
        if self._silent.pop(name, None) is None:
            return False
        self._put_taints(name, [])
        return True

    def lose(self, now: float, lost_seconds: float) -> list[str]:
        """Taint clusters that are silent for so long, and return those that were not lost."""
        names = [name for name in self._silences(now).lost(lost_seconds) if name not in self._lost]
        for name in names:
            taint = Taint(key=UNREACHABLE_KEY, effect=TaintEffect.NO_EXECUTE, time_added=now)
            self._put_taints(name, [taint])
        return names

    def stale(self, now: float) -> list[str]:
        """Return the clusters that have been silent for too long to get replicas."""
        return [name for name, silence in self._silent.items() if silence.stale_at <= now]

    def newly_stale(self, now: float) -> list[str]:
        """Return the clusters that are stale since this moment."""
        return [name for name, silence in self._silent.items() if silence.stale_at == now]

    def times(self, lost_seconds: float) -> list[float]:
        """Return when silent clusters become stale, and when they are lost."""
        after = max(lost_seconds, SILENCE_SECONDS)
        times = [silence.stale_at for silence in self._silent.values()]
        return times + [
            silence.since + after
            for name, silence in self._silent.items()
            if name not in self._lost
        ]

    def judged(self, breaker: Breaker, now: float, limits: BreakerLimits) -> Breaker:
        """Return the breaker as it is now."""
        if not self._silent and breaker == Breaker():
            return breaker
        heard = self._origins.keys() - self._silent.keys()
        lost, silences = self._lost, self._silences(now)
        return judged(breaker, silences, self._origins, heard=heard, lost=lost, limits=limits)

    def _put_taints(self, name: str, ours: Sequence[Taint]) -> None:
        cluster = self._clusters[name]
        foreign = (taint for taint in cluster.taints if taint.key != UNREACHABLE_KEY)
        cluster = self._clusters[name] = replace(cluster, taints=(*foreign, *ours))
        (self._lost.add if _is_lost(cluster) else self._lost.discard)(name)
        self._changed.add(name)

    def _silences(self, now: float) -> Silences:
        silent = {name: self._silent[name] for name in sorted(self.stale(now))}
        return Silences(looked_at=now, listening_since=self._began, silent=silent)


def _is_lost(cluster: Cluster) -> bool:
    return cluster.lost_since is not None
