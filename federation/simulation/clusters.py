"""Clusters in virtual time: which are silent, stale or lost, and the breaker's verdict.

Must not move bindings.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from federation.failover.breaker import Breaker, BreakerLimits, ClusterOrigin, judged
from federation.failover.silence import Silence, Silences
from federation.model.cluster import UNREACHABLE_KEY, Cluster, ClusterState, Taint, TaintEffect

# Three heartbeats of five seconds.
SILENCE_SECONDS: Final = 15.0


class VirtualClusters:
    """Clusters and their silences. The control plane listens since ``began`` (Unix seconds)."""

    def __init__(self, states: Iterable[ClusterState], began: float) -> None:
        self._states = {state.cluster.name: state for state in states}
        self._began = began
        self._silent: dict[str, Silence] = {}

    def cluster(self, name: str) -> Cluster:
        return self._states[name].cluster

    def states(self, now: float) -> list[ClusterState]:
        """Return all clusters, of which stale ones are not ready."""
        stale = set(self.stale(now))
        return [
            replace(state, cluster=replace(state.cluster, ready=False)) if name in stale else state
            for name, state in self._states.items()
        ]

    def evacuated(self) -> dict[str, Cluster]:
        """Return the clusters with taints that evict, by name."""
        return {
            name: state.cluster
            for name, state in self._states.items()
            if any(taint.effect is TaintEffect.NO_EXECUTE for taint in state.cluster.taints)
        }

    def is_silent(self, name: str) -> bool:
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
        names = [name for name in self._silences(now).lost(lost_seconds) if not self._is_lost(name)]
        for name in names:
            taint = Taint(key=UNREACHABLE_KEY, effect=TaintEffect.NO_EXECUTE, time_added=now)
            self._put_taints(name, [taint])
        return names

    def stale(self, now: float) -> list[str]:
        return [name for name, silence in self._silent.items() if silence.stale_at <= now]

    def newly_stale(self, now: float) -> list[str]:
        return [name for name, silence in self._silent.items() if silence.stale_at == now]

    def times(self, lost_seconds: float) -> list[float]:
        """Return when silent clusters become stale, and when they are lost."""
        after = max(lost_seconds, SILENCE_SECONDS)
        times = [silence.stale_at for silence in self._silent.values()]
        return times + [
            silence.since + after
            for name, silence in self._silent.items()
            if not self._is_lost(name)
        ]

    def judged(self, breaker: Breaker, now: float, limits: BreakerLimits) -> Breaker:
        """Return the breaker as it is now."""
        clusters = [state.cluster for state in self._states.values()]
        return judged(
            breaker,
            self._silences(now),
            {cluster.name: ClusterOrigin(cluster.region, cluster.provider) for cluster in clusters},
            heard=[cluster.name for cluster in clusters if cluster.name not in self._silent],
            lost=[cluster.name for cluster in clusters if cluster.lost_since is not None],
            limits=limits,
        )

    def _is_lost(self, name: str) -> bool:
        return self._states[name].cluster.lost_since is not None

    def _put_taints(self, name: str, ours: Sequence[Taint]) -> None:
        state = self._states[name]
        foreign = (taint for taint in state.cluster.taints if taint.key != UNREACHABLE_KEY)
        cluster = replace(state.cluster, taints=(*foreign, *ours))
        self._states[name] = replace(state, cluster=cluster)

    def _silences(self, now: float) -> Silences:
        silent = {name: self._silent[name] for name in sorted(self.stale(now))}
        return Silences(looked_at=now, listening_since=self._began, silent=silent)
