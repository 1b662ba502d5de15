"""Which pod is tried next: active, backing off, or waiting for the cluster to change.

Pure: time is passed in, in seconds of any clock that does not go back. Must not judge pods.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, TypeAlias, TypeVar

from estimator.placement.incoming import IncomingPod

Order: TypeAlias = tuple[int, float, str, str]
"""Ascending: priority negated, the time its group or it was made, group key, pod key."""

_Item = TypeVar("_Item", tuple[Order, int, str], tuple[float, int, str])

INITIAL_BACKOFF_SECONDS: Final = 1.0
MAX_BACKOFF_SECONDS: Final = 10.0
# What nothing has changed for is tried again all the same: a change may have been missed.
UNSCHEDULABLE_SECONDS: Final = 300.0


class QueueState(Enum):
    """The place of a pod."""

    ACTIVE = auto()
    BACKING_OFF = auto()
    UNSCHEDULABLE = auto()
    IN_HAND = auto()


@dataclass(slots=True, kw_only=True)
class _Entry:
    pod: IncomingPod
    order: Order
    place: QueueState = QueueState.ACTIVE
    attempts: int = 0
    backoff_until: float = 0.0
    since: float = 0.0
    changes_seen: int = 0
    # Heaps keep stale items; only the one with the entry's present ticket counts.
    ticket: int = 0


class SchedulingQueue:
    """Every pod that is to get a node, once, by uid."""

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}
        self._active: list[tuple[Order, int, str]] = []
        self._backing_off: list[tuple[float, int, str]] = []
        # In the order in which they became so: the first one's time comes first.
        self._unschedulable: dict[str, _Entry] = {}
        self._tickets = 0
        self._changes = 0

    def __contains__(self, uid: str) -> bool:
        return uid in self._entries

    def __len__(self) -> int:
        return len(self._entries)

    def place_of(self, uid: str) -> QueueState | None:
        entry = self._entries.get(uid)
        return None if entry is None else entry.place

    def put(self, pod: IncomingPod, order: Order) -> None:
        """Add a pod; one that is known and has changed is tried again at once."""
        entry = self._entries.get(pod.uid)
        if entry is None:
            entry = _Entry(pod=pod, order=order)
            self._entries[pod.uid] = entry
            self._activate(entry)
        elif entry.pod != pod or entry.order != order:
            entry.pod, entry.order = pod, order
            if entry.place is not QueueState.IN_HAND:
                self._activate(entry)

    def remove(self, uid: str) -> None:
        """Forget a pod, wherever it stands."""
        self._entries.pop(uid, None)
        self._unschedulable.pop(uid, None)

    def pop(self, now: float) -> IncomingPod | None:
        """The pod whose turn it is, in hand from now on; None when none is due."""
        self._awake(now)
        self._drop_stale(self._active)
        if not self._active:
            return None
        _, _, uid = heapq.heappop(self._active)
        entry = self._entries[uid]
        entry.place = QueueState.IN_HAND
        entry.attempts += 1
        entry.changes_seen = self._changes
        return entry.pod

    def failed(self, uid: str, now: float) -> None:
        """The pod in hand found no node: it waits for a change, or backs off if there was one."""
        entry = self._entries.get(uid)
        if entry is None:
            return
        doubled = INITIAL_BACKOFF_SECONDS * 2.0 ** min(entry.attempts - 1, 32)
        entry.backoff_until = now + min(doubled, MAX_BACKOFF_SECONDS)
        entry.since = now
        if entry.changes_seen == self._changes:
            entry.place = QueueState.UNSCHEDULABLE
            self._unschedulable[uid] = entry
        else:
            self._back_off(entry)

    def postpone(self, uid: str, now: float) -> None:
        """The pod in hand failed for no reason of the cluster's: it backs off and comes again."""
        self.failed(uid, now)
        entry = self._entries.get(uid)
        if entry is not None:
            self._back_off(entry)

    def cluster_changed(self, now: float) -> None:
        """Note that unschedulable pods may have a node by now."""
        self._changes += 1
        for entry in list(self._unschedulable.values()):
            if entry.backoff_until <= now:
                self._activate(entry)
            else:
                self._back_off(entry)

    def reconsider(self, uids: Iterable[str]) -> None:
        """The same for some pods only, as when another of their group has come."""
        for uid in uids:
            entry = self._unschedulable.get(uid)
            if entry is not None:
                self._activate(entry)

    def waits_for_change(self) -> bool:
        """Whether any pod is unschedulable as the cluster is."""
        return bool(self._unschedulable)

    def next_time(self, now: float) -> float | None:
        """When ``pop`` may have a pod again by itself: now if it has one; None: never."""
        self._drop_stale(self._active)
        self._drop_stale(self._backing_off)
        if self._active:
            return now
        times = [self._backing_off[0][0]] if self._backing_off else []
        oldest = next(iter(self._unschedulable.values()), None)
        if oldest is not None:
            times.append(oldest.since + UNSCHEDULABLE_SECONDS)
        return min(times, default=None)

    def _awake(self, now: float) -> None:
        """Make active what has waited long enough."""
        self._drop_stale(self._backing_off)
        while self._backing_off and self._backing_off[0][0] <= now:
            self._activate(self._entries[self._backing_off[0][2]])
            self._drop_stale(self._backing_off)
        while self._unschedulable:
            oldest = next(iter(self._unschedulable.values()))
            if oldest.since + UNSCHEDULABLE_SECONDS > now:
                break
            self._activate(oldest)

    def _activate(self, entry: _Entry) -> None:
        entry.place = QueueState.ACTIVE
        self._unschedulable.pop(entry.pod.uid, None)
        heapq.heappush(self._active, (entry.order, self._ticket(entry), entry.pod.uid))

    def _back_off(self, entry: _Entry) -> None:
        entry.place = QueueState.BACKING_OFF
        self._unschedulable.pop(entry.pod.uid, None)
        item = (entry.backoff_until, self._ticket(entry), entry.pod.uid)
        heapq.heappush(self._backing_off, item)

    def _ticket(self, entry: _Entry) -> int:
        self._tickets += 1
        entry.ticket = self._tickets
        return entry.ticket

    def _drop_stale(self, heap: list[_Item]) -> None:
        """Pops until the first item is one that still stands for its pod."""
        while heap:
            _, ticket, uid = heap[0]
            entry = self._entries.get(uid)
            if (
                entry is not None
                and entry.ticket == ticket
                and entry.place is not QueueState.IN_HAND
            ):
                return
            heapq.heappop(heap)
