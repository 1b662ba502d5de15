"""Node pools and cells as values: the free nodes of one cluster in an agent's report.

Pure. Must not choose cells nor count replicas: ``building`` and ``bounds`` do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from federation.model.arrays import BoolArray, IntArray
from federation.model.cluster import Taint, TaintEffect
from federation.model.resources import CPU, EPHEMERAL_STORAGE, MAX_AMOUNT, MEMORY, PODS

ValueT = TypeVar("ValueT")

MIN_BUDGET: Final = 16
MAX_BUDGET: Final = 4096
DEFAULT_BUDGET: Final = 256

# The resources by which kube-scheduler scores nodes by default.
SCORED: Final = (CPU, MEMORY)

# Floats above this may exceed int64.
_LARGE: Final = 2.0**62

# The order of the resource axis: these first, all others by name.
_LEADING: Final = (CPU, MEMORY, PODS, EPHEMERAL_STORAGE)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NodeColumn(Generic[ValueT]):
    """One property of many nodes (axis n): ``values[code_n[i]]`` is the value of node i."""

    values: Sequence[ValueT]
    code_n: npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NodeColumns:
    """The nodes of a cluster (axis n), from which pools and cells are made.

    ``free`` is ``allocatable - requested`` in base units by resource, with pod slots; negative
    amounts count as zero. ``taints`` hold all that keep pods away: those written on the node, and
    those that follow from its state. ``labels`` has a column for every key that may be chosen, None
    where a node lacks the label. ``allocatable`` is that of the scored resources, where reported.
    """

    free: Mapping[str, IntArray]
    taints: NodeColumn[tuple[Taint, ...]]
    labels: Mapping[str, NodeColumn[str | None]] = field(default_factory=dict)
    allocatable: Mapping[str, IntArray] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.taints.code_n)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePool:
    """Nodes that every node claim treats alike, as far as the chosen label keys tell.

    ``taints`` are those that keep pods away, in order, without times. ``labels`` are the chosen
    keys that its nodes have.
    """

    taints: tuple[Taint, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Cells:
    """Nodes with similar free amounts, counted: cells on axis k, resources on axis r.

    Every node of cell k has at least ``min_rk`` and at most ``max_rk``; all of them together have
    ``sum_rk``, or at least that where ``sum_exact_k`` is false. Amounts and sums are 0..MAX_AMOUNT
    in base units. No node has a resource without a row. ``pool_k`` is a position among the pools.
    ``allocatable_rk`` is the average of a node of the cell for SCORED resources, None if not
    reported. Arrays are read-only.
    """

    resources: tuple[str, ...]
    pool_k: npt.NDArray[np.int32]
    count_k: IntArray
    min_rk: IntArray
    sum_rk: IntArray
    max_rk: IntArray
    sum_exact_k: BoolArray
    allocatable_rk: IntArray | None = None

    def __post_init__(self) -> None:
        for array in (
            self.pool_k,
            self.count_k,
            self.min_rk,
            self.sum_rk,
            self.max_rk,
            self.sum_exact_k,
        ):
            array.flags.writeable = False
        if self.allocatable_rk is not None:
            self.allocatable_rk.flags.writeable = False

    def between(self, span: slice) -> Cells:
        """Return neighbouring cells, without the columns that scores need."""
        return Cells(
            resources=self.resources,
            pool_k=self.pool_k[span],
            count_k=self.count_k[span],
            min_rk=self.min_rk[:, span],
            sum_rk=self.sum_rk[:, span],
            max_rk=self.max_rk[:, span],
            sum_exact_k=self.sum_exact_k[span],
        )

    def equals(self, other: Cells) -> bool:
        """Return whether both describe the same nodes in the same way."""
        ours, theirs = self.allocatable_rk, other.allocatable_rk
        if ours is None or theirs is None:
            is_alike = ours is theirs
        else:
            is_alike = np.array_equal(ours, theirs)
        return (
            is_alike
            and self.resources == other.resources
            and np.array_equal(self.count_k, other.count_k)
            and np.array_equal(self.sum_rk, other.sum_rk)
            and np.array_equal(self.min_rk, other.min_rk)
            and np.array_equal(self.max_rk, other.max_rk)
            and np.array_equal(self.pool_k, other.pool_k)
            and np.array_equal(self.sum_exact_k, other.sum_exact_k)
        )

    def __len__(self) -> int:
        return len(self.count_k)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, weakref_slot=True)
class Pools:
    """The nodes of a cluster at one instant, as pools and the cells in them.

    ``label_keys`` are the keys that the pools carry: a claim on another key cannot be answered.
    ``kubernetes_minor`` is the second number of the cluster's release, 0 if not reported.
    """

    label_keys: tuple[str, ...]
    pools: tuple[NodePool, ...]
    cells: Cells
    kubernetes_minor: int = 0

    def equals(self, other: Pools) -> bool:
        """Return whether both describe the same nodes in the same way."""
        return (
            (self.label_keys, self.kubernetes_minor) == (other.label_keys, other.kubernetes_minor)
            and self.cells.equals(other.cells)
            and self.pools == other.pools
        )


def resource_order(names: Mapping[str, object]) -> tuple[str, ...]:
    """Return cpu, memory and pods, always, then the other resources in their fixed order."""
    leading = [name for name in _LEADING if name in names or name != EPHEMERAL_STORAGE]
    return (*leading, *sorted(names.keys() - set(_LEADING)))


def blocking_taints(taints: Sequence[Taint]) -> tuple[Taint, ...]:
    """Return the distinct taints that keep pods away, in order and without times."""
    blocking = {
        Taint(key=taint.key, value=taint.value, effect=taint.effect)
        for taint in taints
        if taint.effect is not TaintEffect.PREFER_NO_SCHEDULE
    }
    return tuple(sorted(blocking, key=lambda taint: (taint.key, taint.value, taint.effect)))


def cells_of_nodes(
    resources: tuple[str, ...],
    pool_n: npt.NDArray[np.int32],
    free_rn: IntArray,
    allocatable_rn: IntArray | None = None,
) -> Cells:
    """Return every node as a cell of its own."""
    return Cells(
        resources=resources,
        pool_k=pool_n,
        count_k=np.ones(len(pool_n), dtype=np.int64),
        min_rk=free_rn,
        sum_rk=free_rn,
        max_rk=free_rn,
        sum_exact_k=np.ones(len(pool_n), dtype=np.bool_),
        allocatable_rk=allocatable_rn,
    )


def combined(cells: Cells, group_k: npt.NDArray[np.intp], groups: int) -> Cells:
    """Return the cells of each group as one; groups 0..groups-1 have cells, each of one pool."""
    if len(cells) == 0:
        return cells
    order = in_groups(group_k)
    first_g = np.searchsorted(group_k[order], np.arange(groups))
    sum_rg = _sums(cells.sum_rk[:, order], first_g)
    exact_g = np.logical_and.reduceat(cells.sum_exact_k[order], first_g)
    return Cells(
        resources=cells.resources,
        pool_k=cells.pool_k[order][first_g],
        count_k=np.add.reduceat(cells.count_k[order], first_g),
        min_rk=np.minimum.reduceat(cells.min_rk[:, order], first_g, axis=1),
        sum_rk=sum_rg,
        max_rk=np.maximum.reduceat(cells.max_rk[:, order], first_g, axis=1),
        sum_exact_k=exact_g & (sum_rg < MAX_AMOUNT).all(axis=0),
        allocatable_rk=_averages(cells, order, first_g),
    )


def in_groups(group_k: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
    """Return positions by group, in their order within a group."""
    # numpy sorts 16-bit integers by radix, which takes a third of the time.
    is_small = group_k.max(initial=0) < 2**16
    return np.argsort(group_k.astype(np.uint16) if is_small else group_k, kind="stable")


def _averages(
    cells: Cells, order: npt.NDArray[np.intp], first_g: npt.NDArray[np.intp]
) -> IntArray | None:
    """Return the average of a node of each group, as floats round it: scores need no more."""
    if cells.allocatable_rk is None:
        return None
    count_k = cells.count_k[order]
    sum_rg = np.add.reduceat(
        cells.allocatable_rk[:, order] * count_k.astype(float), first_g, axis=1
    )
    mean_rg = sum_rg / np.add.reduceat(count_k, first_g)
    return np.minimum(mean_rg, _LARGE).astype(np.int64)


def _sums(sum_rk: IntArray, first_g: npt.NDArray[np.intp]) -> IntArray:
    """Return the sums of each group, at most MAX_AMOUNT."""
    sums: IntArray
    if sum_rk.sum(axis=1, dtype=np.float64).max(initial=0.0) < 2.0**62:
        sums = np.add.reduceat(sum_rk, first_g, axis=1)
    else:
        exact = np.add.reduceat(sum_rk.astype(object), first_g, axis=1)
        sums = np.minimum(exact, MAX_AMOUNT).astype(np.int64)
    return sums
