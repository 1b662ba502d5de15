"""The status of failover, and its brake for people.

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
from federation.services.failover.watching import Failover, FailoverSettings, log_change
from federation.services.fleet.registry import FleetOwner
from federation.services.ports import Clock, Store, Transaction

MAX_EVICTIONS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class SilentCluster:
    """A silent cluster; times are in Unix seconds, ``lost_since`` is None while it is stale."""

    name: str
    since: float
    lost_at: float
    lost_since: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EvacuatedCluster:
    """A cluster with taints that evict, and the reservations of bindings there."""

    name: str
    taints: tuple[Taint, ...]
    bindings: int
    replicas: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenEviction:
    """A graceful eviction of a binding; ``deadline`` in Unix seconds.

    None: it ends once its replacement runs, or its cluster returns, however long that takes.
    """

    binding: BindingName
    task: EvictionTask
    deadline: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FailoverOverview:
    """The status of failover, which moves this percentage of all replicas a minute."""

    enabled: bool
    percent_a_minute: float
    freeze: Freeze | None
    places: tuple[FrozenPlace, ...]
    silent: tuple[SilentCluster, ...]
    eviction_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FailoverStatus(FailoverOverview):
    """The status with the bindings concerned, and the oldest evictions.

    ``now`` is this control plane's time, in Unix seconds.
    """

    evacuated: tuple[EvacuatedCluster, ...]
    evictions: tuple[OpenEviction, ...]
    replicas_per_minute: float
    now: float


class FailoverControl:
    """Use cases of people with failover, at any control plane."""

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
        """Read what costs little, however many bindings there are, as the scope may see it."""
        async with self._store.reading() as read:
            return await self._overview(read, scope)

    async def _overview(self, read: Transaction, scope: Scope) -> FailoverOverview:
        breaker = await read.failover.get()
        return FailoverOverview(
            enabled=self._settings.enabled,
            percent_a_minute=self._settings.percent_a_minute,
            freeze=breaker.freeze.as_seen(scope) if breaker.freeze else None,
            places=self._places_seen(breaker, scope),
            silent=tuple(self._silent(scope)),
            eviction_count=await read.failover.evictions(),
        )

    async def get(self, scope: Scope = EVERYTHING) -> FailoverStatus:
        """Read the whole status, as the scope may see it, and count all replicas."""
        async with self._store.reading() as read:
            overview = await self._overview(read, scope)
            evicted = await read.failover.evicted(None, MAX_EVICTIONS)
            replicas = await read.failover.replicas()
        evictions = [
            OpenEviction(
                binding=(binding.namespace, binding.name),
                task=task,
                deadline=self._deadline(binding, task),
            )
            for binding in evicted
            for task in binding.eviction_tasks
            if task.is_ours
        ]
        evictions.sort(key=lambda eviction: (eviction.task.created_at or 0.0, eviction.binding))
        if scope != EVERYTHING:
            evictions = list(_evictions_seen(evictions, scope))
            overview = replace(overview, eviction_count=len(evictions))
        return FailoverStatus(
            enabled=overview.enabled,
            percent_a_minute=overview.percent_a_minute,
            freeze=overview.freeze,
            places=overview.places,
            silent=overview.silent,
            eviction_count=overview.eviction_count,
            evacuated=tuple(
                self._held(name)
                for name in self._fleet.snapshot.fleet.evacuated()
                if scope.sees_cluster(name)
            ),
            evictions=tuple(evictions[:MAX_EVICTIONS]),
            replicas_per_minute=replicas * self._settings.percent_a_minute / 100,
            now=self._clock.now(),
        )

    async def freezes(self, clusters: Iterable[Cluster]) -> Mapping[str, Freeze]:
        """Return the freezes that keep bindings in clusters, by their names."""
        async with self._store.reading() as read:
            breaker = await read.failover.get()
        freezes = {cluster.name: breaker.freeze_at(cluster) for cluster in clusters}
        return {name: freeze for name, freeze in freezes.items() if freeze is not None}

    async def freeze(
        self, by: str, reason: str, place: FreezeScope | None = None, scope: Scope = EVERYTHING
    ) -> FailoverStatus:
        """Freeze failover until people resume it; with a place, only moves off its clusters.

        Raises PreconditionFailed if people froze the same, InvalidRequest for a place without
        clusters.
        """
        if place is not None and not any(map(place.has, self._fleet.snapshot.fleet.clusters)):
            raise InvalidRequest.of(place.kind, f"is that of no cluster: {place.name!r}")
        freeze = Freeze(by=by, since=self._clock.now(), reason=reason)
        async with self._store.transaction() as tx:
            stored = await tx.failover.lock()
            current = stored.freeze_of(place) if place else stored.freeze
            if current is not None and not current.is_by_breaker:
                raise PreconditionFailed(
                    f"{_named(place)} is frozen already, by {quoted(current.by)}: "
                    f"{quoted(current.reason)}",
                    reason="ALREADY_FROZEN",
                )
            after = (
                stored.frozen_in(place, freeze)
                if place
                else stored.frozen(by, freeze.since, reason)
            )
            await tx.failover.put(after)
        log_change(stored, after)
        return await self.get(scope)

    async def resume(
        self, by: str, place: FreezeScope | None = None, scope: Scope = EVERYTHING
    ) -> FailoverStatus:
        """Resume failover in one place or as a whole. Raises PreconditionFailed if not frozen."""
        async with self._store.transaction() as tx:
            stored = await tx.failover.lock()
            if (stored.freeze_of(place) if place else stored.freeze) is None:
                raise PreconditionFailed(f"{_named(place)} is not frozen.", reason="NOT_FROZEN")
            if place is not None:
                after = stored.resumed_in(place, self._silent_in(stored, place))
            else:
                after = stored.resumed(self._failover.silences.silent.keys())
            await tx.failover.put(after)
        log_change(stored, after, by)
        return await self.get(scope)

    def _places_seen(self, breaker: Breaker, scope: Scope) -> tuple[FrozenPlace, ...]:
        """Return the frozen places of which the scope has a cluster."""
        clusters = self._fleet.snapshot.fleet.clusters
        visible = [cluster for cluster in clusters if scope.sees_cluster(cluster.name)]
        return tuple(
            place.as_seen(scope)
            for place in breaker.places
            if scope.sees_all_clusters or any(map(place.has, visible))
        )

    def _silent_in(self, breaker: Breaker, place: FreezeScope) -> list[str]:
        """Return the silent clusters of a place that froze by itself."""
        (frozen,) = [entry for entry in breaker.places if entry.place == place]
        if not frozen.freeze.is_by_breaker:
            return []
        fleet, silent = self._fleet, self._failover.silences.silent
        return [n for n in silent if fleet.has(n) and frozen.has(fleet.known(n).cluster)]

    def _silent(self, scope: Scope) -> list[SilentCluster]:
        return [
            SilentCluster(
                name=name,
                since=silence.since,
                lost_at=silence.since + self._settings.lost_seconds,
                lost_since=self._fleet.known(name).cluster.lost_since,
            )
            for name, silence in self._failover.silences.silent.items()
            if self._fleet.has(name) and scope.sees_cluster(name)
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
            replicas=sum(
                reservation.replicas for key in keys for reservation in ledger.newest(key)
            ),
        )


def _evictions_seen(evictions: Iterable[OpenEviction], scope: Scope) -> Iterator[OpenEviction]:
    """Yield evictions of bindings and clusters in the scope, without names of other clusters."""
    for eviction in evictions:
        task = eviction.task
        if scope.sees_namespace(eviction.binding[0]) and scope.sees_cluster(task.from_cluster):
            visible = tuple(
                target for target in task.clusters_before if scope.sees_cluster(target.name)
            )
            yield replace(eviction, task=replace(task, clusters_before=visible))


def _named(place: FreezeScope | None) -> str:
    return f"Failover of {place}" if place else "Failover"
