"""How much may move now: so many replicas a minute, and one binding a second.

Must not wait: who asks comes again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

MINUTE: Final = 60.0
# One second's worth may be saved, and one be lent; with what comes evenly no minute has more than
# its due.
BURST: Final = 1.0
REFILL: Final = (MINUTE - 2 * BURST) / MINUTE


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveAllowance:
    """What is left at a time, in seconds of the rate. Whoever takes over begins with nothing."""

    left: float = 0.0
    at: float

    def later(self, now: float) -> MoveAllowance:
        passed = max(0.0, now - self.at)
        return MoveAllowance(left=min(BURST, self.left + passed * REFILL), at=max(now, self.at))

    def taken(self, cost: float) -> MoveAllowance | None:
        """None where nothing is left; what is lacking is lent."""
        return replace(self, left=self.left - cost) if self.left > 0 else None

    def given_back(self, cost: float) -> MoveAllowance:
        """What was taken for a move that came to nothing."""
        return replace(self, left=min(BURST, self.left + cost))


def cost_of(replicas: int, replicas_a_minute: float) -> float:
    """What a binding's move takes: one of many replicas no more than a second."""
    each = MINUTE / replicas_a_minute if replicas_a_minute > 0 else BURST
    return min(BURST, max(1, replicas) * each)
