"""Pools from nodes: by blocking taints and by chosen label keys.

Pure. Must not look at free amounts.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from federation.model.pools.values import NodeColumns, NodePool, blocking_taints


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Grouping:
    """The pools of a cluster, in an order that does not depend on that of the nodes.

    ``pool_n`` is each node's position in ``pools``.
    """

    label_keys: tuple[str, ...]
    pools: tuple[NodePool, ...]
    pool_n: npt.NDArray[np.int32]


def group_nodes(nodes: NodeColumns, label_keys: Sequence[str], *, most_pools: int) -> Grouping:
    """Return pools by taints and by as many label keys as make at most ``most_pools``.

    The first keys are the most used ones. A key with too many values, like the host name, is left
    out, and later keys are still tried. Taints are never left out, because nodes that they close
    must not count as capacity. Keys without a column in ``nodes`` are ignored.
    """
    taints = [blocking_taints(taints) for taints in nodes.taints.values]
    distinct_taints = sorted(set(taints), key=repr)
    taints_n = _places(distinct_taints, taints, nodes.taints.code_n)
    group_n = taints_n
    chosen: list[str] = []
    for key in dict.fromkeys(key for key in label_keys if key in nodes.labels):
        codes = _value_codes(nodes, key)
        _, split_n = np.unique(group_n * (codes.max(initial=0) + 1) + codes, return_inverse=True)
        if split_n.max(initial=-1) < most_pools:
            group_n = split_n
            chosen.append(key)
    # Groups were numbered by what came first in them: taints, then each key's values in order.
    _, first_p, pool_n = np.unique(group_n, return_index=True, return_inverse=True)
    pools = [
        NodePool(
            taints=distinct_taints[int(taints_n[node])],
            labels=_labels(nodes, chosen, int(node)),
        )
        for node in first_p
    ]
    return Grouping(label_keys=tuple(chosen), pools=tuple(pools), pool_n=pool_n.astype(np.int32))


def _value_codes(nodes: NodeColumns, key: str) -> npt.NDArray[np.int64]:
    """Return each node's value of a label as a number, in the order of the values; 0 without
    one.
    """
    column = nodes.labels[key]
    present = sorted({value for value in column.values if value is not None})
    return _places([None, *present], column.values, column.code_n)


def _places(
    order: Sequence[Hashable], values: Sequence[Hashable], code_n: npt.NDArray[np.int32]
) -> npt.NDArray[np.int64]:
    """Return each node's position in ``order``; its value is ``values[code_n[i]]``."""
    places = {value: place for place, value in enumerate(order)}
    place_v = np.array([places[value] for value in values], dtype=np.int64)
    place_n: npt.NDArray[np.int64] = place_v[code_n]
    return place_n


def _labels(nodes: NodeColumns, keys: Sequence[str], node: int) -> dict[str, str]:
    labels = {}
    for key in keys:
        column = nodes.labels[key]
        value = column.values[int(column.code_n[node])]
        if value is not None:
            labels[key] = value
    return labels
