"""Whether the agent sees its cluster as it is: what every watch says of itself, put together.

Must not watch anything, nor be shared between threads: it is told everything on the loop's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from federation.model.errors import Unavailable

# A watch that ends early is open again within a moment: that alone makes nobody blind.
TOLERATED_SECONDS: Final = 5.0
# After that a resource that was found is not lost again at once.
PROOF_SECONDS: Final = 1.0


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


@dataclass(slots=True, kw_only=True)
class _Lost:
    """A loss, when it was noticed, and since when the resource is found again, if it is."""

    loss: Loss
    noticed: float
    found_at: float | None = None


class Sight:
    """The resources of a cluster that are not seen. ``clock`` never goes back."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lost: dict[str, _Lost] = {}
        self._skipped: dict[str, int] = {}

    def lose(self, resource: str, loss: Loss) -> None:
        """The resource is not seen; the first loss dates it, the newest says why."""
        now = self._clock()
        self._believe(now)
        lost = self._lost.setdefault(resource, _Lost(loss=loss, noticed=now))
        lost.loss = Loss(since=min(lost.loss.since, loss.since), why=loss.why)
        lost.found_at = None

    def find(self, resource: str) -> None:
        """Note that the picture of the resource is current again.

        Who was blind for its sake believes it after a moment: a server opens a watch, too, that it
        ends at once because what was seen is too old.
        """
        now, lost = self._clock(), self._lost.get(resource)
        if lost is None:
            return
        if now - lost.noticed < TOLERATED_SECONDS:
            del self._lost[resource]
        elif lost.found_at is None:
            lost.found_at = now

    def skip(self, resource: str, objects: int) -> None:
        """Note how many objects of the resource cannot be read."""
        self._skipped[resource] = objects

    def view(self) -> Visibility:
        """Return the visibility as of now."""
        skipped = sum(self._skipped.values())
        now = self._clock()
        self._believe(now)
        if not self._lost:
            return Visibility(skipped_objects=skipped) if skipped else CURRENT
        return Visibility(
            age_seconds=max(0.0, *(now - lost.loss.since for lost in self._lost.values())),
            lost_seconds=max(0.0, *(now - lost.noticed for lost in self._lost.values())),
            why="; ".join(f"{name}: {self._lost[name].loss.why}" for name in sorted(self._lost)),
            skipped_objects=skipped,
        )

    def _believe(self, now: float) -> None:
        """Stay blind until everything is seen: a loss beside a resource that was found does
        not begin to be tolerated only then.
        """
        proven = {
            name: lost.noticed
            for name, lost in self._lost.items()
            if lost.found_at is not None and now - lost.found_at >= PROOF_SECONDS
        }
        if not proven:
            return
        for name in proven:
            del self._lost[name]
        for lost in self._lost.values():
            lost.noticed = min(lost.noticed, *proven.values())
