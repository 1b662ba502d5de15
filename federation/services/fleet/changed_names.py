"""The names of clusters that changed, for the snapshot and for others that follow the fleet.

Must not know what changed there.
"""

from __future__ import annotations

from collections.abc import Iterable


class ChangedNames(set[str]):
    """Those that changed since the last snapshot; each follower has a set of its own."""

    def __init__(self) -> None:
        super().__init__()
        self._followed: list[set[str]] = []

    def add(self, name: str) -> None:
        super().add(name)
        self.tell([name])

    def tell(self, names: Iterable[str]) -> None:
        """Note clusters for every reader, where the picture has their changes already."""
        for followed in self._followed:
            followed.update(names)

    def followed(self) -> set[str]:
        """A set that has every cluster that changes from now on, until its reader takes it out."""
        names = set[str]()
        self._followed.append(names)
        return names
