"""What keeps happening to work that is done again and again: told when it begins, changes, ends.

Must not decide what is trouble, nor end the work.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from logging import Logger

from federation.model.errors import FederationError

# Causes remembered.
MAX_CAUSES = 100
# Of what happens to one of many, while others succeed.
TOLD_AGAIN_SECONDS = 60.0


class Trouble:
    """Of one kind of work; ``message`` says what does not get done.

    The same cause is told again after ``again_seconds``, or when it was over in between.
    """

    def __init__(
        self,
        logger: Logger,
        message: str,
        *,
        again_seconds: float = math.inf,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._logger = logger
        self._message = message
        self._again_seconds = again_seconds
        self._clock = clock
        self._told_at: dict[str, float] = {}

    def met(self, error: Exception, **fields: object) -> None:
        """It happened, perhaps again; what nobody expected is told with its stack."""
        is_expected = isinstance(error, FederationError)
        cause = str(error) if is_expected else type(error).__name__
        now = self._clock()
        if now - self._told_at.get(cause, -math.inf) < self._again_seconds:
            return
        if len(self._told_at) >= MAX_CAUSES:
            self._told_at.clear()
        self._told_at[cause] = now
        extra = {"fields": {**fields, "why": str(error)}}
        if is_expected:
            self._logger.warning(self._message, extra=extra)
        else:
            self._logger.error(self._message, exc_info=error, extra=extra)

    def over(self) -> None:
        """It worked this time."""
        if self._told_at:
            self._told_at.clear()
            self._logger.info("over: %s", self._message)
