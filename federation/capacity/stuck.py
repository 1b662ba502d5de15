"""What promises that lost their room keep others from: the nodes that may yet become their room.

Pure. Must not pack anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np

from federation.capacity.assignments import Assignment
from federation.capacity.cells import AMOUNTS, COUNT, KIND, Residues, View
from federation.capacity.pool_kinds import PoolKinds
from federation.model.arrays import BoolArray, IntArray
from federation.model.pools.bounds import per_replica
from federation.model.pools.matching import Match


def without_kept_nodes(left: Residues, stuck: Iterable[Assignment], kinds: PoolKinds) -> Residues:
    """What is left in a cluster for others: for each stuck replica the node that has most of what
    it asks for is kept, in both views.

    Whichever node comes free for it, what others were promised there finds as much on the node
    that is kept no more. Pools it may not use stay as they are.
    """
    table_xk = left.table_xk.copy()
    for each in stuck:
        requirements = each.outstanding.requirements
        verdict_p = kinds.verdicts(requirements.node_claim)
        suiting_p = None if verdict_p is None else verdict_p == Match.YES
        demanded = per_replica(requirements.request)
        if not demanded.keys() <= set(left.resources):
            continue
        rows = {name: AMOUNTS + left.resources.index(name) for name in demanded}
        for view in View:
            start = int(left.first_s[view])
            columns_xk = table_xk[:, start : start + int(left.used_s[view])]
            asked = {rows[name]: amount for name, amount in demanded.items()}
            _keep(columns_xk, asked, each.unplaced, suiting_p)
    return replace(left, table_xk=table_xk)


def _keep(
    columns_xk: IntArray, asked: Mapping[int, int], nodes: int, suiting_p: BoolArray | None
) -> None:
    """Take so many nodes out, those first that have the largest part of what is ``asked`` by row.

    A node without any of it cannot become its room sooner than others.
    """
    (row, amount), *others = asked.items()
    part_k = columns_xk[row] / amount
    for row, amount in others:
        np.minimum(part_k, columns_xk[row] / amount, out=part_k)
    if suiting_p is not None:
        part_k[~suiting_p[columns_xk[KIND]]] = 0
    (some_k,) = (part_k > 0).nonzero()
    order_k = some_k.take((-part_k.take(some_k)).argsort(kind="stable"))
    count_k = columns_xk[COUNT].take(order_k)
    left_k = nodes - (count_k.cumsum() - count_k)
    columns_xk[COUNT, order_k] = count_k - np.minimum(np.maximum(left_k, 0), count_k)
