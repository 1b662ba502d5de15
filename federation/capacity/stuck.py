"""Nodes that are reserved for stuck promises, which lost their room.

Pure. Must not pack anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np

from federation.capacity.assignments import Assignment
from federation.capacity.cells import AMOUNTS, COUNT, KIND, FreeCells, View
from federation.capacity.pool_kinds import PoolKinds
from federation.model.arrays import BoolArray, IntArray
from federation.model.pools.bounds import per_replica


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
