"""Ends graceful evictions, or takes them back.

Must not delete anything: controllers follow what a binding says. Belongs to the event loop of who
has the duty.
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

# How soon evictions are looked at again: where there are some, and where there are none.
LOOK_SECONDS, IDLE_SECONDS = 1.0, 5.0
# Of many the looking takes its time: it rests so many times as long.
REST_TIMES = 20
# Others of the same duty wait for a piece of work.
PAGES_AT_ONCE = 10
TRY_AGAIN_SECONDS = 10.0

logger = logging.getLogger(__name__)


class Evicting:
    """The evictions that go on, looked at again and again."""

    def __init__(
        self,
        store: Store,
        fleet: FleetOwner,
        moving: Moving,
        clock: Clock,
        *,
        most_seconds: float,
    ) -> None:
        self._store = store
        self._fleet = fleet
        self._moving = moving
        self._clock = clock
        self._most_seconds = most_seconds
        self._look_at = 0.0
        # Where the looking goes on, and since when it lasts.
        self._after: BindingName | None = None
        self._began: float | None = None
        self._try_again_at: dict[str, float] = {}

    async def look(self, begin: Begin, heard: Collection[str], *, is_frozen: bool) -> bool:
        """End what is due, some pages at a time; whether there is more to look at, or to take back
        once the rate allows it.
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
        """All were looked at; the longer that took the longer it rests."""
        now = self._clock.now()
        took = now - (self._began or now)
        self._look_at = now + (IDLE_SECONDS if is_empty else max(LOOK_SECONDS, took * REST_TIMES))
        self._after = self._began = None

    async def _look_at_page(
        self, begin: Begin, page: Sequence[Binding], heard: Collection[str], *, is_frozen: bool
    ) -> bool:
        """Whether something is to be taken back that the rate holds up."""
        ended: dict[BindingName, set[EvictionTask]] = {}
        endings, is_held_up = Counter[Ending](), False
        await self._moving.read_unknown(
            task.from_cluster for binding in page for task in binding.eviction_tasks
        )
        for binding in page:
            over = self._endings(binding, heard)
            back = [task for task, ending in over.items() if ending is Ending.TAKEN_BACK]
            if left := over.keys() - set(back):
                ended[binding.namespace, binding.name] = left
                endings.update(over[task] for task in left)
            if back and not is_frozen and not is_held_up:
                taken = await self._take_back(binding, back[-1])
                is_held_up = taken is None
                endings[Ending.TAKEN_BACK] += bool(taken)
        if ended:
            # First: who dies in between finds the task, and does the rest.
            for name, tasks in ended.items():
                await self._moving.look_no_more(name, tasks)
            await self._end(begin, ended)
        _tell(endings)
        return is_held_up

    def _endings(self, binding: Binding, heard: Collection[str]) -> dict[EvictionTask, Ending]:
        now, fleet = self._clock.now(), self._fleet
        found = {}
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
                most_seconds=self._most_seconds,
            )
            if ending is not None:
                found[task] = ending
        return found

    async def _take_back(self, binding: Binding, task: EvictionTask) -> bool | None:
        """Whether it was; None: not yet."""
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
                BindingChanged.of(
                    each.binding, decision=each.decision_id, waits=each.wait is not None
                )
                for each in current.values()
            ]
            await tx.failover.put_evictions(
                {
                    each.id: [t for t in each.binding.eviction_tasks if t not in ended[name]]
                    for name, each in current.items()
                }
            )
            await tx.journal.append(changes)
        for change in changes:
            self._fleet.apply(change)


def is_ordered(fleet: FleetOwner, binding: Binding, task: EvictionTask, now: float) -> bool:
    """Whether people want the share gone from its cluster, whatever becomes of its replacement."""
    name = task.from_cluster
    return fleet.has(name) and is_ordered_away(binding, fleet.known(name).cluster, now)


def progress_of(
    fleet: FleetOwner, binding: Binding, task: EvictionTask, heard: Collection[str]
) -> Progress:
    """How far the replacement is, by the newest reports.

    What this control plane has not heard of yet counts as promised and not there, and so does what
    a silent or deleted cluster has: nobody sees it run.
    """
    before = {each.name: each.replicas for each in task.clusters_before}
    outstanding = started = 0
    for target in binding.clusters:
        name = target.name
        if not fleet.has(name):
            outstanding += target.replicas
            continue
        ledger = fleet.ledger(name)
        newest = ledger.newest(binding.key)
        if name in heard:
            outstanding += sum(each.in_cells for each in ledger.outstanding_of(binding.key))
            outstanding += max(0, target.replicas - sum(each.replicas for each in newest))
        elif target.replicas > before.get(name, 0):
            outstanding += target.replicas
        echoes = [echo for each in newest if (echo := ledger.echo_of(each)) is not None]
        bound = sum(echo.bound for echo in echoes)
        started += max(0, bound - before.get(name, 0))
    return Progress(outstanding, started, _staying(fleet, binding, task))


def _staying(fleet: FleetOwner, binding: Binding, task: EvictionTask) -> int:
    """Pods that are seen in the cluster that it leaves, beyond what it has there by now."""
    name = task.from_cluster
    kept = sum(each.replicas for each in binding.clusters if each.name == name)
    return max(0, fleet.ledger(name).seen_of(binding.key) - kept) if fleet.has(name) else 0


def _tell(endings: Counter[Ending]) -> None:
    for ending, count in sorted(endings.items()):
        if count:
            fields = {"evictions": count, "why": ending.value}
            logger.info("evictions ended", extra={"fields": fields})
