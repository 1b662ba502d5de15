"""Graceful evictions: ended, or taken back.

Must not delete pods: controllers follow their bindings. Belongs to the event loop of the control
plane with the duty.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from federation.failover.evictions import Ending, Progress, ending_of
from federation.failover.moves import is_ordered_away, leaves_at
from federation.model.placement import Binding, BindingName, EvictionTask
from federation.services.duties import Begin
from federation.services.failover.moving import READ_AT_ONCE, Moving
from federation.services.fleet.registry import FleetOwner
from federation.services.journal import BindingChanged
from federation.services.ports import Clock, Store

# How soon evictions are looked at again: if there are some, and if there are none.
LOOK_SECONDS, IDLE_SECONDS = 1.0, 5.0
# Looking at many evictions takes time: the pause is this many times as long.
REST_TIMES = 20
# Other work of the same duty waits for these pages.
PAGES_AT_ONCE = 10
TRY_AGAIN_SECONDS = 10.0

logger = logging.getLogger(__name__)


class Evicting:
    """Open evictions, looked at again and again."""

    def __init__(
        self,
        store: Store,
        fleet: FleetOwner,
        moving: Moving,
        clock: Clock,
        *,
        max_seconds: float,
    ) -> None:
        self._store = store
        self._fleet = fleet
        self._moving = moving
        self._clock = clock
        self._max_seconds = max_seconds
        self._look_at = 0.0
        # The last binding of the current round, and when the round began.
        self._after: BindingName | None = None
        self._began: float | None = None
        self._try_again_at: dict[str, float] = {}

    async def look(self, begin: Begin, heard: Collection[str], *, is_frozen: bool) -> bool:
        """End evictions that are due, some pages at a time.

        Return whether pages are left, or the rate holds up an eviction to take back.
        """
        now = self._clock.now()
        if now < self._look_at:
            return False
        self._began = self._began or now
        for _ in range(PAGES_AT_ONCE):
            async with self._store.reading() as read:
                page = await read.failover.evicted(self._after, READ_AT_ONCE)
            if await self._look_at_page(begin, page, heard, is_frozen=is_frozen):
                return True
            if len(page) < READ_AT_ONCE:
                self._rest(is_empty=not page and self._after is None)
                return False
            self._after = page[-1].namespace, page[-1].name
        return True

    def _rest(self, *, is_empty: bool) -> None:
        """End a round; the longer it took, the longer is the pause."""
        now = self._clock.now()
        took = now - (self._began or now)
        self._look_at = now + (IDLE_SECONDS if is_empty else max(LOOK_SECONDS, took * REST_TIMES))
        self._after = self._began = None

    async def _look_at_page(
        self, begin: Begin, page: Sequence[Binding], heard: Collection[str], *, is_frozen: bool
    ) -> bool:
        """Return whether the rate holds up an eviction to take back."""
        ended: dict[BindingName, set[EvictionTask]] = {}
        endings, is_held_up = Counter[Ending](), False
        await self._moving.read_unknown(
            task.from_cluster for binding in page for task in binding.eviction_tasks
        )
        for binding in page:
            results = self._endings(binding, heard)
            back = [task for task, ending in results.items() if ending is Ending.TAKEN_BACK]
            if over := results.keys() - set(back):
                ended[binding.namespace, binding.name] = over
                endings.update(results[task] for task in over)
            if back and not is_frozen and not is_held_up:
                taken = await self._take_back(binding, back[-1])
                is_held_up = taken is None
                endings[Ending.TAKEN_BACK] += bool(taken)
        if ended:
            # First, because after a crash in between the task is found again.
            for name, tasks in ended.items():
                await self._moving.look_no_more(name, tasks)
            await self._end(begin, ended)
        _tell(endings)
        return is_held_up

    def _endings(self, binding: Binding, heard: Collection[str]) -> dict[EvictionTask, Ending]:
        now, fleet = self._clock.now(), self._fleet
        endings = {}
        for task in binding.eviction_tasks:
            name = task.from_cluster
            if not task.is_ours:
                continue
            ending = ending_of(
                task,
                binding,
                progress_of(fleet, binding, task, heard),
                now,
                is_known=fleet.has(name),
                is_silent=name not in heard,
                is_back=name in heard and leaves_at(binding, fleet.known(name).cluster) > now,
                is_ordered=is_ordered(fleet, binding, task, now),
                max_seconds=self._max_seconds,
            )
            if ending is not None:
                endings[task] = ending
        return endings

    async def _take_back(self, binding: Binding, task: EvictionTask) -> bool | None:
        """Return whether it was taken back; None: the rate holds it up."""
        now = self._clock.now()
        if now < self._try_again_at.get(binding.key, 0.0):
            return False
        await self._moving.count()
        cost = self._moving.may_move(task.replicas)
        if cost is None:
            return None
        if await self._moving.take_back(binding, task):
            self._try_again_at.pop(binding.key, None)
            return True
        self._moving.not_moved(cost)
        self._try_again_at[binding.key] = now + TRY_AGAIN_SECONDS
        return False

    async def _end(
        self, begin: Begin, ended: Mapping[BindingName, Collection[EvictionTask]]
    ) -> None:
        async with begin() as tx:
            current = await tx.bindings.lock_all(ended.keys())
            changes = [
                BindingChanged.of(row.binding, decision=row.decision_id, waits=row.wait is not None)
                for row in current.values()
            ]
            await tx.failover.put_evictions(
                {
                    row.id: [t for t in row.binding.eviction_tasks if t not in ended[name]]
                    for name, row in current.items()
                }
            )
            await tx.journal.append(changes)
        for change in changes:
            self._fleet.apply(change)


def is_ordered(fleet: FleetOwner, binding: Binding, task: EvictionTask, now: float) -> bool:
    """Whether people want the share gone from its cluster, with or without a replacement."""
    name = task.from_cluster
    return fleet.has(name) and is_ordered_away(binding, fleet.known(name).cluster, now)


def progress_of(
    fleet: FleetOwner, binding: Binding, task: EvictionTask, heard: Collection[str]
) -> Progress:
    """Return how far the replacement is, by the newest reports.

    A share that this control plane has not heard of counts as promised and not running, and so
    does a share in a silent or deleted cluster.
    """
    original = {target.name: target.replicas for target in task.clusters_before}
    outstanding = started = 0
    for target in binding.clusters:
        name = target.name
        if not fleet.has(name):
            outstanding += target.replicas
            continue
        ledger = fleet.ledger(name)
        newest = ledger.newest(binding.key)
        if name in heard:
            outstanding += sum(promise.in_cells for promise in ledger.outstanding_of(binding.key))
            outstanding += max(
                0, target.replicas - sum(reservation.replicas for reservation in newest)
            )
        elif target.replicas > original.get(name, 0):
            outstanding += target.replicas
        echoes = [
            echo for reservation in newest if (echo := ledger.echo_of(reservation)) is not None
        ]
        bound = sum(echo.bound for echo in echoes)
        started += max(0, bound - original.get(name, 0))
    return Progress(outstanding, started, _staying(fleet, binding, task))


def _staying(fleet: FleetOwner, binding: Binding, task: EvictionTask) -> int:
    """Count pods in the cluster that it leaves in addition to its share there."""
    name = task.from_cluster
    promised = sum(target.replicas for target in binding.clusters if target.name == name)
    return max(0, fleet.ledger(name).seen_of(binding.key) - promised) if fleet.has(name) else 0


def _tell(endings: Counter[Ending]) -> None:
    for ending, count in sorted(endings.items()):
        if count:
            fields = {"evictions": count, "why": ending.value}
            logger.info("evictions ended", extra={"fields": fields})
