"""Who waits for a decision, and who is decided together.

Must not decide anything. Belongs to one event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from federation.model.errors import Conflict, LimitExceeded
from federation.model.placement import Binding
from federation.services.scheduling.write import Key
from federation.services.values import Once, Scheduled

MAX_WAITING = 10_000
LEAST_BATCH, MAX_BATCH = 16, 200
# What a batch may take to decide, in CPU seconds: everybody in it waits for the whole.
BATCH_SECONDS = 0.1
# After so many tries a request takes all locks first: then nobody can win against it.
TRIES_WITHOUT_LOCKS = 3
MAX_TRIES = 6

# Its kind, and which one.
Mark: TypeAlias = tuple[str, ...]


@dataclass(kw_only=True, eq=False)
class Request:
    """A binding that somebody waits for a decision about."""

    binding: Binding
    adopt: bool
    wait: bool
    once: Once | None
    answer: asyncio.Future[Scheduled]
    tries: int = 0
    has_lost_connection: bool = False

    @property
    def key(self) -> Key:
        return self.binding.namespace, self.binding.name

    @cached_property
    def marks(self) -> frozenset[Mark]:
        """Requests that share one must see what came of each other: the binding, the idempotency
        key, a group of workloads that go together or apart.
        """
        binding, placement = self.binding, self.binding.placement
        marks: set[Mark] = {("binding", *self.key)}
        if self.once is not None:
            marks.add(("once", self.once.caller, self.once.key))
        for label in (placement.workload_affinity_key, placement.workload_anti_affinity_key):
            if label and label in binding.labels:
                marks.add(("group", binding.namespace, label, binding.labels[label]))
        return frozenset(marks)

    @property
    def is_hindered(self) -> bool:
        """Whether others kept winning against it."""
        return self.tries >= TRIES_WITHOUT_LOCKS

    def fail(self, error: Exception) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)

    def succeed(self, scheduled: Scheduled) -> None:
        if not self.answer.done():
            self.answer.set_result(scheduled)


# Requests by their bindings' names.
Batch = dict[Key, Request]


def marks_of(batch: Batch) -> frozenset[Mark]:
    return frozenset[Mark]().union(*(each.marks for each in batch.values()))


class Waiting:
    """Requests in the order they came, but by descending priority."""

    def __init__(self) -> None:
        self._requests: list[Request] = []
        self._seconds_each = BATCH_SECONDS / 10

    def add(self, request: Request) -> None:
        """Raises LimitExceeded when too many wait."""
        if len(self._requests) >= MAX_WAITING:
            raise LimitExceeded("Too many bindings wait for a decision; try again later.")
        self._requests.append(request)

    def again(self, requests: Iterable[Request]) -> None:
        """Decide these once more, before all that came later."""
        again = []
        for request in requests:
            request.tries += 1
            if request.tries < MAX_TRIES:
                again.append(request)
            else:
                name = request.binding.key
                request.fail(
                    Conflict(f"Binding {name!r} was changed by others meanwhile: try again.")
                )
        self._requests[:0] = again

    def took(self, seconds: float, decisions: int) -> None:
        """So many decisions took so many CPU seconds."""
        if decisions:
            self._seconds_each += (seconds / decisions - self._seconds_each) / 4

    def take(self, on_their_way: frozenset[Mark], *, every: bool = False) -> Batch:
        """As many as can be decided in time, that share no mark with each other, nor with what is
        being committed. While nothing is, half of them, unless ``every``: the other half is decided
        while this one is committed.

        One that others kept winning against goes alone.
        """
        self._requests = [each for each in self._requests if not each.answer.done()]
        self._requests.sort(key=lambda each: -each.binding.priority)
        for request in self._requests:
            if request.is_hindered and request.marks.isdisjoint(on_their_way):
                self._requests.remove(request)
                return {request.key: request}
        room = self._room(every=every or bool(on_their_way))
        batch: Batch = {}
        left = []
        taken = set(on_their_way)
        for request in self._requests:
            if len(batch) < room and request.marks.isdisjoint(taken):
                batch[request.key] = request
            else:
                left.append(request)
            # What shares a mark stays in order, even behind one that is not taken.
            taken |= request.marks
        self._requests = left
        return batch

    def _room(self, *, every: bool) -> int:
        in_time = int(BATCH_SECONDS / self._seconds_each)
        wanted = len(self._requests) if every else len(self._requests) // 2
        return min(MAX_BATCH, max(LEAST_BATCH, min(in_time, wanted)))
