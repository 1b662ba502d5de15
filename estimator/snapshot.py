"""The nodes of a cluster at one instant, as columns: what every question is answered from.

Immutable, rows in the order given. Must not decide which nodes suit a pod, nor follow changes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

from estimator.nodes import Node, Pod
from federation.model.arrays import BoolArray, IntArray
from federation.model.cluster import Taint
from federation.model.resources import MAX_AMOUNT, PODS

Value = TypeVar("Value", bound=Hashable)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Interned(Generic[Value]):
    """A column of few distinct values: ``values[code_n[i]]`` is row i's.

    ``codes`` finds a value's place among them.
    """

    values: tuple[Value, ...]
    codes: Mapping[Value, int]
    code_n: npt.NDArray[np.int32]

    def where(self, holds: Callable[..., bool]) -> BoolArray:
        """Rows whose value ``holds``, asked once a distinct value."""
        verdict_v = np.fromiter(map(holds, self.values), dtype=np.bool_, count=len(self.values))
        return verdict_v[self.code_n]

    def among(self, values: Iterable[Value]) -> BoolArray:
        """Rows whose value is one of ``values``, looked at by code alone."""
        rows = np.zeros(len(self.code_n), dtype=np.bool_)
        for value in values:
            if value in self.codes:
                rows |= self.code_n == self.codes[value]
        return rows


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NodeTable:
    """The nodes as columns. Shared by all snapshots until a node changes.

    ``allocatable`` holds one array a resource, 0 where a node lacks it. ``kubernetes_minor`` is the
    newest kubelet's release, which no scheduler is older than; 0: unknown. Label columns are made
    when first asked for, since a cluster has many keys and questions name few.
    """

    nodes: tuple[Node, ...]
    allocatable: Mapping[str, IntArray]
    ready_n: BoolArray
    unschedulable_n: BoolArray
    names: Interned[str]
    taints: Interned[tuple[Taint, ...]]
    kubernetes_minor: int
    _labels: dict[str, Interned[str | None]] = field(default_factory=dict)

    @classmethod
    def of(cls, nodes: Iterable[Node]) -> NodeTable:
        nodes = tuple(nodes)
        size = len(nodes)
        return cls(
            nodes=nodes,
            allocatable=columns_of([node.allocatable for node in nodes]),
            ready_n=np.fromiter((node.ready for node in nodes), np.bool_, size),
            unschedulable_n=np.fromiter((node.unschedulable for node in nodes), np.bool_, size),
            names=_interned([node.name for node in nodes]),
            taints=_interned([node.taints for node in nodes]),
            kubernetes_minor=max(map(_minor, {node.kubelet_version for node in nodes}), default=0),
        )

    def __len__(self) -> int:
        return len(self.nodes)

    def label(self, key: str) -> Interned[str | None]:
        """The nodes' values of a label, None where a node lacks it."""
        column = self._labels.get(key)
        if column is None:
            column = _interned([node.labels.get(key) for node in self.nodes])
            self._labels[key] = column
        return column


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Snapshot:
    """Nodes, and what is requested on them. Arrays are read-only.

    ``requested`` holds the sums of the bound pods' requests, ``pods`` among them; ``nonzero``
    their cpu and memory with scoring defaults. ``waiting``, ``gated`` and ``dropped`` are totals
    over pods without a node: those that may get one, those that may not yet, and those that ended
    without. ``homeless`` is the total over pods bound to nodes that are not, or no longer, there.
    ``nominated`` are pods of ``waiting`` that ``requested`` counts where they are expected to run.
    """

    table: NodeTable
    requested: Mapping[str, IntArray]
    nonzero: Mapping[str, IntArray] = field(default_factory=dict)
    waiting: Mapping[str, int] = field(default_factory=dict)
    gated: Mapping[str, int] = field(default_factory=dict)
    dropped: Mapping[str, int] = field(default_factory=dict)
    homeless: Mapping[str, int] = field(default_factory=dict)
    nominated: tuple[Pod, ...] = ()

    def __len__(self) -> int:
        return len(self.table)

    def with_nominated(self, pods: Iterable[Pod]) -> Snapshot:
        """Return this with pods counted on the nodes, among these, that they are nominated for."""
        nominated = tuple(pods)
        if not nominated:
            return self
        requested = self._moved(nominated, +1)
        return replace(self, requested=requested, nominated=nominated)

    def seen_by(self, uid: str, priority: int) -> Snapshot:
        """Return this as for a pod: others' nominations count unless its priority is higher."""
        gone = [pod for pod in self.nominated if pod.uid == uid or pod.priority < priority]
        if not gone:
            return self
        staying = tuple(pod for pod in self.nominated if pod not in gone)
        return replace(self, requested=self._moved(gone, -1), nominated=staying)

    def nominated_amounts(self, counted_n: BoolArray) -> dict[str, int]:
        """Sum up what nominated pods take of these nodes."""
        sums: dict[str, int] = {}
        for pod in self.nominated:
            if counted_n[self.table.names.codes[pod.nominated_node]]:
                for name, amount in (*pod.request.items(), (PODS, 1)):
                    sums[name] = sums.get(name, 0) + amount
        return sums

    def _moved(self, pods: Sequence[Pod], sign: int) -> dict[str, IntArray]:
        """Add the pods to, or take them from, what is requested on their nominated nodes."""
        requested = dict(self.requested)
        changed: set[str] = set()
        for pod in pods:
            row = self.table.names.codes[pod.nominated_node]
            for name, amount in (*pod.request.items(), (PODS, 1)):
                if name not in changed:
                    changed.add(name)
                    requested[name] = self._column(requested, name).copy()
                former = int(requested[name][row])
                # Amounts stop at MAX_AMOUNT: it is not known what a sum beyond it was.
                if former < MAX_AMOUNT:
                    requested[name][row] = min(former + sign * amount, MAX_AMOUNT)
        for name in changed:
            requested[name].flags.writeable = False
        return requested

    def allocatable_n(self, resource: str) -> IntArray:
        return self._column(self.table.allocatable, resource)

    def requested_n(self, resource: str) -> IntArray:
        return self._column(self.requested, resource)

    def free_n(self, resource: str) -> IntArray:
        """Allocatable minus requested, below 0 where a node is overdrawn."""
        free_n: IntArray = self.allocatable_n(resource) - self.requested_n(resource)
        return free_n

    def _column(self, columns: Mapping[str, IntArray], resource: str) -> IntArray:
        column = columns.get(resource)
        return np.zeros(len(self), dtype=np.int64) if column is None else column


def columns_of(rows: Sequence[Mapping[str, int]]) -> dict[str, IntArray]:
    """One read-only array a resource; what a row does not name is 0.

    Amounts stop at MAX_AMOUNT, so that differences of two of them stay int64.
    """
    columns: dict[str, IntArray] = {}
    for name in sorted({name for row in rows for name in row}):
        amounts = (min(row.get(name, 0), MAX_AMOUNT) for row in rows)
        columns[name] = column = np.fromiter(amounts, np.int64, len(rows))
        column.flags.writeable = False
    return columns


def _interned(values: Sequence[Value]) -> Interned[Value]:
    codes = {value: code for code, value in enumerate(dict.fromkeys(values))}
    code_n = np.fromiter(map(codes.__getitem__, values), np.int32, len(values))
    return Interned(values=tuple(codes), codes=codes, code_n=code_n)


def _minor(version: str) -> int:
    """The second number of a release as kubelets tell it, 0 where that is not one."""
    release = re.match(r"v?1\.(\d{1,4})", version)
    return int(release[1]) if release else 0
