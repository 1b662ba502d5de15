"""Waiting between tries: exponential, with full jitter, up to a cap.

Must not sleep: callers do, so that they can be woken.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

FIRST_SECONDS: Final = 1.0
CAP_SECONDS: Final = 30.0


def uniform(ceiling: float) -> float:
    """Anything between 0 and ``ceiling``."""
    return random.uniform(0.0, ceiling)  # noqa: S311 - jitter, no secret


class Backoff:
    """Full jitter: anything between nothing and the ceiling, so that a herd spreads out.

    ``uniform`` draws from 0 up to its argument.
    """

    def __init__(
        self,
        uniform: Callable[[float], float] = uniform,
        *,
        first_seconds: float = FIRST_SECONDS,
        cap_seconds: float = CAP_SECONDS,
    ) -> None:
        self._uniform = uniform
        self._first_seconds = first_seconds
        self._cap_seconds = cap_seconds
        self._ceiling_seconds = first_seconds

    def next_seconds(self) -> float:
        """How long to wait before the next try; the ceiling doubles."""
        ceiling = self._ceiling_seconds
        self._ceiling_seconds = min(2 * ceiling, self._cap_seconds)
        return self._uniform(ceiling)

    def within(self, seconds: float) -> float:
        """Some time up to that, which others draw too."""
        return self._uniform(seconds)

    def reset(self) -> None:
        """The last try was good."""
        self._ceiling_seconds = self._first_seconds
