"""Place n replicas of one shape on nodes by score, as if one at a time, without stepping.

Must not change the nodes it is given, nor choose them: the snapshot assumes what is placed, and
labels, taints and affinity come in as a mask.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from estimator.binpack.arrays import NodeArrays, ReplicaRequest, room_n
from estimator.binpack.strategy import (
    ResourceColumn,
    ResourceScore,
    ScoreArray,
    Strategy,
    breakdown,
)
from federation.model.arrays import BoolArray, FloatArray, IntArray


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementRequest:
    """``replicas`` of one shape; unless ``minimum`` of them find a node, none is placed."""

    request: ReplicaRequest
    replicas: int
    minimum: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePlacement:
    """A node's replicas, and its score when the last of them was placed."""

    node: int
    replicas: int
    score: float
    resources: tuple[ResourceScore, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePlacements:
    """How many replicas every node takes, and why.

    ``fitting`` is how many could be placed, at most the number asked for; it exceeds the sum of
    ``replicas_n`` only when a gang's minimum was missed. The scores are those of the nodes in
    ``touched_m``, each as its last replica was placed.
    """

    replicas_n: IntArray
    fitting: int
    touched_m: IntArray
    score_m: ScoreArray
    columns: tuple[ResourceColumn, ...]

    @property
    def placed(self) -> int:
        return int(self.replicas_n.sum())

    def nodes(self) -> Iterator[NodePlacement]:
        """The nodes that take replicas, in name order, with their score's breakdown."""
        for row, node in enumerate(self.touched_m.tolist()):
            yield NodePlacement(
                node=node,
                replicas=int(self.replicas_n[node]),
                score=self.score_m[row].item(),
                resources=breakdown(self.columns, row),
            )


def place(
    nodes: NodeArrays, demand: PlacementRequest, strategy: Strategy, feasible_n: BoolArray
) -> NodePlacements:
    """Each replica in turn to the feasible node that scores highest; equals by node order."""
    request = demand.request
    capacity_n = np.where(feasible_n, room_n(nodes, request, demand.replicas), 0)
    fitting = min(demand.replicas, int(capacity_n.sum()))
    if fitting < demand.minimum:
        replicas_n = np.zeros(nodes.size, dtype=np.int64)
    else:
        seating = _Seating(nodes=nodes, request=request, strategy=strategy, capacity_n=capacity_n)
        replicas_n = seating.replicas_n(fitting)
    touched_m = np.flatnonzero(replicas_n)
    last = nodes.after(touched_m, replicas_n[touched_m] - 1, request, strategy.resources)
    return NodePlacements(
        replicas_n=replicas_n,
        fitting=fitting,
        touched_m=touched_m,
        score_m=strategy.score(last, request),
        columns=strategy.columns(last, request),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seating:
    """Seat k of a node is its (k+1)-th replica; ``capacity_n`` is how many seats nodes have.

    Once chosen, a node goes on being chosen while its next seat scores no lower. A seat is
    therefore worth the lowest score among the node's seats up to it. Placing one at a time fills
    the seats in the order (worth descending, node, seat).
    """

    nodes: NodeArrays
    request: ReplicaRequest
    strategy: Strategy
    capacity_n: IntArray

    def replicas_n(self, replicas: int) -> IntArray:
        """How many of ``replicas``, which all fit, each node takes.

        The computed seats of a node are doubled for as long as another one could be among the
        best. A round computes at most ``replicas`` new seats. There are as many rounds as the
        logarithm of the fullest node's replicas.
        """
        if replicas == int(self.capacity_n.sum()):
            return self.capacity_n
        best = self._first_seats().best(replicas)
        node_m, worth_m, seat_count = best.node_s, best.worth_s, 1
        while True:
            rival_m = best.could_precede_last(node_m, worth_m, replicas)
            rival_m &= self.capacity_n[node_m] > seat_count
            node_m, worth_m = node_m[rival_m], worth_m[rival_m]
            if len(node_m) == 0:
                taken_n = np.bincount(best.node_s, minlength=self.nodes.size)
                return taken_n.astype(np.int64, copy=False)
            next_node_m, worth_m = self._next_seats(node_m, worth_m, seat_count)
            best = best.joined(next_node_m).best(replicas)
            seat_count *= 2

    def _first_seats(self) -> _Seats:
        node_m = np.flatnonzero(self.capacity_n)
        score_n = self.strategy.score(self.nodes, self.request).astype(np.float64)
        return _Seats(node_s=node_m, seat_s=np.zeros_like(node_m), worth_s=score_n[node_m])

    def _next_seats(
        self, node_m: IntArray, worth_m: FloatArray, seat_count: int
    ) -> tuple[_Seats, FloatArray]:
        """Seats ``known`` … 2 ``known`` - 1 of the nodes that have them; the worth of the last.

        ``worth_m`` is the worth of each node's last known seat.
        """
        shape = (len(node_m), seat_count)
        node_mk = np.broadcast_to(node_m[:, np.newaxis], shape)
        seat_mk = np.broadcast_to(np.arange(seat_count, 2 * seat_count), shape)
        states = self.nodes.after(
            node_mk.ravel(), seat_mk.ravel(), self.request, self.strategy.resources
        )
        score_mk = self.strategy.score(states, self.request).reshape(shape)
        worth_mk = np.minimum.accumulate(np.column_stack((worth_m, score_mk)), axis=1)[:, 1:]
        exists_mk = seat_mk < self.capacity_n[node_mk]
        seats = _Seats(
            node_s=node_mk[exists_mk], seat_s=seat_mk[exists_mk], worth_s=worth_mk[exists_mk]
        )
        return seats, worth_mk[:, -1]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seats:
    """Seats on nodes: which node, which of its seats, and what the seat is worth."""

    node_s: IntArray
    seat_s: IntArray
    worth_s: FloatArray

    def joined(self, other: _Seats) -> _Seats:
        return _Seats(
            node_s=np.concatenate((self.node_s, other.node_s)),
            seat_s=np.concatenate((self.seat_s, other.seat_s)),
            worth_s=np.concatenate((self.worth_s, other.worth_s)),
        )

    def best(self, count: int) -> _Seats:
        """The first ``wanted`` seats in the order of placing, or all when there are fewer."""
        order = np.lexsort((self.seat_s, self.node_s, -self.worth_s))[:count]
        return _Seats(
            node_s=self.node_s[order], seat_s=self.seat_s[order], worth_s=self.worth_s[order]
        )

    def could_precede_last(self, node_m: IntArray, worth_m: FloatArray, count: int) -> BoolArray:
        """Which nodes' next seats, worth ``worth_m`` at best, could come before our last seat."""
        if len(self.node_s) < count:
            return np.ones(len(node_m), dtype=np.bool_)
        last_node, last_worth = int(self.node_s[-1]), float(self.worth_s[-1])
        higher_m: BoolArray = worth_m > last_worth
        equal_m: BoolArray = worth_m == last_worth
        return higher_m | (equal_m & (node_m < last_node))
