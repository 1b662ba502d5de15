"""Silent clusters: which are lost, which are back, and the moves that follow.

Every control plane looks; the one with the duty acts. Must not act on silence that may be its own.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from federation.failover.breaker import (
    Breaker,
    BreakerLimits,
    ClusterOrigin,
    FreezeScope,
    judged,
    suspected,
)
from federation.failover.silence import MAX_DEAF_SECONDS, Silences
from federation.model.cluster import UNREACHABLE_KEY, Taint, TaintEffect
from federation.services.duties import Begin, Duty
from federation.services.failover.evicting import Evicting
from federation.services.failover.moving import Moving
from federation.services.failover.pending import PendingReplicas
from federation.services.fleet.registry import FleetOwner
from federation.services.journal import ClusterChanged
from federation.services.members.event_loop_lag import shift_deadlines
from federation.services.members.presences import Presences
from federation.services.ports import Store, Timer
from federation.services.scheduling.pipeline import DecisionPipeline
from federation.services.troubles import Trouble
from federation.services.values import PlacedObserver

LOOK_SECONDS: Final = 1.0
# How soon moves that the rate holds up are tried again.
HELD_UP_SECONDS: Final = 0.1

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class FailoverSettings:
    """Limits of failover: when clusters are lost, when too many are, and how fast bindings move.

    If it is not ``enabled``, evictions still end, and lost clusters may be back.
    """

    enabled: bool = True
    lost_seconds: float = 300.0
    eviction_seconds: float = 600.0
    percent_a_minute: float = 10.0
    # Pods on no node are promised elsewhere after this time; 0: never.
    unschedulable_seconds: float = 0.0
    breaker: BreakerLimits = field(default_factory=BreakerLimits)


class Failover:
    """The silent clusters as this control plane sees them. Belongs to one event loop."""

    def __init__(
        self,
        store: Store,
        fleet: FleetOwner,
        pipeline: DecisionPipeline,
        presences: Presences,
        clock: Timer,
        settings: FailoverSettings,
        placed: PlacedObserver,
    ) -> None:
        self._store = store
        self._fleet = fleet
        self._following = pipeline.following
        self._presences = presences
        self._clock = clock
        self._settings = settings
        self.silences = Silences.begun(clock.now())
        self._heard: frozenset[str] = frozenset()
        self._suspected: frozenset[FreezeScope] = frozenset()
        self._is_cut_off = False
        self._database_back_at: float | None = None
        self.moving = Moving(
            store, fleet, pipeline, clock, placed, percent_a_minute=settings.percent_a_minute
        )
        self._evicting = Evicting(
            store, fleet, self.moving, clock, max_seconds=settings.eviction_seconds
        )
        self._pending = PendingReplicas(
            store, fleet, self.moving, clock, seconds=settings.unschedulable_seconds
        )
        # Pauses would waste the rate, of which only little can be saved.
        self.duty = Duty(name="failover", work=self.work, is_steady=True)

    async def keep_looking(self) -> None:
        """Look again and again until cancelled."""
        trouble = Trouble(logger, "silence not looked at")
        while True:
            try:
                self.look()
                trouble.over()
            except Exception as error:  # noqa: BLE001 - told; lost clusters have to be noticed
                trouble.met(error)
            await self._clock.sleep(LOOK_SECONDS)

    def look(self) -> None:
        """Find silent clusters. A machine that slept heard none meanwhile."""
        now, last, fleet = self._clock.now(), self.silences, self._fleet
        slept = now - last.looked_at
        if slept > MAX_DEAF_SECONDS and not self._is_held_back:
            shift_deadlines(fleet, fleet.snapshot.names, slept, last.looked_at)
        if self._is_held_back:
            # Changes by peers are not seen: a cluster that is back may look lost.
            shift_deadlines(fleet, fleet.snapshot.names, slept, last.looked_at)
            last = Silences.begun(last.looked_at)
        could_hear_at = self._presences.shared_at
        is_cut_off = now - could_hear_at > MAX_DEAF_SECONDS
        if self._is_cut_off and not is_cut_off:
            self._database_back_at = now
        self._is_cut_off = is_cut_off
        stale, heard = [], []
        for name in fleet.snapshot.names:
            presence = fleet.presence(name)
            if presence is None or not self._was_heard(name):
                continue
            if presence.is_silent_at(now):
                stale.append(name)
            elif presence.last_heartbeat_at is not None:
                heard.append(name)
        self._heard = frozenset(heard)
        self.silences = last.looked(
            now,
            stale,
            stale_seconds=self._presences.silence_seconds,
            could_hear_at=could_hear_at,
            left_alone=[name for name in stale if self._presences.is_left_alone(name)],
        )

    async def work(self, begin: Begin) -> int:
        """Act on the last look; return 0 if there is nothing to do until the next."""
        self.moving.begin()
        if self._is_held_back:
            return 0
        breaker = await self._judge(begin) if self._settings.enabled else Breaker()
        is_frozen = not self._settings.enabled or breaker.freeze is not None
        self._suspect(breaker)
        if not is_frozen:
            await self._lose(begin, breaker)
        await self._find_again(begin)
        is_held_up = not is_frozen and await self.moving.move(breaker)
        if not is_frozen and not is_held_up:
            is_held_up = await self._pending.look(breaker, self._heard)
        if await self._evicting.look(begin, self._heard, is_frozen=is_frozen):
            is_held_up = True
        if is_held_up:
            await self._clock.sleep(HELD_UP_SECONDS)
        return int(is_held_up)

    @property
    def _is_held_back(self) -> bool:
        """Whether changes by other control planes cannot be seen."""
        return self._following.held_back is not None

    def _was_heard(self, name: str) -> bool:
        """Whether the cluster was ever heard."""
        presence = self._fleet.presence(name)
        heard_at = presence.last_heartbeat_at if presence else None
        return heard_at is not None or self._fleet.report(name) is not None

    async def _judge(self, begin: Begin) -> Breaker:
        async with begin() as tx:
            breaker = await tx.failover.get()
            if self._is_calm(breaker) or self._judged(breaker) == breaker:
                return breaker
            stored = await tx.failover.lock()
            breaker = self._judged(stored)
            await tx.failover.put(breaker)
        log_change(stored, breaker)
        return breaker

    def _is_calm(self, breaker: Breaker) -> bool:
        """Whether the breaker cannot change, which is the usual and cheap case."""
        is_empty = breaker.freeze is None and not breaker.accepted
        is_empty &= not any(place.freeze.is_by_breaker for place in breaker.places)
        return is_empty and len(self.silences.silent) < self._settings.breaker.clusters

    def _judged(self, breaker: Breaker) -> Breaker:
        origins = self._origins()
        return judged(
            breaker,
            self.silences,
            origins,
            heard=self._heard,
            lost=self._lost(origins),
            limits=self._settings.breaker,
            database_back_at=self._database_back_at,
        )

    def _origins(self) -> Mapping[str, ClusterOrigin]:
        """Return the origin of every cluster that was ever heard."""
        names = [name for name in self._fleet.snapshot.names if self._was_heard(name)]
        clusters = {name: self._fleet.known(name) for name in names}
        return {
            name: ClusterOrigin(
                region=state.cluster.region,
                provider=state.cluster.provider,
                control_plane=state.presence.peer or self._presences.replica_id,
            )
            for name, state in clusters.items()
        }

    def _lost(self, names: Iterable[str]) -> list[str]:
        return [n for n in names if self._fleet.known(n).cluster.lost_since is not None]

    def _suspect(self, breaker: Breaker) -> None:
        """Log once each place where many fell silent; a freeze of everything is logged already."""
        previous, self._suspected = self._suspected, frozenset()
        if (
            breaker.freeze is not None
            or len(self.silences.silent) < self._settings.breaker.clusters
        ):
            return
        origins = self._origins()
        places = suspected(
            breaker,
            self.silences,
            origins,
            lost=self._lost(origins),
            limits=self._settings.breaker,
        )
        self._suspected = frozenset(place.place for place in places)
        for place, fell, clusters in places:
            if place not in previous:
                fields = {"where": str(place), "silent": f"{len(fell)} of {len(clusters)} clusters"}
                logger.error("many clusters of one place fell silent", extra={"fields": fields})

    async def _lose(self, begin: Begin, breaker: Breaker) -> None:
        """Mark clusters lost that were silent for too long, except in frozen places."""
        for name in self.silences.lost(self._settings.lost_seconds):
            if not self._fleet.has(name):
                continue
            cluster = self._fleet.known(name).cluster
            if cluster.lost_since is not None or breaker.holds(cluster):
                continue
            now = self._clock.now()
            taint = Taint(key=UNREACHABLE_KEY, effect=TaintEffect.NO_EXECUTE, time_added=now)
            if await self._put_taints(begin, name, [taint]):
                held = self._fleet.ledger(name).bindings()
                fields = {
                    "cluster": name,
                    "silent_seconds": round(now - self.silences.silent[name].since),
                    "bindings": len(held),
                }
                logger.warning("cluster lost: its bindings are moved", extra={"fields": fields})

    async def _find_again(self, begin: Begin) -> None:
        """Mark lost clusters that are heard again as back."""
        for name in sorted(self._heard):
            since = self._fleet.known(name).cluster.lost_since if self._fleet.has(name) else None
            if since is not None and await self._put_taints(begin, name, []):
                fields = {"cluster": name, "lost_seconds": round(self._clock.now() - since)}
                logger.warning("cluster back", extra={"fields": fields})

    async def _put_taints(self, begin: Begin, name: str, ours: Iterable[Taint]) -> bool:
        """Replace our taints of a cluster; return whether that changed whether it is lost."""
        async with begin() as tx:
            stored = await tx.clusters.lock(name)
            if stored is None:
                return False
            old = stored.cluster
            foreign = (taint for taint in old.taints if taint.key != UNREACHABLE_KEY)
            cluster = replace(old, taints=(*foreign, *ours))
            if (cluster.lost_since is None) == (old.lost_since is None):
                return False
            cluster = await tx.clusters.put(stored.id, cluster)
            await tx.journal.append([ClusterChanged(cluster=name)])
        self._fleet.put_cluster(cluster)
        return True


def log_change(old: Breaker, new: Breaker, by: str = "") -> None:
    """Log each freeze and thaw of failover, as a whole or in a place."""
    for place in new.places:
        if place not in old.places:
            fields: Mapping[str, object] = {
                "where": str(place.place),
                "by": place.freeze.by,
                "why": place.freeze.reason,
            }
            logger.error("failover is frozen in one place", extra={"fields": fields})
    for place in old.places:
        if new.freeze_of(place.place) is None:
            by = by or "itself"
            fields = {"where": str(place.place), "by": by, "frozen_by": place.freeze.by}
            logger.warning("failover goes on in one place", extra={"fields": fields})
    if new.freeze is not None and new.freeze != old.freeze:
        fields = {"by": new.freeze.by, "why": new.freeze.reason}
        logger.error("failover is frozen: nothing moves", extra={"fields": fields})
    elif old.freeze is not None and new.freeze is None:
        fields = {"by": by or "itself", "frozen_by": old.freeze.by}
        logger.warning("failover goes on", extra={"fields": fields})
