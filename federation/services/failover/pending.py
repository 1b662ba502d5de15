"""Takes back replicas whose pods have been on no node for too long, where others have room.

Must not decide where they go, nor touch what runs: each is an ordinary decision about what is
stored. Belongs to the event loop of who has the duty.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import groupby
from typing import Final

from federation.capacity.ledger import ClusterLedger
from federation.failover.breaker import Breaker
from federation.failover.pending import Pending, PendingShares, SharePlace
from federation.model.placement import Binding, BindingName, SchedulingType
from federation.scheduler.demand import Demand
from federation.services.failover.moving import AT_ONCE, Moving
from federation.services.fleet.registry import FleetOwner
from federation.services.ports import Clock, Store
from federation.services.scheduling.stated_moves import PendingPodsMove
from federation.services.threads import PREVIEWING

LOOK_SECONDS: Final = 5.0
# What has room nowhere else stays, and is tried again.
TRY_AGAIN_SECONDS: Final = 60.0


class PendingReplicas:
    """Pods on no node, as last seen, and for how long; ``seconds`` are too long, 0: never."""

    def __init__(
        self, store: Store, fleet: FleetOwner, moving: Moving, clock: Clock, *, seconds: float
    ) -> None:
        self._store = store
        self._fleet = fleet
        self._moving = moving
        self._clock = clock
        self._seconds = seconds
        self._known = PendingShares()
        self._look_at = 0.0
        self._try_again_at: dict[BindingName, float] = {}

    async def look(self, breaker: Breaker, heard: Collection[str]) -> bool:
        """Take back what is due, in clusters that are heard and not frozen; whether there is more
        that is only held up by the rate.
        """
        now = self._clock.now()
        if not self._seconds or now < self._look_at:
            return False
        ledgers = {
            name: self._fleet.ledger(name)
            for name in sorted(heard)
            if self._fleet.has(name) and not breaker.holds(self._fleet.known(name).cluster)
        }
        found = await PREVIEWING.run(pending_shares, ledgers)
        self._known = self._known.looked(now, found)
        due = self._known.due(now, self._seconds)
        self._try_again_at = {
            name: at for name, at in self._try_again_at.items() if any(name == n for n, _ in due)
        }
        is_held_up = await self._take_back(due, now)
        if not is_held_up:
            self._look_at = now + LOOK_SECONDS
        return is_held_up

    async def _take_back(self, due: Mapping[SharePlace, Pending], now: float) -> bool:
        by_binding = groupby(sorted(due), key=lambda place: place[0])
        places = {
            name: [cluster for _, cluster in group]
            for name, group in by_binding
            if self._try_again_at.get(name, 0.0) <= now
        }
        if not places:
            return False
        async with self._store.reading() as read:
            # One that only a newer release can read is left to that.
            stored = await read.bindings.find(places.keys(), set())
        movable = [each.binding for each in stored.values() if _may_move(each.binding)]
        movable.sort(key=lambda each: (-each.priority, each.key))
        await self._moving.count()
        for binding in movable[:AT_ONCE]:
            name = binding.namespace, binding.name
            retaking = self._retaking(binding, {c: due[name, c] for c in places[name]}, now)
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
        """What it loses, never of what runs; None where that is nothing."""
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
    """By binding and cluster, the pods that the newest report sees on no node."""
    found: dict[SharePlace, int] = {}
    for cluster, ledger in ledgers.items():
        for key in {each.binding for each in ledger.outstanding()}:
            echoes = [ledger.echo_of(each) for each in ledger.newest(key)]
            unbound = sum(each.unbound for each in echoes if each is not None)
            if unbound:
                namespace, _, name = key.rpartition("/")
                found[(namespace, name), cluster] = unbound
    return found


def bound_of(ledger: ClusterLedger, key: str) -> int:
    """Pods of a binding that the newest report sees on nodes, of whatever shape."""
    echoes = [ledger.echo_of(each) for each in ledger.of_binding(key)]
    return sum(each.bound for each in echoes if each is not None)


def _may_move(binding: Binding) -> bool:
    """Whether its replicas are divided by what has room: others would be put back at once."""
    is_divided = binding.placement.replica_scheduling.type is SchedulingType.DIVIDED
    heeds = is_divided and Demand.of(binding).rule.heeds_capacity
    return heeds and not (binding.components or binding.suspended)
