"""What is known of a whole fleet: made when somebody asks, out of what was known of an earlier one.

Must not change what a fleet answers: what is not known is made anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from federation.capacity.assignments import Assignment, Held
from federation.capacity.contention import Contention
from federation.capacity.fleet_cells import FleetCells
from federation.model.pools.values import Pools
from federation.model.positions import GONE, Moves

# So many moves are made up for rather than cells made anew.
_MOST_MOVES: Final = 32


@dataclass(slots=True, eq=False)
class KnownCells:
    """Cells of all clusters, made when somebody asks, out of an earlier fleet's.

    ``known`` has those of an earlier fleet, and what changed or moved since: one value, as several
    threads may read a fleet.
    """

    known: tuple[FleetCells, tuple[Moves | frozenset[int], ...]] | None = None

    def after(self, changed: Iterable[int]) -> KnownCells:
        if self.known is None:
            return KnownCells()
        cells, later = self.known
        newest = later[-1] if later else None
        if isinstance(newest, frozenset):
            return KnownCells((cells, (*later[:-1], newest.union(changed))))
        return KnownCells((cells, (*later, frozenset(changed))))

    def moved(self, moves: Moves) -> KnownCells:
        if self.known is None or len(self.known[1]) >= _MOST_MOVES:
            return KnownCells()
        cells, later = self.known
        return KnownCells((cells, (*later, moves)))

    def cells(self, size: int, pools_at: Callable[[int], Pools | None]) -> FleetCells:
        """The cells of so many clusters, whose pools are asked for where they are not known."""
        if self.known is None:
            cells = FleetCells.of(pools_at(position) for position in range(size))
        else:
            cells, later = self.known
            stale = set[int]()
            for change in later:
                if isinstance(change, Moves):
                    moved_c = change.positions(len(cells))
                    stale = {int(moved_c[c]) for c in stale} - {GONE}
                    cells = cells.after(change)
                else:
                    stale |= change
            if stale:
                cells = cells.with_clusters({c: pools_at(c) for c in sorted(stale)})
        self.known = cells, ()
        return cells


@dataclass(slots=True, eq=False)
class KnownContention:
    """What is outstanding in all clusters by kind, made when somebody asks, out of what was known.

    ``known`` has that of an earlier fleet, and the clusters that changed since: one value, as
    several threads may read a fleet.
    """

    known: tuple[Contention, frozenset[int]] | None = None

    def after(self, changed: Iterable[int]) -> KnownContention:
        if self.known is None:
            return KnownContention()
        contention, stale = self.known
        return KnownContention((contention, stale.union(changed)))

    def with_more(self, more: Mapping[int, Sequence[Assignment]]) -> KnownContention:
        if self.known is None:
            return KnownContention()
        contention, stale = self.known
        added = {position: [each.contending for each in every] for position, every in more.items()}
        return KnownContention((contention.with_more(added), stale))

    def contention(self, held: Sequence[Held | None]) -> Contention:
        """All that is outstanding in clusters that hold that."""
        if self.known is None:
            found, stale = Contention(size=len(held)), frozenset(range(len(held)))
        else:
            found, stale = self.known
            found = found.without(stale) if stale else found
        found = found.with_more(
            {
                c: [each.contending for each in here.every]
                for c in sorted(stale)
                if (here := held[c]) is not None
            }
        )
        self.known = found, frozenset()
        return found
