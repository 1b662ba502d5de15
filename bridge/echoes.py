"""Which promised replicas a cluster without an agent has by now, as far as Karmada was told.

Pure. ``aggregatedStatus`` has no time: it counts once the cluster's own totals are newer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from federation.model.echoes import Interest
from federation.model.shapes import Echo

# Karmada collects a ready cluster's status every 10 s, and writes it when it is another.
COLLECTED_SECONDS: Final = 30.0


class _Told(NamedTuple):
    ready: int
    totals: int
    at: float


class Evidence:
    """What is ready in one cluster, by binding. ``now`` is of a clock that does not go back."""

    def __init__(self) -> None:
        self._totals = 0
        self._waiting: dict[str, _Told] = {}
        self._counted: dict[str, int] = {}

    def totals_changed(self) -> None:
        """The cluster's totals are others: what was told before is in them."""
        self._totals += 1

    def tell(self, binding: str, ready: int, now: float) -> bool:
        """So many replicas of a binding are ready; whether that is news."""
        known = self._waiting.get(binding)
        if ready == (known.ready if known else self._counted.get(binding, 0)):
            return False
        self._waiting.pop(binding, None)
        if ready <= self._counted.get(binding, 0):
            # What is gone is not there any more, whatever the totals say.
            self._counted[binding] = ready
        else:
            self._waiting[binding] = _Told(ready, self._totals, now)
        return True

    def has(self, binding: str) -> bool:
        """Whether some of its replicas count as there."""
        return bool(self._counted.get(binding))

    def count(self, now: float, *, is_ready: bool) -> bool:
        """Count what the totals have by now; whether that was more than before."""
        due = {
            binding: told.ready
            for binding, told in self._waiting.items()
            if told.totals < self._totals or (is_ready and now - told.at >= COLLECTED_SECONDS)
        }
        for binding in due:
            del self._waiting[binding]
        self._counted.update(due)
        return bool(due)

    def echoes(self, interests: Mapping[str, Interest]) -> Iterator[Echo]:
        """Of the newest shape of each binding; sets of components cannot be told apart."""
        for binding, interest in interests.items():
            ready = self._counted.get(binding, 0)
            shapes = [each for each in interest.shapes if not each.component]
            if ready and shapes:
                yield Echo(binding=binding, shape=shapes[0].shape, bound=ready)
