"""The names of clusters that changed, for the snapshot and for others that follow the fleet.

Must not know what changed there.
"""

from __future__ import annotations


class ChangedNames(set[str]):
    """Those that changed since the last snapshot; each follower has a set of its own."""

    def __init__(self) -> None:
        super().__init__()
        self._followed: list[set[str]] = []

    def add(self, name: str) -> None:
        super().add(name)
        for names in self._followed:
            names.add(name)

    def followed(self) -> set[str]:
        """A set that has every cluster that changes from now on, until its reader takes it out."""
        names = set[str]()
        self._followed.append(names)
        return names
