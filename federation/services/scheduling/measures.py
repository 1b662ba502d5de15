"""What is counted of decisions: how they ended, how long they and their phases took.

Must not change what it counts. Belongs to one event loop.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial, wraps
from typing import Any, Final, ParamSpec, TypeVar

from federation.model.errors import FederationError
from federation.runtime.measures import Distribution
from federation.services.scheduling.queue import Attempt, DecisionQueue
from federation.services.values import Scheduled

PHASES: Final = ("read", "decide", "commit")
# How a decision may end, beside its outcomes.
ERROR, CANCELLED, REFUSED = "error", "cancelled", "refused"

P = ParamSpec("P")
T = TypeVar("T")


class DecisionMeasures:
    """``attempts`` are counted by how they ended, ``durations`` are from the queue to the answer,
    ``phases`` those of batches. ``preempted`` are the replicas that others lost to them.
    """

    def __init__(self, queue: DecisionQueue) -> None:
        self.queue = queue
        self.attempts = Counter[str]()
        self.preempted = 0
        self.durations = Distribution()
        self.phases = {phase: Distribution() for phase in PHASES}

    def enqueue(self, *attempts: Attempt) -> None:
        """Has them decided, and counts them once they are answered. Raises LimitExceeded."""
        self.queue.add(*attempts)
        started = time.perf_counter()
        for attempt in attempts:
            attempt.answer.add_done_callback(partial(self._ended, started, attempt))

    def _ended(self, started: float, attempt: Attempt, answer: asyncio.Future[Scheduled]) -> None:
        self.attempts[_result(answer)] += 1
        if not answer.cancelled() and not answer.exception():
            self.preempted += sum(attempt.losses.values())
        self.durations.add(time.perf_counter() - started)


def _result(answer: asyncio.Future[Scheduled]) -> str:
    if answer.cancelled():
        return CANCELLED
    error = answer.exception()
    if error is None:
        return answer.result().record.decision.outcome.lower()
    return REFUSED if isinstance(error, FederationError) else ERROR


def timed(
    phase: str,
) -> Callable[[Callable[P, Awaitable[T]]], Callable[P, Coroutine[Any, Any, T]]]:
    """Adds how long a method took to the phase, in the ``measures`` of its object."""

    def decorated(method: Callable[P, Awaitable[T]]) -> Callable[P, Coroutine[Any, Any, T]]:
        @wraps(method)
        async def measured(*arguments: P.args, **named: P.kwargs) -> T:
            started = time.perf_counter()
            try:
                return await method(*arguments, **named)
            finally:
                owner: Any = arguments[0]
                owner.measures.phases[phase].add(time.perf_counter() - started)

        return measured

    return decorated
