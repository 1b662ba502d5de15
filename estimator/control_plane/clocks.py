"""How far the clocks of control planes are from the agent's, and which clock is likely wrong.

Must not decide which control plane is dialled next.
"""

from __future__ import annotations

from typing import Final

TOLERATED_CLOCK_SECONDS: Final = 5.0


class PlaneClocks:
    """By how many seconds the agent's clock is ahead of each control plane's, by endpoint."""

    def __init__(self) -> None:
        self._ahead_seconds: dict[str, float] = {}
        self._dialled = ""

    def dial(self, endpoint: str) -> None:
        """Take what is noted next as told by this control plane."""
        self._dialled = endpoint

    def note(self, ahead_seconds: float) -> None:
        """The agent's clock is so far ahead of the control plane's that was dialled."""
        self._ahead_seconds[self._dialled] = ahead_seconds

    def differing(self) -> list[str]:
        """Return an explanation for each control plane whose clock is another one."""
        return [
            self.explain(endpoint)
            for endpoint, seconds in sorted(self._ahead_seconds.items())
            if abs(seconds) > TOLERATED_CLOCK_SECONDS
        ]

    def explain(self, endpoint: str | None = None) -> str:
        """Return how a control plane's clock differs, and which one is wrong; else the dialled."""
        explained = self._dialled if endpoint is None else endpoint
        ahead_seconds = self._ahead_seconds.get(explained)
        if ahead_seconds is None:
            return ""
        plane = explained or "the control plane"
        way = "ahead of" if ahead_seconds > 0 else "behind"
        text = f"this clock is {abs(ahead_seconds):.0f} s {way} the control plane's"
        if explained:
            text += f" at {explained}"
        like_agent, like_plane = [], []
        for another, other_seconds in sorted(self._ahead_seconds.items()):
            if another == explained:
                continue
            if abs(other_seconds) <= TOLERATED_CLOCK_SECONDS:
                like_agent.append(another)
            elif abs(other_seconds - ahead_seconds) <= TOLERATED_CLOCK_SECONDS:
                like_plane.append(another)
        if like_agent and not like_plane:
            agreeing = ", ".join(like_agent)
            return f"{text}, and agrees with that at {agreeing}: the clock at {plane} is wrong"
        if like_plane and not like_agent:
            agreeing = ", ".join(like_plane)
            return f"{text}, which agrees with that at {agreeing}: this clock is wrong"
        return f"{text}: check which of them is wrong"
