"""Clusters that left the fleet, by name, and the place in the journal at which that was seen.

Must not ask the store. Belongs to the event loop of the journal's reader.
"""

from __future__ import annotations

from typing import Final

from federation.services.journal import Position

# A forgotten name costs one look into the store when an old entry names it.
MAX_DEPARTED_CLUSTERS: Final = 10_000


class DepartedClusters:
    """Names that no cluster had when the store was asked, for entries that are older than that."""

    def __init__(self) -> None:
        self._positions: dict[str, Position] = {}

    def note(self, name: str, position: Position) -> None:
        """Remember that every entry before ``position`` about this name is of a cluster that left.

        Forget the name that was noted first where there are too many.
        """
        self._positions.pop(name, None)
        self._positions[name] = position
        if len(self._positions) > MAX_DEPARTED_CLUSTERS:
            del self._positions[next(iter(self._positions))]

    def left_after(self, name: str, position: Position) -> bool:
        """Whether the cluster that an entry at this place names is known to have left since."""
        departure = self._positions.get(name)
        return departure is not None and position < departure
