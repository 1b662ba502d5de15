"""Pools and cells of a snapshot: built, and refreshed while the same partition still serves.

Pure but for the partition it keeps. Must not choose which nodes are capacity.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from estimator.snapshot import Interned, Snapshot, Value
from federation.model.arrays import BoolArray
from federation.model.pools.building import BuiltPools, partition_nodes
from federation.model.pools.refreshing import refresh_pools
from federation.model.pools.values import SCORED, NodeColumn, NodeColumns, Pools

# What workloads select nodes by most, the most telling first.
USUAL_LABEL_KEYS: Final = (
    "kubernetes.io/arch",
    "kubernetes.io/os",
    "topology.kubernetes.io/zone",
    "node.kubernetes.io/instance-type",
)


class Pooling:
    """The pools of one cluster, from snapshot to snapshot. Not to be shared between threads."""

    def __init__(self, budget: int, label_keys: Sequence[str] = USUAL_LABEL_KEYS) -> None:
        """At most ``budget`` cells, pools told apart by ``label_keys``, the most wanted first."""
        self._budget = budget
        self._label_keys = tuple(dict.fromkeys(label_keys))
        self._built: BuiltPools | None = None

    def pools(
        self, snapshot: Snapshot, counted_n: BoolArray, used_keys: Sequence[str] = ()
    ) -> Pools:
        """The pools of the counted nodes. ``used_keys`` are labels that pods and requests name,
        the most used first; they are wanted more than those given before.
        """
        label_keys = tuple(dict.fromkeys((*used_keys, *self._label_keys)))
        nodes = node_columns(snapshot, counted_n, label_keys)
        if self._built is None or self._built.partition.wanted_keys != label_keys:
            self._built = partition_nodes(nodes, self._budget, label_keys)
        else:
            self._built = refresh_pools(nodes, self._built.partition)
        return replace(self._built.pools, kubernetes_minor=snapshot.table.kubernetes_minor)


def node_columns(
    snapshot: Snapshot, counted_n: BoolArray, label_keys: Sequence[str]
) -> NodeColumns:
    """The counted nodes as pools are made from."""
    table = snapshot.table
    return NodeColumns(
        free={name: snapshot.free_n(name)[counted_n] for name in table.allocatable},
        taints=_counted(table.taints, counted_n),
        labels={key: _counted(table.label(key), counted_n) for key in label_keys},
        allocatable={name: snapshot.allocatable_n(name)[counted_n] for name in SCORED},
    )


def _counted(column: Interned[Value], counted_n: BoolArray) -> NodeColumn[Value]:
    return NodeColumn(values=column.values, code_n=column.code_n[counted_n])
