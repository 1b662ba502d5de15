"""Packing of outstanding promises into the free cells of clusters, all clusters in the same steps.

Pure. The only way of outstanding promises into cells, for one cluster as for thousands; stuck ones,
which lost their room, reserve nodes. Must not decide which promise gets room, nor in which order
they are packed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from federation.capacity.assignments import Assignment, ShapeIndex, holdings_of
from federation.capacity.cells import (
    AMOUNTS,
    COUNT,
    KIND,
    PIECES,
    VIEWS,
    FreeCells,
    View,
    apart,
    gathered,
    head,
    only,
)
from federation.capacity.packing import (
    CellRequest,
    CellRequests,
    RequestsByCluster,
    pack_requests_in_place,
)
from federation.capacity.pool_kinds import PoolKinds
from federation.model.arrays import BoolArray, IntArray
from federation.model.pools.bounds import per_replica
from federation.model.pools.matching import Match
from federation.model.reservations import Outstanding


@dataclass(slots=True, kw_only=True, eq=False)
class PackedCells:
    """Free cells of clusters, by place, while they are packed.

    ``moved`` has the clusters that outgrew the table: their new table, and their place in it.
    """

    free_cells: FreeCells
    moved: dict[int, tuple[FreeCells, int]] = field(default_factory=dict)

    def gathered(self, places: Sequence[int]) -> FreeCells:
        """Copy some of the clusters, in this order, into a table of their own."""
        if not self.moved and list(places) == list(range(len(self.free_cells))):
            return apart(self.free_cells)
        sources: list[tuple[FreeCells, list[int]]] = []
        for place in places:
            free_cells, cluster = self.moved.get(place, (self.free_cells, place))
            if sources and sources[-1][0] is free_cells:
                sources[-1][1].append(cluster)
            else:
                sources.append((free_cells, [cluster]))
        return gathered(sources)

    def only(self, place: int) -> FreeCells:
        """Copy one cluster into a table of its own."""
        return only(*self.moved.get(place, (self.free_cells, place)))

    def put(self, places: Sequence[int], source: FreeCells, first: int) -> None:
        """Store the free cells of some clusters, which stand in ``source`` from ``first`` on.

        Where a cluster still fits it is written over its old columns, else it is moved.
        """
        if not self.moved and list(places) == list(range(len(self.free_cells))):
            self.free_cells = source
            return
        table = self.free_cells
        segment_s = (np.array(places)[:, np.newaxis] * VIEWS + np.arange(VIEWS)).ravel()
        segments = slice(VIEWS * first, VIEWS * (first + len(places)))
        capacity_s, first_s = source.capacity_s[segments], source.first_s[:-1][segments]
        fits_s = table.capacity_s[segment_s] == capacity_s
        fits_s = fits_s.reshape(-1, VIEWS).all(axis=1).repeat(VIEWS)
        source_k = np.flatnonzero(fits_s.repeat(capacity_s)) + first_s[0]
        shift_s = table.first_s[segment_s] - first_s
        target_k = source_k + shift_s[fits_s].repeat(capacity_s[fits_s])
        table.table_xk[:, target_k] = source.table_xk.take(source_k, axis=1)
        table.used_s[segment_s[fits_s]] = source.used_s[segments][fits_s]
        for place, fits in zip(places, fits_s[::VIEWS].tolist(), strict=True):
            self.moved.pop(place, None)
            if not fits:
                self.moved[place] = source, first
            first += 1


def pack_groups(
    cells: PackedCells,
    groups: Sequence[Sequence[Sequence[Outstanding]]],
    kinds: PoolKinds,
    resources: Sequence[tuple[str, ...]],
    index: ShapeIndex | None = None,
) -> list[list[Assignment]]:
    """Pack the first group of each cluster in one step, then the second, and so on.

    Return the assignments by cluster. Promises of a group differ only in binding and number of
    replicas. ``resources`` are those of the cells of each cluster. ``index`` has the numbers that
    the groups were made by.
    """
    assignments: list[list[Assignment]] = [[] for _ in groups]
    nonempty = [place for place, cluster_groups in enumerate(groups) if cluster_groups]
    if not nonempty:
        return assignments
    # Clusters with most groups come first, so that those that go on stay at the front.
    order = sorted(nonempty, key=lambda place: -len(groups[place]))
    free_cells = cells.gathered(order)
    turns = _Turns.of(
        [groups[place] for place in order], kinds, free_cells.resources, index or ShapeIndex()
    )
    turn = 0
    while True:
        packing = pack_requests_in_place(free_cells, *turns.at(turn, len(order)))
        placed_c = packing.placed_s[View.FILLED :: VIEWS].tolist()
        for cluster, place in enumerate(order):
            assignments[place] += holdings_of(
                groups[place][turn], placed_c[cluster], packing.takes, resources[place], cluster
            )
        turn += 1
        going_on = sum(len(groups[place]) > turn for place in order)
        free_cells = packing.free_cells
        if going_on < len(order):
            cells.put(order[going_on:], free_cells, going_on)
        if not going_on:
            return assignments
        if going_on < len(order):
            order, free_cells = order[:going_on], head(free_cells, going_on)
        if (free_cells.capacity_s - free_cells.used_s < PIECES).any():
            free_cells = gathered([(free_cells, range(going_on))])


class _Turns(NamedTuple):
    """The groups (axis g) of clusters; those of cluster c begin at ``first_c[c]``."""

    requests: CellRequests
    first_c: IntArray
    request_g: IntArray
    replicas_g: IntArray

    @classmethod
    def of(
        cls,
        groups: Sequence[Sequence[Sequence[Outstanding]]],
        kinds: PoolKinds,
        resources: Sequence[str],
        index: ShapeIndex,
    ) -> _Turns:
        all_groups = [group for cluster_groups in groups for group in cluster_groups]
        numbers = [index.number(group[0]) for group in all_groups]
        replicas = [
            group[0].to_pack if len(group) == 1 else sum(promise.to_pack for promise in group)
            for group in all_groups
        ]
        first_c = np.zeros(len(groups), dtype=np.int64)
        np.cumsum([len(cluster_groups) for cluster_groups in groups[:-1]], out=first_c[1:])
        # ``index`` may have many more numbers than these groups.
        used_u, request_g = np.unique(np.array(numbers, dtype=np.int64), return_inverse=True)
        requests = [_request(index.firsts[number], kinds) for number in used_u.tolist()]
        return cls(
            requests=CellRequests.of(resources, requests),
            first_c=first_c,
            request_g=request_g,
            replicas_g=np.array(replicas, dtype=np.int64),
        )

    def at(self, turn: int, clusters: int) -> tuple[RequestsByCluster, IntArray]:
        """Return the requests and replicas of one turn, for the first ``clusters`` clusters."""
        group_c = self.first_c[:clusters] + turn
        return self.requests.by_cluster(self.request_g[group_c]), self.replicas_g[group_c]


def _request(outstanding: Outstanding, kinds: PoolKinds) -> CellRequest:
    requirements = outstanding.requirements
    # A promise without proof may land on all nodes that do not exclude it, so it is packed there.
    least = Match.YES if outstanding.certificate.is_packed else Match.UNKNOWN
    return CellRequest(requirements.request, kinds.suiting(requirements.node_claim, least))


def without_reserved_nodes(
    free: FreeCells, stuck: Iterable[Assignment], kinds: PoolKinds
) -> FreeCells:
    """Remove, for each stuck replica, one node from the free cells of both views.

    It is the node with the largest part of what the replica requests. Whichever node comes free
    for the replica in the end, other promises made there then find as much room on the node that
    was reserved. Pools that the replica may not use stay as they are.
    """
    table_xk = free.table_xk.copy()
    for assignment in stuck:
        requirements = assignment.outstanding.requirements
        suiting_p = kinds.suiting(requirements.node_claim)
        demanded = per_replica(requirements.request)
        if not demanded.keys() <= set(free.resources):
            continue
        rows = {name: AMOUNTS + free.resources.index(name) for name in demanded}
        for view in View:
            start = int(free.first_s[view])
            columns_xk = table_xk[:, start : start + int(free.used_s[view])]
            amounts = {rows[name]: amount for name, amount in demanded.items()}
            _reserve(columns_xk, amounts, assignment.unplaced, suiting_p)
    return replace(free, table_xk=table_xk)


def _reserve(
    columns_xk: IntArray, amounts: Mapping[int, int], nodes: int, suiting_p: BoolArray | None
) -> None:
    """Take nodes out of the cells, those with the largest part of the ``amounts`` by row first.

    A node without any of a resource is passed over: it becomes room no sooner than others.
    """
    (row, amount), *rest = amounts.items()
    part_k = columns_xk[row] / amount
    for row, amount in rest:
        np.minimum(part_k, columns_xk[row] / amount, out=part_k)
    if suiting_p is not None:
        part_k[~suiting_p[columns_xk[KIND]]] = 0
    (some_k,) = (part_k > 0).nonzero()
    order_k = some_k.take((-part_k.take(some_k)).argsort(kind="stable"))
    count_k = columns_xk[COUNT].take(order_k)
    missing_k = nodes - (count_k.cumsum() - count_k)
    columns_xk[COUNT, order_k] = count_k - np.minimum(np.maximum(missing_k, 0), count_k)
