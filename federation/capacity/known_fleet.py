"""Lazy columns of a whole fleet: computed on the first read, from those of an earlier fleet.

Must not change an answer: without an earlier fleet all columns are computed.
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
from federation.model.reservations import Outstanding

# Moves of clusters that are replayed; after more, all cells are made again.
_MAX_MOVES: Final = 32


@dataclass(slots=True, eq=False)
class LazyCells:
    """The cells of all clusters, made on the first read.

    ``earlier`` has the cells of an earlier fleet, and the changes and moves since. It is replaced
    as one value, because several threads may read a fleet.
    """

    earlier: tuple[FleetCells, tuple[Moves | frozenset[int], ...]] | None = None

    def after(self, changed: Iterable[int]) -> LazyCells:
        """Follow changes of the pools at some positions."""
        if self.earlier is None:
            return LazyCells()
        cells, later = self.earlier
        newest = later[-1] if later else None
        if isinstance(newest, frozenset):
            return LazyCells((cells, (*later[:-1], newest.union(changed))))
        return LazyCells((cells, (*later, frozenset(changed))))

    def moved(self, moves: Moves) -> LazyCells:
        """Follow clusters that left and joined."""
        if self.earlier is None or len(self.earlier[1]) >= _MAX_MOVES:
            return LazyCells()
        cells, later = self.earlier
        return LazyCells((cells, (*later, moves)))

    def cells(self, size: int, pools_at: Callable[[int], Pools | None]) -> FleetCells:
        """Return the cells of ``size`` clusters; ``pools_at`` has the pools that changed."""
        if self.earlier is None:
            cells = FleetCells.of(pools_at(position) for position in range(size))
        else:
            cells, later = self.earlier
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
        self.earlier = cells, ()
        return cells


@dataclass(slots=True, eq=False)
class LazyContention:
    """All outstanding replicas of a fleet by kind, summed on the first read.

    ``earlier`` has the sums of an earlier fleet, and the clusters that changed since. It is
    replaced as one value, because several threads may read a fleet.
    """

    earlier: tuple[Contention, frozenset[int]] | None = None

    def after(self, changed: Iterable[int]) -> LazyContention:
        """Follow changes in some clusters."""
        if self.earlier is None:
            return LazyContention()
        contention, stale = self.earlier
        return LazyContention((contention, stale.union(changed)))

    def with_more(self, assigned: Mapping[int, Sequence[Assignment]]) -> LazyContention:
        """Add assignments by position."""
        if self.earlier is None:
            return LazyContention()
        contention, stale = self.earlier
        added = {position: _contending(promises) for position, promises in assigned.items()}
        return LazyContention((contention.with_more(added), stale))

    def contention(self, held: Sequence[Held | None]) -> Contention:
        """Return the sums over all clusters, which hold ``held``."""
        if self.earlier is None:
            contention, stale = Contention(size=len(held)), frozenset(range(len(held)))
        else:
            contention, stale = self.earlier
            contention = contention.without(stale) if stale else contention
        contention = contention.with_more(
            {
                c: _contending(promises.every)
                for c in sorted(stale)
                if (promises := held[c]) is not None
            }
        )
        self.earlier = contention, frozenset()
        return contention


def _contending(assignments: Iterable[Assignment]) -> list[Outstanding]:
    return [assignment.contending for assignment in assignments]
