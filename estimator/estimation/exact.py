"""Exact answers about one cluster at one instant: its nodes, its quotas, and nothing guessed.

Pure; may be asked in any thread. Must not know who asks, nor what was promised elsewhere: what is
to be deducted comes with the question.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from estimator.estimation.fit import feasible_n, replicas_n, room_n, without_slots
from estimator.estimation.quota import Quota, sets_allowed
from estimator.nodes import Node
from estimator.snapshot import NodeTable, Snapshot
from federation.model.arrays import IntArray
from federation.model.estimate import MAX_REPLICAS
from federation.model.pools.sets import alike_together
from federation.model.resources import PODS
from federation.model.workload import Component, ReplicaRequirements

Workload = Sequence[Component]


class FreeAmounts:
    """Free amounts that replicas are taken from, one component after the other.

    Starts from a snapshot with the ``assumed`` workloads placed, one set each; of one that does
    not fit, the part that was placed stays.
    """

    def __init__(self, snapshot: Snapshot, assumed: Sequence[Workload] = ()) -> None:
        self._snapshot = snapshot
        self._free: dict[str, IntArray] = {PODS: snapshot.free_n(PODS)}
        for workload in assumed:
            self._take_set(workload)

    def replicas_n(self, component: Component) -> IntArray:
        """Replicas of the component that still fit on each node (axis n)."""
        requirements = component.requirements
        feasible = feasible_n(self._snapshot.table, requirements.node_claim)
        return room_n(self._free_n, requirements.request, feasible)

    def sets(self, workload: Workload) -> int:
        """How many whole sets fit, one after the other; the room itself stays as it is.

        A set without replicas asks for nothing, and what asks for nothing fits as often as there
        are free pod slots.
        """
        components = alike_together(workload)
        if not components:
            return int(np.maximum(self._free[PODS], 0).sum())
        if len(components) == 1:
            # Replicas that are all alike: whichever node each is on, the others are not worse off.
            return int(self.replicas_n(components[0]).sum()) // components[0].replicas
        demands = [
            {PODS: 1, **without_slots(component.requirements.request)} for component in components
        ]
        free = {name: self._free_n(name).tolist() for demanded in demands for name in demanded}
        walks = [
            Walk(
                replicas=component.replicas,
                demands=[(free[name], amount) for name, amount in demanded.items()],
                nodes=np.flatnonzero(self.replicas_n(component)).tolist(),
            )
            for component, demanded in zip(components, demands, strict=True)
        ]
        return count_sets(walks)

    def _take_set(self, workload: Workload) -> bool:
        """Take one set; False, with the part that fitted taken, when it does not fit."""
        return all(self._take(component) for component in workload)

    def _take(self, component: Component) -> bool:
        room = self.replicas_n(component)
        earlier = np.cumsum(room) - room
        taken = np.clip(component.replicas - earlier, 0, room)
        for name, amount in without_slots(component.requirements.request).items():
            self._free[name] = self._free_n(name) - taken * amount
        self._free[PODS] = self._free_n(PODS) - taken
        return int(taken.sum()) == component.replicas

    def _free_n(self, name: str) -> IntArray:
        if name not in self._free:
            self._free[name] = self._snapshot.free_n(name)
        return self._free[name]


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
        """The node where the walk stands."""
        return self._nodes[self._place]

    def set_demands(self) -> Iterator[tuple[list[int], int]]:
        """Return the amounts that a whole set takes, by column."""
        for column, amount in self._demands:
            yield column, amount * self._replicas

    def take_set(self) -> bool:
        """Take the replicas of one set, going on as nodes are used up; whether all were found."""
        remaining = self._replicas
        nodes, demands = self._nodes, self._demands
        while remaining and self._place < len(nodes):
            node = nodes[self._place]
            fit = remaining + 1
            for column, amount in demands:
                room = column[node] // amount
                fit = min(fit, room)
            taken = min(max(0, fit), remaining)
            for column, amount in demands:
                column[node] -= taken * amount
            remaining -= taken
            if taken == fit or fit < 0:
                self._place += 1
        return remaining == 0


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
        node: together if len(claims) == len(walks) else _demands_of(claims)
        for node, claims in by_node.items()
    }
    sets = min(
        [column[node] // total for node, columns in demands.items() for column, total in columns]
    )
    if sets <= 0:
        return 0
    for node, columns in demands.items():
        for column, total in columns:
            column[node] -= sets * total
    return sets


def _demands_of(walks: Sequence[Walk]) -> list[tuple[list[int], int]]:
    """Return the amounts that a set of these takes of one node, by column."""
    totals: dict[int, tuple[list[int], int]] = {}
    for walk in walks:
        for column, amount in walk.set_demands():
            _, total = totals.get(id(column), (column, 0))
            totals[id(column)] = column, total + amount
    return list(totals.values())


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ExactEstimates:
    """Exact answers from a snapshot, with the quotas of the same instant. They are capped at
    MAX_REPLICAS; ``assumed`` workloads are placed first, one set each.
    """

    snapshot: Snapshot
    quotas: tuple[Quota, ...] = ()

    @classmethod
    def of_empty_nodes(cls, allocatable: Iterable[Mapping[str, int]]) -> ExactEstimates:
        """Nodes with nothing on them and nothing to tell them apart by."""
        nodes = (Node(name="", allocatable=amounts) for amounts in allocatable)
        return cls(snapshot=Snapshot(table=NodeTable.of(nodes), requested={}))

    def replicas(self, requirements: ReplicaRequirements, assumed: Sequence[Workload] = ()) -> int:
        """How many replicas fit on the nodes and into the quotas of their namespace."""
        return self.replicas_of_each([requirements], assumed)[0]

    def replicas_of_each(
        self, shapes: Sequence[ReplicaRequirements], assumed: Sequence[Workload] = ()
    ) -> list[int]:
        """The same for each shape by itself, with the assumed workloads placed only once."""
        room = FreeAmounts(self.snapshot, assumed) if assumed else None
        answers = []
        for requirements in shapes:
            one = Component(name="", replicas=1, requirements=requirements)
            allowed = sets_allowed(self.quotas, [one], assumed)
            fitting_n = (
                replicas_n(self.snapshot, requirements) if room is None else room.replicas_n(one)
            )
            answers.append(min(int(fitting_n.sum()), allowed, MAX_REPLICAS))
        return answers

    def sets(self, workload: Workload, assumed: Sequence[Workload] = ()) -> int:
        """How many whole sets fit, first fit on the nodes in their order."""
        allowed = sets_allowed(self.quotas, workload, assumed)
        return min(FreeAmounts(self.snapshot, assumed).sets(workload), allowed, MAX_REPLICAS)
