"""How much may move now: a number of replicas a minute, and one binding a second.

Must not wait: callers come again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

MINUTE: Final = 60.0
# One second's worth may be saved, and one be lent. With the refill no minute exceeds the rate.
BURST: Final = 1.0
REFILL: Final = (MINUTE - 2 * BURST) / MINUTE


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveAllowance:
    """The allowance at a time, in seconds of the rate. A new holder of the duty begins with 0."""

    left: float = 0.0
    at: float

    def later(self, now: float) -> MoveAllowance:
        passed = max(0.0, now - self.at)
        return MoveAllowance(left=min(BURST, self.left + passed * REFILL), at=max(now, self.at))

    def taken(self, cost: float) -> MoveAllowance | None:
        """Take a cost, which may be lent in part; None if nothing is left."""
        return replace(self, left=self.left - cost) if self.left > 0 else None

    def given_back(self, cost: float) -> MoveAllowance:
        """Give back the cost of a move that was not made."""
        return replace(self, left=min(BURST, self.left + cost))


def cost_of(replicas: int, replicas_a_minute: float) -> float:
    """Return the cost of a binding's move in seconds, at most one."""
    seconds = MINUTE / replicas_a_minute if replicas_a_minute > 0 else BURST
    return min(BURST, max(1, replicas) * seconds)
