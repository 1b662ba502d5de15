"""Nodes given one by one, as files and case lines give them, turned into columns.

Must not be used to follow a cluster: the snapshot keeps its columns up to date by the event.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from estimator.binpack.arrays import NodeArrays, ReplicaRequest
from federation.model.arrays import IntArray


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLoad:
    """What one node offers and what its pods ask for, in base units by resource name."""

    allocatable: Mapping[str, int]
    requested: Mapping[str, int]
    nonzero_requested: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of_pods(cls, allocatable: Mapping[str, int], pods: Iterable[ReplicaRequest]) -> NodeLoad:
        """A node that carries ``pods``."""
        requested: Counter[str] = Counter()
        nonzero_requested: Counter[str] = Counter()
        for pod in pods:
            requested.update(pod.amounts)
            nonzero_requested.update(pod.nonzero_placed)
        return cls(
            allocatable=allocatable, requested=requested, nonzero_requested=nonzero_requested
        )


def tabulate(nodes: Sequence[NodeLoad]) -> NodeArrays:
    """The columns of ``nodes``, in the order given."""
    return NodeArrays(
        size=len(nodes),
        allocatable=_columns([node.allocatable for node in nodes]),
        requested=_columns([node.requested for node in nodes]),
        nonzero_requested=_columns([node.nonzero_requested for node in nodes]),
    )


def _columns(rows: Sequence[Mapping[str, int]]) -> dict[str, IntArray]:
    names = {name for row in rows for name in row}
    return {
        name: np.array([row.get(name, 0) for row in rows], dtype=np.int64) for name in sorted(names)
    }
