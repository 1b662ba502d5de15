"""What is logged of an HTTP server's callers: one line for each fault of theirs, and few of them.

Must not hide a fault of our own: those keep their traceback.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final

from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.web import RequestPayloadError

from federation.model.printable import printable

CALLERS_FAULTS: Final = (HttpProcessingError, RequestPayloadError, ConnectionError)
PERIOD_SECONDS: Final = 10.0
LINES_A_PERIOD: Final = 20
SHOWN_CHARACTERS: Final = 200


class HttpLog(logging.LoggerAdapter[logging.Logger]):
    """A logger for aiohttp: of many callers' faults in a short time most are only counted."""

    def __init__(self, logger: logging.Logger, clock: Callable[[], float]) -> None:
        super().__init__(logger)
        self._clock = clock
        self._period_ends = 0.0
        self._lines = 0

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        error = kwargs.get("exc_info")
        if not isinstance(error, CALLERS_FAULTS):
            super().log(level, msg, *args, **kwargs)
        elif not isinstance(error, ConnectionError):
            self.refused(f"no HTTP request: {error}")

    def refused(self, why: str) -> None:
        """A caller sent something that cannot be answered."""
        now = self._clock()
        if now >= self._period_ends:
            if self._lines > LINES_A_PERIOD:
                self.logger.warning("extender: %d more were refused", self._lines - LINES_A_PERIOD)
            self._period_ends, self._lines = now + PERIOD_SECONDS, 0
        self._lines += 1
        if self._lines <= LINES_A_PERIOD:
            self.logger.warning("extender: refused: %s", _shown(why))


def _shown(text: str) -> str:
    """On one line, whatever the caller wrote."""
    return printable(" ".join(text.split())[:SHOWN_CHARACTERS])
