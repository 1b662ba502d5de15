"""How failover stands, and the brake that people have.

Must not move anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from federation.failover.breaker import Breaker, Freeze, FreezeScope, FrozenPlace
from federation.failover.evictions import has_replacement
from federation.failover.moves import PLANNED_MOVE, PODS_PENDING, PREEMPTED
from federation.model.access import EVERYTHING, Scope
from federation.model.cluster import Cluster, Taint
from federation.model.errors import InvalidRequest, PreconditionFailed
from federation.model.placement import Binding, BindingName, EvictionTask
from federation.model.quotations import quoted
from federation.services.failover.evicting import is_ordered
from federation.services.failover.moving import evacuated
from federation.services.failover.watching import Failover, FailoverSettings, tell_of_change
from federation.services.fleet.registry import FleetOwner
from federation.services.ports import Clock, Store

MOST_EVICTIONS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class SilentCluster:
    """Times are in Unix seconds; ``lost_since`` is None while it is only stale."""

    name: str
    since: float
    lost_at: float
    lost_since: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EvacuatedCluster:
    """A cluster with taints that evict, and what bindings hold there."""

    name: str
    taints: tuple[Taint, ...]
    bindings: int
    replicas: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenEviction:
    """A graceful eviction of a binding; ``deadline`` in Unix seconds, None: it ends once its
    replacement runs, or with the return of its cluster, however long that takes.
    """

    binding: BindingName
    task: EvictionTask
    deadline: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FailoverOverview:
    """How failover stands; it moves so many percent of all replicas a minute."""

    enabled: bool
    percent_a_minute: float
    freeze: Freeze | None
    places: tuple[FrozenPlace, ...]
    silent: tuple[SilentCluster, ...]
    eviction_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FailoverStatus(FailoverOverview):
    """The same with what concerns bindings: of the evictions the oldest are in there.

    ``now`` is this control plane's time, in Unix seconds.
    """

    evacuated: tuple[EvacuatedCluster, ...]
    evictions: tuple[OpenEviction, ...]
    replicas_per_minute: float
    now: float


class FailoverControl:
    """What people see of failover and can do about it, at any control plane."""

    def __init__(
        self,
        store: Store,
        fleet: FleetOwner,
        failover: Failover,
        clock: Clock,
        settings: FailoverSettings,
    ) -> None:
        self._store = store
        self._fleet = fleet
        self._failover = failover
        self._clock = clock
        self._settings = settings

    async def overview(self, scope: Scope = EVERYTHING) -> FailoverOverview:
        """What costs little to know, however many bindings there are; as who may see the scope
        reads it.
        """
        async with self._store.reading() as read:
            breaker = await read.failover.get()
            count = await read.failover.evictions()
        return FailoverOverview(
            enabled=self._settings.enabled,
            percent_a_minute=self._settings.percent_a_minute,
            freeze=breaker.freeze.as_seen(scope) if breaker.freeze else None,
            places=self._places_seen(breaker, scope),
            silent=tuple(each for each in self._silent() if scope.sees_cluster(each.name)),
            eviction_count=count,
        )

    async def get(self, scope: Scope = EVERYTHING) -> FailoverStatus:
        """As who may see the scope reads it. Counts the replicas of all bindings."""
        async with self._store.reading() as read:
            breaker = await read.failover.get()
            evicted = await read.failover.evicted(None, MOST_EVICTIONS)
            count = await read.failover.evictions()
            replicas = await read.failover.replicas()
        evictions = [
            OpenEviction(
                binding=(each.namespace, each.name),
                task=task,
                deadline=self._deadline(each, task),
            )
            for each in evicted
            for task in each.eviction_tasks
            if task.is_ours
        ]
        evictions.sort(key=lambda each: (each.task.created_at or 0.0, each.binding))
        if scope != EVERYTHING:
            evictions = list(_evictions_seen(evictions, scope))
            count = len(evictions)
        return FailoverStatus(
            enabled=self._settings.enabled,
            percent_a_minute=self._settings.percent_a_minute,
            freeze=breaker.freeze.as_seen(scope) if breaker.freeze else None,
            places=self._places_seen(breaker, scope),
            silent=tuple(each for each in self._silent() if scope.sees_cluster(each.name)),
            evacuated=tuple(
                self._held(name) for name in evacuated(self._fleet) if scope.sees_cluster(name)
            ),
            evictions=tuple(evictions[:MOST_EVICTIONS]),
            eviction_count=count,
            replicas_per_minute=replicas * self._settings.percent_a_minute / 100,
            now=self._clock.now(),
        )

    async def freezes(self, clusters: Iterable[Cluster]) -> Mapping[str, Freeze]:
        """Those of them, by name, that nothing is moved off because of a freeze."""
        async with self._store.reading() as read:
            breaker = await read.failover.get()
        found = {each.name: breaker.freeze_at(each) for each in clusters}
        return {name: freeze for name, freeze in found.items() if freeze is not None}

    async def freeze(
        self, by: str, reason: str, place: FreezeScope | None = None, scope: Scope = EVERYTHING
    ) -> FailoverStatus:
        """Nothing moves until people resume it; with a place, nothing off its clusters.

        Raises PreconditionFailed where they froze the same, InvalidRequest for a place that has no
        clusters.
        """
        if place is not None and not any(map(place.has, self._fleet.snapshot.fleet.clusters)):
            raise InvalidRequest.of(place.kind, f"is that of no cluster: {place.name!r}")
        freeze = Freeze(by=by, since=self._clock.now(), reason=reason)
        async with self._store.transaction() as tx:
            before = await tx.failover.lock()
            known = before.freeze_of(place) if place else before.freeze
            if known is not None and not known.is_by_breaker:
                raise PreconditionFailed(
                    f"{_named(place)} is frozen already, by {quoted(known.by)}: "
                    f"{quoted(known.reason)}",
                    reason="ALREADY_FROZEN",
                )
            after = (
                before.frozen_in(place, freeze)
                if place
                else before.frozen(by, freeze.since, reason)
            )
            await tx.failover.put(after)
        tell_of_change(before, after)
        return await self.get(scope)

    async def resume(
        self, by: str, place: FreezeScope | None = None, scope: Scope = EVERYTHING
    ) -> FailoverStatus:
        """It goes on, in one place or as a whole. Raises PreconditionFailed where it is not
        frozen.
        """
        async with self._store.transaction() as tx:
            before = await tx.failover.lock()
            if (before.freeze_of(place) if place else before.freeze) is None:
                raise PreconditionFailed(f"{_named(place)} is not frozen.", reason="NOT_FROZEN")
            if place is not None:
                after = before.resumed_in(place, self._silent_in(before, place))
            else:
                after = before.resumed(self._failover.silences.silent.keys())
            await tx.failover.put(after)
        tell_of_change(before, after, by)
        return await self.get(scope)

    def _places_seen(self, breaker: Breaker, scope: Scope) -> tuple[FrozenPlace, ...]:
        """Those of which the scope has a cluster."""
        clusters = self._fleet.snapshot.fleet.clusters
        seen = [each for each in clusters if scope.sees_cluster(each.name)]
        return tuple(
            place.as_seen(scope)
            for place in breaker.places
            if scope.sees_all_clusters or any(map(place.has, seen))
        )

    def _silent_in(self, breaker: Breaker, place: FreezeScope) -> list[str]:
        """Who is silent in a place that froze by itself."""
        (frozen,) = [each for each in breaker.places if each.place == place]
        if not frozen.freeze.is_by_breaker:
            return []
        fleet, silent = self._fleet, self._failover.silences.silent
        return [n for n in silent if fleet.has(n) and frozen.has(fleet.known(n).cluster)]

    def _silent(self) -> list[SilentCluster]:
        return [
            SilentCluster(
                name=name,
                since=silence.since,
                lost_at=silence.since + self._settings.lost_seconds,
                lost_since=self._fleet.known(name).cluster.lost_since,
            )
            for name, silence in self._failover.silences.silent.items()
            if self._fleet.has(name)
        ]

    def _deadline(self, binding: Binding, task: EvictionTask) -> float | None:
        is_timed = task.reason in (PREEMPTED, PODS_PENDING)
        if not is_timed and task.reason != PLANNED_MOVE and has_replacement(binding, task):
            is_timed = is_ordered(self._fleet, binding, task, self._clock.now())
        if not is_timed:
            return None
        return (task.created_at or 0.0) + self._settings.eviction_seconds

    def _held(self, name: str) -> EvacuatedCluster:
        ledger = self._fleet.ledger(name)
        keys = ledger.bindings()
        return EvacuatedCluster(
            name=name,
            taints=self._fleet.known(name).cluster.taints,
            bindings=len(keys),
            replicas=sum(each.replicas for key in keys for each in ledger.newest(key)),
        )


def _evictions_seen(evictions: Iterable[OpenEviction], scope: Scope) -> Iterator[OpenEviction]:
    """Those of bindings and clusters in the scope, without names of other clusters."""
    for each in evictions:
        task = each.task
        if scope.sees_namespace(each.binding[0]) and scope.sees_cluster(task.from_cluster):
            before = tuple(one for one in task.clusters_before if scope.sees_cluster(one.name))
            yield replace(each, task=replace(task, clusters_before=before))


def _named(place: FreezeScope | None) -> str:
    return f"Failover of {place}" if place else "Failover"
