"""Whether the agent sees its cluster as it is: what every watch says of itself, put together.

Must not watch anything, nor be shared between threads: it is told everything on the loop's.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from federation.model.errors import Unavailable

# A watch that ends early is open again within a moment: that alone makes nobody blind.
TOLERATED_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """Since when nothing shows that one resource is current, in the clock's seconds, and why."""

    since: float
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Visibility:
    """How good the picture of a cluster is now.

    ``age_seconds`` is for how long nothing has shown that it is current, and ``why``: empty when
    it is current. A quiet watch that ended was noticed later, ``lost_seconds`` ago.
    ``skipped_objects`` cannot be read and are left out.
    """

    age_seconds: float = 0.0
    lost_seconds: float = 0.0
    why: str = ""
    skipped_objects: int = 0

    @property
    def is_current(self) -> bool:
        return not self.why

    @property
    def is_blind(self) -> bool:
        """Whether nothing new may be promised on this picture."""
        return not self.is_current and self.lost_seconds >= TOLERATED_SECONDS

    def check(self) -> None:
        """Raises Unavailable unless the picture is current."""
        if not self.is_current:
            raise Unavailable(
                f"the agent has not seen its cluster for {self.age_seconds:.0f} s: {self.why}"
            )


CURRENT: Final = Visibility()


class Sight:
    """What is not seen of a cluster. ``clock`` never goes back."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        # By resource, with when it was noticed.
        self._losses: dict[str, tuple[Loss, float]] = {}
        self._skipped: dict[str, int] = {}

    def lose(self, resource: str, loss: Loss) -> None:
        """The resource is not seen; the first loss dates it, the newest says why."""
        first, noticed = self._losses.get(resource, (loss, self._clock()))
        since = min(first.since, loss.since)
        self._losses[resource] = Loss(since=since, why=loss.why), noticed

    def find(self, resource: str) -> None:
        """What is known of the resource is current again.

        Who was blind for its sake stays so until everything is seen: what is lost beside it does
        not begin to be tolerated only now.
        """
        _, since = self._losses.pop(resource, (None, math.inf))
        if self._clock() - since >= TOLERATED_SECONDS:
            self._losses = {
                name: (loss, min(noticed, since)) for name, (loss, noticed) in self._losses.items()
            }

    def skip(self, resource: str, objects: int) -> None:
        """So many objects of the resource cannot be read."""
        self._skipped[resource] = objects

    def view(self) -> Visibility:
        """As of now."""
        skipped = sum(self._skipped.values())
        if not self._losses:
            return Visibility(skipped_objects=skipped) if skipped else CURRENT
        now = self._clock()
        return Visibility(
            age_seconds=max(0.0, *(now - loss.since for loss, _ in self._losses.values())),
            lost_seconds=max(0.0, *(now - noticed for _, noticed in self._losses.values())),
            why="; ".join(f"{name}: {self._losses[name][0].why}" for name in sorted(self._losses)),
            skipped_objects=skipped,
        )
