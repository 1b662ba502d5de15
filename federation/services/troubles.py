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
# Of what happens to one of many, while others succeed.
TOLD_AGAIN_SECONDS = 60.0


@dataclass(slots=True)
class _Told:
    """When a cause was told last, and how often it was met since."""

    at: float
    again: int = 0


class Trouble:
    """Of one kind of work; ``message`` says what does not get done, at ``level`` if expected.

    The same cause is told again after ``again_seconds``, or when it was over in between; what
    comes meanwhile is counted.
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
        """It happened, perhaps again; what nobody expected is told with its stack.

        Of an expected error, that of ``stack_of`` is told, which it was made of.
        """
        is_expected = isinstance(error, FederationError)
        raised = stack_of if is_expected else error
        cause = str(error) if raised is None else _place_of(raised)
        now = self._clock()
        told = self._told.get(cause)
        if told is not None and now - told.at < self._again_seconds:
            told.again += 1
            return
        if len(self._told) >= MAX_CAUSES:
            self._told.clear()
        self._told[cause] = _Told(now)
        extra = {"fields": {**fields, "why": str(error), **_counted(told.again if told else 0)}}
        if is_expected:
            self._logger.log(self._level, self._message, exc_info=stack_of, extra=extra)
        else:
            self._logger.error(self._message, exc_info=error, extra=extra)

    def over(self) -> None:
        """It worked this time."""
        if self._told:
            again = sum(each.again for each in self._told.values())
            self._told.clear()
            self._logger.info("over: %s", self._message, extra={"fields": _counted(again)})


PLUGIN_FAILURES: Final = Trouble(
    getLogger(__name__), "scheduler plugin failed", again_seconds=TOLD_AGAIN_SECONDS
)


def tell_plugin_failure(error: PluginFailed) -> None:
    """With what the plugin raised, if it did: who wrote it needs to see where."""
    PLUGIN_FAILURES.met(error, stack_of=error.__cause__)


def _counted(again: int) -> dict[str, int]:
    return {"again": again} if again else {}


def _place_of(error: BaseException) -> str:
    """The kind of an error and where it was raised: what it says may differ each time."""
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
    """Each of them; one that raises keeps no other from being told, nor whoever tells."""
    for observer in observers:
        try:
            observer(*args, **kwargs)
        except Exception as error:  # noqa: BLE001 - told; what is done stays done
            _FAILURES.met(error, observer=repr(observer))
