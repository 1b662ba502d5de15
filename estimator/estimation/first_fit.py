"""First fit of set after set, each node in closed form: sets that stay where they are go at once.

Pure; writes to the columns it is given. Must not know what a resource or a claim is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence


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

    @property
    def node(self) -> int:
        """Where the walk stands."""
        return self._nodes[self._place]

    def set_demands(self) -> Iterator[tuple[list[int], int]]:
        """What a whole set takes, by column."""
        for column, amount in self._demands:
            yield column, amount * self._replicas

    def take_set(self) -> bool:
        """Take the replicas of one set, going on as nodes are used up; whether all were found."""
        left = self._replicas
        nodes, demands = self._nodes, self._demands
        while left and self._place < len(nodes):
            node = nodes[self._place]
            fit = left + 1
            for column, amount in demands:
                room = column[node] // amount
                fit = min(fit, room)
            taken = min(max(0, fit), left)
            for column, amount in demands:
                column[node] -= taken * amount
            left -= taken
            if taken == fit or fit < 0:
                self._place += 1
        return left == 0


def count_sets(walks: Sequence[Walk]) -> int:
    """Whole sets taken one after the other, component by component in order, until one fails."""
    count = 0
    together = _demands_of(walks)
    while not any(walk.is_over for walk in walks):
        count += _take_in_place(walks, together)
        for walk in walks:
            if not walk.take_set():
                return count
        count += 1
    return count


def _take_in_place(walks: Sequence[Walk], together: Sequence[tuple[list[int], int]]) -> int:
    """Take as many sets as need no walk to go on; how many those are.

    ``together`` is what a set takes of a node when all walks stand on it, as they mostly do.
    """
    by_node: dict[int, list[Walk]] = {}
    for walk in walks:
        by_node.setdefault(walk.node, []).append(walk)
    demands = {
        node: together if len(there) == len(walks) else _demands_of(there)
        for node, there in by_node.items()
    }
    sets = min([column[node] // total for node, each in demands.items() for column, total in each])
    if sets <= 0:
        return 0
    for node, each in demands.items():
        for column, total in each:
            column[node] -= sets * total
    return sets


def _demands_of(walks: Sequence[Walk]) -> list[tuple[list[int], int]]:
    """What a set of these takes of one node, by column."""
    totals: dict[int, tuple[list[int], int]] = {}
    for walk in walks:
        for column, amount in walk.set_demands():
            _, total = totals.get(id(column), (column, 0))
            totals[id(column)] = column, total + amount
    return list(totals.values())
