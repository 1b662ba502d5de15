"""Repeated failures of work, logged when they begin, change and end, and faults of observers.

Must not decide what is a failure, nor end the work.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from logging import WARNING, Logger, getLogger
from typing import Final, ParamSpec

from federation.model.errors import FederationError, PluginFailed

# Causes remembered.
MAX_CAUSES = 100
# The pause between logs of failures that happen to one of many.
TOLD_AGAIN_SECONDS = 60.0


@dataclass(slots=True)
class _Told:
    """The time when a cause was logged last, and how often it was met since."""

    at: float
    again: int = 0


class Trouble:
    """Failures of one kind of work; ``message`` says what is not done, at ``level`` if expected.

    The same cause is logged again after ``again_seconds``, or after a success; failures in between
    are counted.
    """

    def __init__(
        self,
        logger: Logger,
        message: str,
        *,
        level: int = WARNING,
        again_seconds: float = math.inf,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._logger = logger
        self._message = message
        self._level = level
        self._again_seconds = again_seconds
        self._clock = clock
        self._told: dict[str, _Told] = {}

    def met(
        self, error: Exception, *, stack_of: BaseException | None = None, **fields: object
    ) -> None:
        """Log a failure, unless its cause was logged; an unexpected one with its stack.

        An expected error is logged with the stack of ``stack_of``, its cause.
        """
        is_expected = isinstance(error, FederationError)
        raised = stack_of if is_expected else error
        cause = str(error) if raised is None else _place_of(raised)
        now = self._clock()
        last = self._told.get(cause)
        if last is not None and now - last.at < self._again_seconds:
            last.again += 1
            return
        if len(self._told) >= MAX_CAUSES:
            self._told.clear()
        self._told[cause] = _Told(now)
        extra = {"fields": {**fields, "why": str(error), **_counted(last.again if last else 0)}}
        if is_expected:
            self._logger.log(self._level, self._message, exc_info=stack_of, extra=extra)
        else:
            self._logger.error(self._message, exc_info=error, extra=extra)

    def over(self) -> None:
        """Note that the work succeeded, and log that if it had failed."""
        if self._told:
            again = sum(cause.again for cause in self._told.values())
            self._told.clear()
            self._logger.info("over: %s", self._message, extra={"fields": _counted(again)})


PLUGIN_FAILURES: Final = Trouble(
    getLogger(__name__), "scheduler plugin failed", again_seconds=TOLD_AGAIN_SECONDS
)


def tell_plugin_failure(error: PluginFailed) -> None:
    """Log a failure of a plugin with the plugin's own stack, if it raised."""
    PLUGIN_FAILURES.met(error, stack_of=error.__cause__)


def _counted(again: int) -> dict[str, int]:
    return {"again": again} if again else {}


def _place_of(error: BaseException) -> str:
    """Return the kind of an error and its place, because its text may differ each time."""
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    place = f"{frame.tb_frame.f_code.co_filename}:{frame.tb_lineno}" if frame else ""
    return f"{type(error).__name__} {place}"


P = ParamSpec("P")

_FAILURES: Final = Trouble(
    logging.getLogger(__name__), "an observer failed", again_seconds=TOLD_AGAIN_SECONDS
)


def tell(observers: Iterable[Callable[P, None]], *args: P.args, **kwargs: P.kwargs) -> None:
    """Call all observers; one that raises stops neither the others nor the caller."""
    for observer in observers:
        try:
            observer(*args, **kwargs)
        except Exception as error:  # noqa: BLE001 - told; what is done stays done
            _FAILURES.met(error, observer=repr(observer))
