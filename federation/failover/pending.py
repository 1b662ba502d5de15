"""For how long pods of bindings have been on no node in clusters that report them.

Must not know how reports are read, nor decide where else they go.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from federation.model.placement import BindingName

# A binding and a cluster.
SharePlace: TypeAlias = tuple[BindingName, str]


class Pending(NamedTuple):
    """Since when at least so many pods are on no node, in every look; Unix seconds."""

    since: float
    replicas: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingShares:
    """What was pending in each look until now. Whoever begins to look knows of nothing."""

    shares: Mapping[SharePlace, Pending] = field(default_factory=dict)

    def looked(self, now: float, found: Mapping[SharePlace, int]) -> PendingShares:
        """As found ``now``: what is not in there has its nodes, or is not to be seen."""
        return PendingShares(
            shares={
                place: self._seen(place, replicas, now)
                for place, replicas in found.items()
                if replicas > 0
            }
        )

    def due(self, now: float, seconds: float) -> dict[SharePlace, Pending]:
        """What was pending for so long, the longest first."""
        long = {at: each for at, each in self.shares.items() if now - each.since >= seconds}
        return dict(sorted(long.items(), key=lambda each: (each[1].since, each[0])))

    def _seen(self, place: SharePlace, replicas: int, now: float) -> Pending:
        before = self.shares.get(place, Pending(now, replicas))
        return Pending(before.since, min(before.replicas, replicas))
