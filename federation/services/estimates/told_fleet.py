"""A fleet as another process knows it by news: what estimates are made of, and nothing else.

Must not ask for anything; what it was not told has not happened.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from federation.capacity.fleet_cells import FleetCells
from federation.capacity.fleet_reports import FleetCapacity
from federation.model.cluster import ClusterState
from federation.model.pools.values import Pools
from federation.model.positions import UNMOVED, Moves
from federation.model.reservations import Outstanding
from federation.services.estimates.fleet_news import FleetNews
from federation.services.fleet.known_estimates import PromisedByPosition
from federation.services.fleet.snapshot import generation_of

# More that came and left at once are not worth moving all others one by one.
MOST_MOVED = 64


class ToldFleet:
    """Implements ``EstimatedFleet``; what it consists of is made anew where news change it."""

    def __init__(self) -> None:
        self.names: tuple[str, ...] = ()
        self.generation = generation_of(())
        self.positions: Mapping[str, int] = MappingProxyType({})
        self.capacity = FleetCapacity.of(())
        self.reported = FleetCells.of(())
        self.outstanding: PromisedByPosition = MappingProxyType({})
        self._pools: dict[str, Pools | None] = {}
        self._outstanding: dict[str, tuple[Outstanding, ...]] = {}

    def take(self, news: FleetNews) -> None:
        """All of it has happened."""
        came = [each.name for each in news.clusters if each.name not in self.positions]
        moves = self._moves(news, came) if came or news.left else UNMOVED
        for name in news.left:
            del self._pools[name]
            self._outstanding.pop(name, None)
        states = {self.positions[each.name]: each.state for each in news.clusters}
        pools: dict[int, Pools | None] = {}
        for each in news.clusters:
            if each.pools is not None:
                (self._pools[each.name],) = each.pools
                pools[self.positions[each.name]] = self._pools[each.name]
        self._take_outstanding(news, is_moved=moves is not UNMOVED)
        if len(moves.left) + len(moves.taken) > MOST_MOVED:
            self._build(states, moves)
            return
        self.capacity = self.capacity.with_clusters(states, moves)
        if moves is not UNMOVED:
            self.reported = self.reported.after(moves)
        if pools:
            self.reported = self.reported.with_clusters(pools)

    def _moves(self, news: FleetNews, came: list[str]) -> Moves:
        left = sorted(self.positions[name] for name in news.left)
        gone = frozenset(news.left)
        self.names = tuple(sorted([*(name for name in self.names if name not in gone), *came]))
        self.positions = {name: position for position, name in enumerate(self.names)}
        self.generation = generation_of(self.names)
        return Moves(left=left, taken=sorted(self.positions[name] for name in came))

    def _take_outstanding(self, news: FleetNews, *, is_moved: bool) -> None:
        changed = [each for each in news.clusters if each.outstanding is not None]
        for each in changed:
            (self._outstanding[each.name],) = each.outstanding or ((),)
        if changed or is_moved:
            self.outstanding = {
                self.positions[name]: promised
                for name, promised in self._outstanding.items()
                if promised
            }

    def _build(self, states: Mapping[int, ClusterState], moves: Moves) -> None:
        every = list(moves.items(self.capacity.states, [states[c] for c in moves.taken]))
        for position, state in states.items():
            every[position] = state
        self.capacity = FleetCapacity.of(every)
        self.reported = FleetCells.of(self._pools[name] for name in self.names)
