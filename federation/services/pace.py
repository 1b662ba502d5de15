"""Limits of callers: a pace, and shares of a limit that many use.

Must not wait; the time comes as an argument.
"""

from __future__ import annotations

import math
from collections import Counter

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


class Shares:
    """The parts of a limit that keys have: at most ``limit`` of ``what`` at once.

    If it ``is_fair``, all keys share it: a key may have one more while it has less than is free.
    One key alone has half, and each of n keys has a part of n + 1. Otherwise each key has the limit
    for itself. Belongs to one event loop.
    """

    def __init__(self, limit: int, what: str, *, is_fair: bool = True) -> None:
        self.limit = limit
        self._what = what
        self._is_fair = is_fair
        self._by_key = Counter[str]()
        self._total = 0

    @property
    def used(self) -> int:
        """Count what is used: of a limit that each key has for itself, by the greatest user."""
        return self._total if self._is_fair else max(self._by_key.values(), default=0)

    def check(self, key: str) -> None:
        """Check that a key may have one more. Raises LimitExceeded."""
        own, limit = self._by_key[key], self.limit
        if not self._is_fair:
            if own >= limit:
                raise LimitExceeded(f"{limit} {self._what} are served already; try again later")
        elif self._total >= limit:
            raise LimitExceeded(f"{limit} {self._what} are served already; try again later")
        elif own and own >= limit - self._total:
            raise LimitExceeded(
                f"this caller has {own} {self._what} at once, which is half of those that others "
                f"leave free of {limit}: end one, or try again later"
            )

    def take(self, key: str) -> None:
        """Take one more for a key. Raises LimitExceeded."""
        self.check(key)
        self._by_key[key] += 1
        self._total += 1

    def give_back(self, key: str) -> None:
        """Give back one that the key took."""
        self._total -= 1
        self._by_key[key] -= 1
        if not self._by_key[key]:
            del self._by_key[key]
