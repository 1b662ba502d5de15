"""What estimates are made of, cluster by cluster, and what of it is news to another process.

Must not estimate anything, nor know how news travel.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple

from federation.model.cluster import ClusterState
from federation.model.pools.values import Pools
from federation.model.reservations import Outstanding
from federation.services.fleet.registry import FleetOwner


class ClusterNews(NamedTuple):
    """A cluster as it is now. ``pools`` and ``outstanding`` count only where they are news, each in
    a tuple of its own then.
    """

    name: str
    state: ClusterState
    pools: tuple[Pools | None] | None
    outstanding: tuple[tuple[Outstanding, ...]] | None


class FleetNews(NamedTuple):
    """What changed in a fleet: clusters that left, and those that came or are not as they were."""

    left: Sequence[str] = ()
    clusters: Sequence[ClusterNews] = ()


class _Told(NamedTuple):
    pools: Pools | None
    outstanding: tuple[Outstanding, ...]


class NewsOfFleet:
    """What one listener has not been told yet. Belongs to the fleet's event loop."""

    def __init__(self, fleet: FleetOwner) -> None:
        self._fleet = fleet
        self._changed = fleet.changed.followed()
        self._told: dict[str, _Told] = {}

    def begin_anew(self) -> None:
        """For a listener that knows nothing."""
        self._told.clear()
        self._changed.clear()
        self._changed.update(self._fleet.snapshot.names)

    def __len__(self) -> int:
        """How many clusters there may be news of."""
        return len(self._changed)

    def take(self, most: int) -> FleetNews:
        """News of so many clusters; told from now on."""
        left, clusters = [], []
        for name in list(islice(self._changed, most)):
            self._changed.discard(name)
            if not self._fleet.has(name):
                if self._told.pop(name, None) is not None:
                    left.append(name)
                continue
            told = self._told.get(name)
            pools, outstanding = self._fleet.pools(name), self._fleet.ledger(name).outstanding()
            self._told[name] = _Told(pools, outstanding)
            clusters.append(
                ClusterNews(
                    name,
                    self._fleet.known(name).state,
                    None if told and told.pools is pools else (pools,),
                    None if told and told.outstanding is outstanding else (outstanding,),
                )
            )
        return FleetNews(left, clusters)
