"""For how long clusters have been silent while somebody listened.

Must not know how agents are heard: callers say which clusters are stale.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

# A control plane that did not look, or could not hear, for longer may have missed everything.
MAX_DEAF_SECONDS = 15.0
# The loss of a control plane is noticed within this time after its last word.
MAX_UNNOTICED_SECONDS = 20.0


class Silence(NamedTuple):
    """Since when a cluster is silent, and when it was first seen to be stale; Unix seconds.

    ``is_left_alone``: it fell silent with the control plane that heard it.
    """

    since: float
    stale_at: float
    is_left_alone: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Silences:
    """The stale clusters by name. Before ``listening_since`` nobody could hear any of them."""

    looked_at: float
    listening_since: float
    silent: Mapping[str, Silence] = field(default_factory=dict)

    @classmethod
    def begun(cls, now: float) -> Silences:
        return cls(looked_at=now, listening_since=now)

    def looked(
        self,
        now: float,
        stale: Collection[str],
        *,
        stale_seconds: float,
        could_hear_at: float,
        left_alone: Collection[str] = (),
    ) -> Silences:
        """Return the silences after a look ``now`` that found ``stale`` agents.

        Those were not heard for ``stale_seconds``. ``could_hear_at`` is when all agents could last
        be heard. After a time without hearing or looking all silence counts anew. So does, once,
        the silence of clusters that are ``left_alone`` and fell silent with their control plane.
        Their agents may have spoken to it for longer, and have to find another one.
        """
        deaf = now - min(self.looked_at, could_hear_at) > MAX_DEAF_SECONDS
        listening_since = now if deaf or now < self.looked_at else self.listening_since
        silent_before = {} if listening_since == now else self.silent
        fresh = Silence(max(now - stale_seconds, listening_since), now)
        silent = {name: silent_before.get(name, fresh) for name in sorted(stale)}
        with_it = now - stale_seconds - MAX_UNNOTICED_SECONDS
        for name in left_alone:
            silence = silent[name]
            if silence.since >= with_it and not silence.is_left_alone:
                silent[name] = Silence(now, silence.stale_at, is_left_alone=True)
        return replace(self, looked_at=now, listening_since=listening_since, silent=silent)

    def lost(self, lost_seconds: float) -> list[str]:
        """Return the clusters that have been silent for so long, by the last look."""
        return [
            name
            for name, silence in self.silent.items()
            if self.looked_at - silence.since >= lost_seconds
        ]
