"""Pods that have been on no node for too long: their replicas are promised elsewhere.

Must not choose other clusters, nor touch pods that run: an ordinary decision does the first.
Belongs to the event loop of the control plane with the duty.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import Final, NamedTuple, TypeAlias

from federation.capacity.ledger import ClusterLedger
from federation.failover.breaker import Breaker
from federation.model.placement import Binding, BindingName, SchedulingType
from federation.scheduler.demand import Demand
from federation.services.failover.moving import AT_ONCE, Moving
from federation.services.fleet.registry import FleetOwner
from federation.services.ports import Clock, Store
from federation.services.scheduling.stated_moves import PendingPodsMove
from federation.services.threads import PREVIEWING

LOOK_SECONDS: Final = 5.0
# Replicas that fit nowhere else stay, and are tried again.
TRY_AGAIN_SECONDS: Final = 60.0

# A binding and a cluster.
SharePlace: TypeAlias = tuple[BindingName, str]


class Pending(NamedTuple):
    """Since when at least so many pods are on no node, in every look; Unix seconds."""

    since: float
    replicas: int


class PendingReplicas:
    """Pods on no node, and since when; after ``seconds`` they are moved, 0: never."""

    def __init__(
        self, store: Store, fleet: FleetOwner, moving: Moving, clock: Clock, *, seconds: float
    ) -> None:
        self._store = store
        self._fleet = fleet
        self._moving = moving
        self._clock = clock
        self._seconds = seconds
        self._pending: dict[SharePlace, Pending] = {}
        self._look_at = 0.0
        self._try_again_at: dict[BindingName, float] = {}

    async def look(self, breaker: Breaker, heard: Collection[str]) -> bool:
        """Move what is due off clusters that are heard and not frozen.

        Return whether the rate holds up others.
        """
        now = self._clock.now()
        if not self._seconds or now < self._look_at:
            return False
        ledgers = {
            name: self._fleet.ledger(name)
            for name in sorted(heard)
            if self._fleet.has(name) and not breaker.holds(self._fleet.known(name).cluster)
        }
        counts = await PREVIEWING.run(pending_shares, ledgers)
        self._pending = {place: self._seen(place, n, now) for place, n in counts.items()}
        due: defaultdict[BindingName, dict[str, Pending]] = defaultdict(dict)
        for (name, cluster), pending in self._pending.items():
            if now - pending.since >= self._seconds:
                due[name][cluster] = pending
        self._try_again_at = {name: at for name, at in self._try_again_at.items() if name in due}
        is_held_up = await self._take_back(due, now)
        if not is_held_up:
            self._look_at = now + LOOK_SECONDS
        return is_held_up

    def _seen(self, place: SharePlace, replicas: int, now: float) -> Pending:
        last = self._pending.get(place, Pending(now, replicas))
        return Pending(last.since, min(last.replicas, replicas))

    async def _take_back(
        self, due: Mapping[BindingName, Mapping[str, Pending]], now: float
    ) -> bool:
        names = sorted(name for name in due if self._try_again_at.get(name, 0.0) <= now)
        if not names:
            return False
        async with self._store.reading() as read:
            # One that only a newer release can read is left to that.
            stored = await read.bindings.find(names, set())
        movable = [row.binding for row in stored.values() if _may_move(row.binding)]
        movable.sort(key=lambda binding: (-binding.priority, binding.key))
        await self._moving.count()
        for binding in movable[:AT_ONCE]:
            name = binding.namespace, binding.name
            retaking = self._retaking(binding, due[name], now)
            if retaking is None:
                continue
            cost = self._moving.may_move(sum(retaking.lost.values()))
            if cost is None:
                return True
            if not await self._moving.retake(binding, retaking):
                self._moving.not_moved(cost)
                self._try_again_at[name] = now + TRY_AGAIN_SECONDS
        return len(movable) > AT_ONCE

    def _retaking(
        self, binding: Binding, pending: Mapping[str, Pending], now: float
    ) -> PendingPodsMove | None:
        """Return the replicas that it loses, none of which runs; None: it loses none."""
        lost, why = {}, {}
        for target in binding.clusters:
            if target.name not in pending or not self._fleet.has(target.name):
                continue
            running = bound_of(self._fleet.ledger(target.name), binding.key)
            count = min(pending[target.name].replicas, target.replicas - running)
            if count > 0:
                lost[target.name] = count
                seconds = round(now - pending[target.name].since)
                pods = "pod was" if count == 1 else "pods were"
                why[target.name] = f"{count} {pods} on no node in {target.name} for {seconds} s"
        return PendingPodsMove(lost=lost, why=why) if lost else None


def pending_shares(ledgers: Mapping[str, ClusterLedger]) -> dict[SharePlace, int]:
    """Count by binding and cluster the pods that the newest report sees on no node."""
    counts: dict[SharePlace, int] = {}
    for cluster, ledger in ledgers.items():
        for key in {promise.binding for promise in ledger.outstanding()}:
            echoes = [ledger.echo_of(reservation) for reservation in ledger.newest(key)]
            unbound = sum(echo.unbound for echo in echoes if echo is not None)
            if unbound:
                namespace, _, name = key.rpartition("/")
                counts[(namespace, name), cluster] = unbound
    return counts


def bound_of(ledger: ClusterLedger, key: str) -> int:
    """Count the pods of a binding that the newest report sees on nodes, of whatever shape."""
    echoes = [ledger.echo_of(reservation) for reservation in ledger.of_binding(key)]
    return sum(echo.bound for echo in echoes if echo is not None)


def _may_move(binding: Binding) -> bool:
    """Whether its replicas are divided by capacity: others would be put back at once."""
    is_divided = binding.placement.replica_scheduling.type is SchedulingType.DIVIDED
    heeds = is_divided and Demand.of(binding).rule.heeds_capacity
    return heeds and not (binding.components or binding.suspended)
