"""Counters of decisions: their results, their durations, and the durations of their phases.

Must not change the attempts. Belongs to one event loop.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial, wraps
from typing import Any, Final, ParamSpec, TypeVar

from federation.model.errors import FederationError
from federation.runtime import spans
from federation.runtime.log_fields import work_on
from federation.runtime.measures import Distribution
from federation.services.scheduling.attempt import Attempt
from federation.services.scheduling.queue import DecisionQueue
from federation.services.values import Scheduled

PHASES: Final = ("read", "decide", "commit")
# The results of attempts that have no outcome.
ERROR, CANCELLED, REFUSED = "error", "cancelled", "refused"

logger = logging.getLogger("federation")

P = ParamSpec("P")
T = TypeVar("T")


class Moment:
    """The beginning of an activity, by the wall clock and by a monotonic clock."""

    def __init__(self) -> None:
        self.unix_ns = time.time_ns()
        self._counter = time.perf_counter()

    def seconds_since(self) -> float:
        return time.perf_counter() - self._counter


class DecisionMeasures:
    """The counters of a pipeline.

    ``attempts`` are counted by result. ``durations`` (seconds) last from the queue to the answer,
    ``phases`` (seconds) are those of batches. ``preempted`` counts replicas that others lost.
    """

    def __init__(self, queue: DecisionQueue) -> None:
        self.queue = queue
        self.attempts = Counter[str]()
        self.preempted = 0
        self.durations = Distribution()
        self.phases = {phase: Distribution() for phase in PHASES}

    def enqueue(self, *attempts: Attempt) -> None:
        """Queue attempts, and count them once they are answered. Raises LimitExceeded."""
        if len(attempts) == 1 and attempts[0].call is not None and not attempts[0].place:
            # The log lines of the call name the decision from here on.
            work_on(decision=attempts[0].id, binding="/".join(attempts[0].key))
        self.queue.add(*attempts)
        started = Moment()
        for attempt in attempts:
            attempt.answer.add_done_callback(partial(self._ended, started, attempt))

    def _ended(self, started: Moment, attempt: Attempt, answer: asyncio.Future[Scheduled]) -> None:
        result = _result(answer)
        self.attempts[result] += 1
        if not answer.cancelled() and not answer.exception():
            self.preempted += sum(attempt.result.losses.values())
        seconds = started.seconds_since()
        self.durations.add(seconds)
        if logger.isEnabledFor(logging.DEBUG):
            fields = {"decision": attempt.id, "binding": "/".join(attempt.key), "result": result}
            logger.debug("decision", extra={"fields": {**fields, "seconds": round(seconds, 6)}})
        if attempt.trace is not None:
            names = {"fedsched__decision": attempt.id, "fedsched__result": result}
            spans.tell("decision", attempt.trace, started.unix_ns, **names)


def _result(answer: asyncio.Future[Scheduled]) -> str:
    if answer.cancelled():
        return CANCELLED
    error = answer.exception()
    if error is None:
        return answer.result().record.decision.outcome.lower()
    return REFUSED if isinstance(error, FederationError) else ERROR


def timed(
    phase: str, *, batch: int = 1
) -> Callable[[Callable[P, Awaitable[T]]], Callable[P, Coroutine[Any, Any, T]]]:
    """Add the duration of a method to a phase in the ``measures`` of its object.

    It is also a span in the traces of the attempts in the argument at the position ``batch``.
    """

    def decorated(method: Callable[P, Awaitable[T]]) -> Callable[P, Coroutine[Any, Any, T]]:
        @wraps(method)
        async def measured(*arguments: P.args, **named: P.kwargs) -> T:
            started = Moment()
            try:
                return await method(*arguments, **named)
            finally:
                owner: Any = arguments[0]
                owner.measures.phases[phase].add(started.seconds_since())
                if spans.are_told():
                    attempts: Any = arguments[batch]
                    _tell(phase, attempts, started)

        return measured

    return decorated


def _tell(phase: str, attempts: Sequence[Attempt], started: Moment) -> None:
    for attempt in attempts:
        if attempt.trace is not None:
            together = {"fedsched__batch": len(attempts)}
            spans.tell(f"decision.{phase}", attempt.trace, started.unix_ns, **together)
