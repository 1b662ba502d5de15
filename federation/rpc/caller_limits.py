"""What a caller with limits of its own has asked of this control plane: lately, and just now.

Must not know who calls, nor limits that hold for everybody.
"""

from __future__ import annotations

import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from federation.model.errors import LimitExceeded
from federation.services.pace import Pace
from federation.services.values import Principal

# Paces of callers not heard for longest are forgotten: they begin anew.
MOST_CALLERS: Final = 20_000


class LimitedCallers:
    """Counts calls by credential. Belongs to one event loop."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._at_once: Counter[str] = Counter()
        self._paces: OrderedDict[tuple[str, int], Pace] = OrderedDict()

    @contextmanager
    def call(self, principal: Principal) -> Iterator[None]:
        """While a call is served. Raises LimitExceeded, which names the limit."""
        limits, key = principal.limits, principal.credential_id
        if limits.calls_per_second:
            self._spend(principal, limits.calls_per_second)
        if not limits.calls_at_once:
            yield
            return
        if self._at_once[key] >= limits.calls_at_once:
            text = f"the {principal} may have {limits.calls_at_once} calls at once"
            raise LimitExceeded(f"{text}; try again when one has ended", reason="CALLS_AT_ONCE")
        self._at_once[key] += 1
        try:
            yield
        finally:
            self._at_once[key] -= 1
            if not self._at_once[key]:
                del self._at_once[key]

    def _spend(self, principal: Principal, per_second: int) -> None:
        now, key = self._clock(), (principal.credential_id, per_second)
        pace = self._paces.get(key)
        if pace is None:
            pace = self._paces[key] = Pace(at_once=per_second, per_second=per_second, now=now)
            if len(self._paces) > MOST_CALLERS:
                self._paces.popitem(last=False)
        self._paces.move_to_end(key)
        if pace.left_at(now) < 1.0:
            text = f"the {principal} may make {per_second} calls a second"
            raise LimitExceeded(f"{text}; try again later", reason="CALLS_PER_SECOND")
        pace.spend(1.0, now)
