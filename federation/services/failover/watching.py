"""Looks who is silent, says who is lost and who is back, and has the rest done.

Every control plane looks; the one that has the duty acts. Must not act on silence that may be its
own.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from federation.failover.breaker import (
    Breaker,
    BreakerLimits,
    ClusterOrigin,
    FreezeScope,
    judged,
    suspected,
)
from federation.failover.silence import MOST_DEAF_SECONDS, Silences
from federation.model.cluster import UNREACHABLE_KEY, Taint, TaintEffect
from federation.services.duties import Begin, Duty
from federation.services.failover.evicting import Evicting
from federation.services.failover.moving import Moving
from federation.services.failover.pending import PendingReplicas
from federation.services.fleet.registry import FleetOwner
from federation.services.journal import ClusterChanged
from federation.services.members.hearing import forgive
from federation.services.ports import Store, Timer
from federation.services.scheduling.pipeline import DecisionPipeline
from federation.services.troubles import Trouble

LOOK_SECONDS: Final = 1.0
# While something is held up by the rate it is asked again so soon.
HELD_UP_SECONDS: Final = 0.1

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class FailoverSettings:
    """When a cluster is lost, when too many are, how long evictions last, and how fast it goes.

    Not ``enabled``: what had begun before still ends, and lost clusters may be found again.
    """

    enabled: bool = True
    lost_seconds: float = 300.0
    eviction_seconds: float = 600.0
    percent_a_minute: float = 10.0
    # After which pods on no node are promised elsewhere; 0: never.
    unschedulable_seconds: float = 0.0
    breaker: BreakerLimits = field(default_factory=BreakerLimits)


class Hearing(Protocol):
    """How this control plane hears agents."""

    @property
    def shared_at(self) -> float:
        """When all was known last that other control planes heard."""
        ...

    @property
    def silence_seconds(self) -> float:
        """After how long without a word an agent is silent."""
        ...

    @property
    def replica_id(self) -> str:
        """Its own id."""
        ...

    def is_left_alone(self, cluster: str) -> bool:
        """Whether the control plane that served a cluster's agent last is gone."""
        ...


class Failover:
    """Who is silent, by this control plane, and what follows. Belongs to one event loop."""

    def __init__(
        self,
        store: Store,
        fleet: FleetOwner,
        pipeline: DecisionPipeline,
        hearing: Hearing,
        clock: Timer,
        settings: FailoverSettings,
    ) -> None:
        self._store = store
        self._fleet = fleet
        self._following = pipeline.following
        self._hearing = hearing
        self._clock = clock
        self._settings = settings
        self.silences = Silences.begun(clock.now())
        self._heard: frozenset[str] = frozenset()
        self._suspected: frozenset[FreezeScope] = frozenset()
        self._is_cut_off = False
        self._database_back_at: float | None = None
        self.moving = Moving(
            store, fleet, pipeline, clock, percent_a_minute=settings.percent_a_minute
        )
        self._evicting = Evicting(
            store, fleet, self.moving, clock, most_seconds=settings.eviction_seconds
        )
        self._pending = PendingReplicas(
            store, fleet, self.moving, clock, seconds=settings.unschedulable_seconds
        )
        # With pauses what the rate allows meanwhile would be lost beyond what may be saved of it.
        self.duty = Duty(name="failover", work=self.work, is_steady=True)

    async def keep_looking(self) -> None:
        """Until cancelled."""
        trouble = Trouble(logger, "silence not looked at")
        while True:
            try:
                self.look()
                trouble.over()
            except Exception as error:  # noqa: BLE001 - told; lost clusters have to be noticed
                trouble.met(error)
            await self._clock.sleep(LOOK_SECONDS)

    def look(self) -> None:
        """See who is silent. A machine that slept heard nobody meanwhile."""
        now, before, fleet = self._clock.now(), self.silences, self._fleet
        slept = now - before.looked_at
        if slept > MOST_DEAF_SECONDS and not self._is_held_back:
            forgive(fleet, fleet.snapshot.names, slept, before.looked_at)
        if self._is_held_back:
            # What peers changed is not seen: a cluster that is back may look lost here.
            forgive(fleet, fleet.snapshot.names, slept, before.looked_at)
            before = Silences.begun(before.looked_at)
        could_hear_at = self._hearing.shared_at
        is_cut_off = now - could_hear_at > MOST_DEAF_SECONDS
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
        self.silences = before.looked(
            now,
            stale,
            stale_seconds=self._hearing.silence_seconds,
            could_hear_at=could_hear_at,
            left_alone=[name for name in stale if self._hearing.is_left_alone(name)],
        )

    async def work(self, begin: Begin) -> int:
        """One piece: what follows from the last look. 0: there is nothing to do until the next."""
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
        """Whether nothing that others change can be seen."""
        return self._following.held_back is not None

    def _was_heard(self, name: str) -> bool:
        """Whether there is anything of it to lose."""
        presence = self._fleet.presence(name)
        heard_at = presence.last_heartbeat_at if presence else None
        return heard_at is not None or self._fleet.report(name) is not None

    async def _judge(self, begin: Begin) -> Breaker:
        async with begin() as tx:
            breaker = await tx.failover.get()
            if self._is_calm(breaker) or self._judged(breaker) == breaker:
                return breaker
            before = await tx.failover.lock()
            breaker = self._judged(before)
            await tx.failover.put(breaker)
        tell_of_change(before, breaker)
        return breaker

    def _is_calm(self, breaker: Breaker) -> bool:
        """Whether nothing can follow: so it is mostly, and costs nothing then."""
        is_empty = breaker.freeze is None and not breaker.accepted
        is_empty &= not any(each.freeze.is_by_breaker for each in breaker.places)
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
        """Of every cluster that was ever heard."""
        names = [name for name in self._fleet.snapshot.names if self._was_heard(name)]
        clusters = {name: self._fleet.known(name) for name in names}
        return {
            name: ClusterOrigin(
                region=each.cluster.region,
                provider=each.cluster.provider,
                control_plane=each.presence.peer or self._hearing.replica_id,
            )
            for name, each in clusters.items()
        }

    def _lost(self, names: Iterable[str]) -> list[str]:
        return [n for n in names if self._fleet.known(n).cluster.lost_since is not None]

    def _suspect(self, breaker: Breaker) -> None:
        """Tell once where many fell silent at once; where all is frozen that was told."""
        before, self._suspected = self._suspected, frozenset()
        if (
            breaker.freeze is not None
            or len(self.silences.silent) < self._settings.breaker.clusters
        ):
            return
        origins = self._origins()
        found = suspected(
            breaker,
            self.silences,
            origins,
            lost=self._lost(origins),
            limits=self._settings.breaker,
        )
        self._suspected = frozenset(each.place for each in found)
        for place, fell, there in found:
            if place not in before:
                fields = {"where": str(place), "silent": f"{len(fell)} of {len(there)} clusters"}
                logger.error("many clusters of one place fell silent", extra={"fields": fields})

    async def _lose(self, begin: Begin, breaker: Breaker) -> None:
        """Those that were silent for too long are lost, but where that is frozen."""
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
        """Those that are heard again are not lost any more."""
        for name in sorted(self._heard):
            since = self._fleet.known(name).cluster.lost_since if self._fleet.has(name) else None
            if since is not None and await self._put_taints(begin, name, []):
                fields = {"cluster": name, "lost_seconds": round(self._clock.now() - since)}
                logger.warning("cluster back", extra={"fields": fields})

    async def _put_taints(self, begin: Begin, name: str, ours: Iterable[Taint]) -> bool:
        """Whether the cluster has these of ours now, and had not before."""
        async with begin() as tx:
            stored = await tx.clusters.lock(name)
            if stored is None:
                return False
            before = stored.cluster
            others = (each for each in before.taints if each.key != UNREACHABLE_KEY)
            cluster = replace(before, taints=(*others, *ours))
            if (cluster.lost_since is None) == (before.lost_since is None):
                return False
            cluster = await tx.clusters.put(stored.id, cluster)
            await tx.journal.append([ClusterChanged(cluster=name)])
        self._fleet.put_cluster(cluster)
        return True


def tell_of_change(before: Breaker, after: Breaker, by: str = "") -> None:
    """One line where failover is frozen or goes on, as a whole or in a place."""
    for each in after.places:
        if each not in before.places:
            fields: Mapping[str, object] = {
                "where": str(each.place),
                "by": each.freeze.by,
                "why": each.freeze.reason,
            }
            logger.error("failover is frozen in one place", extra={"fields": fields})
    for each in before.places:
        if after.freeze_of(each.place) is None:
            by = by or "itself"
            fields = {"where": str(each.place), "by": by, "frozen_by": each.freeze.by}
            logger.warning("failover goes on in one place", extra={"fields": fields})
    if after.freeze is not None and after.freeze != before.freeze:
        fields = {"by": after.freeze.by, "why": after.freeze.reason}
        logger.error("failover is frozen: nothing moves", extra={"fields": fields})
    elif before.freeze is not None and after.freeze is None:
        fields = {"by": by or "itself", "frozen_by": before.freeze.by}
        logger.warning("failover goes on", extra={"fields": fields})
