"""First fit of set after set, each node in closed form: sets that stay where they are go at once.

Pure; writes to the columns it is given. Must not know what a resource or a claim is.
"""

from __future__ import annotations

from collections.abc import Sequence


class Walk:
    """One component on its way along the nodes that can take it, in their order.

    What is free only shrinks, so a node that takes no replica any more is never looked at again.
    """

    def __init__(
        self, *, replicas: int, demands: Sequence[tuple[list[int], int]], nodes: Sequence[int]
    ) -> None:
        """``demands`` hold, for every resource, what each node has free and a replica's share."""
        self._replicas = replicas
        self._demands = demands
        self._nodes = nodes
        self._place = 0

    @property
    def is_over(self) -> bool:
        return self._place == len(self._nodes)

    def add_set(self, totals: dict[tuple[int, int], tuple[list[int], int]]) -> None:
        """Add what a whole set takes where the walk stands, by column and node."""
        node = self._nodes[self._place]
        for column, amount in self._demands:
            _, total = totals.get((id(column), node), (column, 0))
            totals[id(column), node] = column, total + amount * self._replicas

    def take_set(self) -> bool:
        """Take the replicas of one set, going on as nodes are used up; whether all were found."""
        left = self._replicas
        while left and not self.is_over:
            node = self._nodes[self._place]
            fit = max(0, min([column[node] // amount for column, amount in self._demands]))
            taken = min(fit, left)
            for column, amount in self._demands:
                column[node] -= taken * amount
            left -= taken
            if taken == fit:
                self._place += 1
        return left == 0


def count_sets(walks: Sequence[Walk]) -> int:
    """Whole sets taken one after the other, component by component in order, until one fails."""
    count = 0
    while not any(walk.is_over for walk in walks):
        count += _take_in_place(walks)
        if not all(walk.take_set() for walk in walks):
            break
        count += 1
    return count


def _take_in_place(walks: Sequence[Walk]) -> int:
    """Take as many sets as need no walk to go on; how many those are."""
    totals: dict[tuple[int, int], tuple[list[int], int]] = {}
    for walk in walks:
        walk.add_set(totals)
    sets = min([column[node] // total for (_, node), (column, total) in totals.items()])
    if sets <= 0:
        return 0
    for (_, node), (column, total) in totals.items():
        column[node] -= sets * total
    return sets
