"""Limits of one caller: a pace, and a fair share of a limit that many use.

Must not wait, nor count calls itself; the time comes as an argument.
"""

from __future__ import annotations

import math

from federation.model.errors import LimitExceeded


class Pace:
    """An allowance that grows with time; it may be negative, until more time has passed."""

    def __init__(self, *, at_once: float, per_second: float, now: float) -> None:
        self._at_once = at_once
        self._per_second = per_second
        self._left = at_once
        self._at = now

    def left_at(self, now: float) -> float:
        earned = (now - self._at) * self._per_second
        self._left = min(self._left + earned, self._at_once)
        self._at = now
        return self._left

    def spend(self, amount: float, now: float) -> float:
        """Spend an amount; return in how many seconds it will be earned, infinity: never."""
        self._left = self.left_at(now) - amount
        if self._left >= 0:
            return 0.0
        return -self._left / self._per_second if self._per_second else math.inf


def check_share(own: int, total: int, limit: int, what: str) -> None:
    """Check that a caller with ``own`` of the ``total`` may have one more of ``what``.

    Raises LimitExceeded. The first one is always within the share.
    """
    share = max(1, (limit - (total - own)) // 2)
    if own >= share:
        raise LimitExceeded(
            f"this caller has {own} {what} at once, which is half of those that others leave free "
            f"of {limit}: end one, or try again later"
        )
