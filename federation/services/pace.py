"""Limits of one caller: a pace, and a fair share of a limit that many use.

Must not wait, nor count calls itself; the time comes as an argument.
"""

from __future__ import annotations

import math

from federation.model.errors import LimitExceeded


class Pace:
    """What is left of it may be less than nothing: then more time has to pass."""

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
        """In how many seconds what is spent will be earned; never, where nothing is."""
        self._left = self.left_at(now) - amount
        if self._left >= 0:
            return 0.0
        return -self._left / self._per_second if self._per_second else math.inf


def check_share(own: int, total: int, limit: int, what: str) -> None:
    """One more of ``what`` for an actor that has ``own`` of the ``total``.

    Raises LimitExceeded. The first one is always within the share.
    """
    share = max(1, (limit - (total - own)) // 2)
    if own >= share:
        raise LimitExceeded(
            f"this caller has {own} {what} at once, which is half of those that others leave free "
            f"of {limit}: end one, or try again later"
        )
