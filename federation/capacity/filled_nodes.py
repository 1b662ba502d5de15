"""Nodes of a cluster with all pods on their way placed: small pods first, the largest last.

Pure, whole-array: nodes that are alike are one cell, and the work does not grow with the number of
pods. Results are cached as long as the nodes are the same, and are equal without caches. Amounts
are floats, as small pods are spread in parts: sums are exact up to 2**53. Must not say how many
pods may be promised: ``large_pods`` does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias
from weakref import WeakKeyDictionary

import numpy as np

from federation.capacity.assignments import Held
from federation.capacity.rehearsal import RehearsedPromises, RehearsedRoom
from federation.model.arrays import BoolArray, FloatArray, IntArray
from federation.model.pools.values import SCORED, Cells, Pools
from federation.model.reasons import Reason
from federation.model.shapes import Shape

# A pod is large if it requests more than 1/LARGE_PART of the largest node that suits it.
LARGE_PART: Final = 4
_MIN_SLOPE: Final = 1e-12
_MIN_RATE: Final = 1e-12
# Amounts are integers: a smaller difference comes from the rounding of floats.
_ROUNDING: Final = 1e-3

# The pools of a cluster that suit a claim, as the bytes of a boolean array (axis p).
Suiting: TypeAlias = bytes
LumpKey: TypeAlias = tuple[Suiting, Hashable]


def suiting_pools(suiting: Suiting) -> BoolArray:
    """Return the boolean array (axis p) of these bytes."""
    return np.frombuffer(suiting, dtype=np.bool_)


class Lump(NamedTuple):
    """Pods of equal or similar size, each so large that it matters which node it takes.

    All ``replicas`` together ask for ``amount_r``, each of them for ``share`` of a node.
    """

    share: float
    replicas: int
    amount_r: FloatArray

    @property
    def is_large(self) -> bool:
        return self.share * LARGE_PART > 1

    @property
    def mean_r(self) -> FloatArray:
        """The mean amounts of one pod, rounded up."""
        mean_r: FloatArray = np.ceil(self.amount_r / self.replicas)
        return mean_r

    def joined(self, other: Lump | None) -> Lump:
        """Join the pods of another one."""
        if other is None:
            return self
        share, replicas = max(self.share, other.share), self.replicas + other.replicas
        return Lump(share, replicas, self.amount_r + other.amount_r)


class DemandOnWay(NamedTuple):
    """Pods on their way: the amounts of all small ones by the pools that suit them, and lumps."""

    small: Mapping[Suiting, FloatArray]
    lumps: Mapping[LumpKey, Lump]


class Filled(NamedTuple):
    """Nodes with all pods of a demand; ``missing`` large pods of each kind found no node.

    ``late``: some pod found none. ``is_incomplete``: placing stopped, as too many were missing.
    ``is_tight``: one more pod of some large kind finds no node.
    """

    nodes: _Placing
    missing: Counter[LumpKey]
    late: bool = False
    is_incomplete: bool = False
    is_tight: bool = False


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ReportedNodes:
    """The nodes of a cluster in cells (axis k) of ``count_k`` nodes in the pool ``pool_k``.

    Each has ``free_rk`` left of ``resources``, and ``total_sk`` in all of those in SCORED.
    """

    resources: tuple[str, ...]
    scored: list[int]
    pool_k: IntArray
    count_k: IntArray
    free_rk: FloatArray
    total_sk: FloatArray

    @classmethod
    def of(cls, cells: Cells) -> ReportedNodes:
        """Read the nodes off the cells of a report that has allocatable amounts."""
        if cells.allocatable_rk is None:
            raise ValueError("the cluster does not report what its nodes have allocatable")
        return cls(
            resources=cells.resources,
            scored=[cells.resources.index(name) for name in SCORED],
            pool_k=cells.pool_k.astype(np.int64),
            count_k=cells.count_k.astype(np.int64),
            free_rk=cells.min_rk.astype(np.float64),
            total_sk=np.maximum(cells.allocatable_rk, 1).astype(np.float64),
        )

    def filled(
        self, demand: DemandOnWay, margin: int, allowed: Mapping[LumpKey, int] | None = None
    ) -> Filled:
        """Place pods, with ``margin`` times the small ones: small ones first, the largest last.

        Stop once more large pods of a kind are missing than ``allowed``.
        """
        free_rk, late = (self.free_rk, False) if not margin else self._beside(demand.small, margin)
        placing = _Placing(
            np.floor(free_rk + _ROUNDING), self.count_k, self.total_sk, self.pool_k, self.scored
        )
        missing = Counter[LumpKey]()
        for key, lump in sorted(
            demand.lumps.items(), key=lambda item: (item[1].share, str(item[0]))
        ):
            pods = lump.replicas if lump.is_large else lump.replicas * margin
            if not pods:
                continue
            placing, lost = placing.with_pods(lump.mean_r, suiting_pools(key[0]), pods)
            late = late or lost > 0
            if lost and lump.is_large:
                missing[key] = lost
                if allowed is not None and lost > allowed.get(key, 0):
                    return Filled(placing, missing, late, is_incomplete=True)
        is_tight = allowed is None and any(
            not placing.fits_k(lump.mean_r, suiting_pools(key[0])).any()
            for key, lump in demand.lumps.items()
            if lump.is_large
        )
        return Filled(placing, missing, late, is_tight=is_tight)

    def may_take_node_of(
        self, large: Iterable[tuple[Suiting, FloatArray]], suiting: Suiting, amount_r: FloatArray
    ) -> bool:
        """Tell whether a pod may take a reported node with room for one of the large pods."""
        may_k = suiting_pools(suiting)[self.pool_k] & self._has_room_k(amount_r)
        return any(
            bool((may_k & suiting_pools(pools)[self.pool_k] & self._has_room_k(large_r)).any())
            for pools, large_r in large
        )

    def _has_room_k(self, amount_r: FloatArray) -> BoolArray:
        """Tell which nodes have room for a pod of these amounts, as reported."""
        (row_q,) = amount_r.nonzero()
        left_rk = self.free_rk[row_q] - amount_r[row_q, np.newaxis]
        has_room_k: BoolArray = (left_rk.min(axis=0, initial=0.0) >= 0) & (self.count_k > 0)
        return has_room_k

    def _beside(self, small: Mapping[Suiting, FloatArray], margin: int) -> tuple[FloatArray, bool]:
        """Return the amounts left beside ``margin`` times the small pods; True: some are late.

        Pods that suit the fewest nodes come first.
        """
        demands = [
            (suiting_pools(suiting)[self.pool_k], amount_r * margin)
            for suiting, amount_r in sorted(small.items())
        ]
        if len(demands) > 1:
            demands.sort(key=lambda demand: int((demand[0] * self.count_k).sum()))
        free_rk, late = self.free_rk, False
        for suiting_k, demand_r in demands:
            part_k, is_all = self._parts_k(free_rk, suiting_k, demand_r)
            free_rk = free_rk - demand_r[:, np.newaxis] * part_k
            late = late or not is_all
        return free_rk, late

    def _parts_k(
        self, free_rk: FloatArray, suiting_k: BoolArray, demand_r: FloatArray
    ) -> tuple[FloatArray, bool]:
        """Return the part of the demand that each node takes, and whether that is all of it.

        Each pod goes to the node with the largest free share, so that all nodes with pods end at
        the same free share, or are full.
        """
        (row_q,) = np.nonzero(demand_r)
        fits_k = (free_rk[row_q] / demand_r[row_q, np.newaxis]).min(axis=0)
        most_k: FloatArray = np.maximum(fits_k, 0.0) * suiting_k
        if float(most_k @ self.count_k) <= 1.0:
            return most_k, False
        left_k = (free_rk[self.scored] / self.total_sk).sum(axis=0)
        slope_k = (demand_r[self.scored, np.newaxis] / self.total_sk).sum(axis=0)
        slope_k = np.maximum(slope_k, _MIN_SLOPE)
        level = _water_level(left_k, left_k - most_k * slope_k, self.count_k / slope_k)
        part_k: FloatArray = np.minimum(np.maximum(left_k - level, 0.0) / slope_k, most_k)
        part_k /= float(part_k @ self.count_k)
        return part_k, True


def _water_level(high_k: FloatArray, low_k: FloatArray, rate_k: FloatArray) -> float:
    """Return the level at which sum(rate * (high - max(level, low))) over the cells above it is 1.

    The sum down to ``low_k`` is more than 1.
    """
    edge_i = np.concatenate([high_k, low_k])
    order_i = np.argsort(-edge_i, kind="stable")
    edge_i = edge_i[order_i]
    rate_i = np.concatenate([rate_k, -rate_k])[order_i].cumsum()[:-1]
    sum_i = (rate_i * (edge_i[:-1] - edge_i[1:])).cumsum()
    place = min(int(sum_i.searchsorted(1.0)), len(sum_i) - 1)
    surplus = float(sum_i[place]) - 1.0
    return float(edge_i[place + 1]) + surplus / max(float(rate_i[place]), _MIN_RATE)


class _Placing(NamedTuple):
    """Cells (axis k) of ``count_k`` nodes in the pool ``pool_k``, while pods are placed on them.

    ``free_rk`` is what each node has left (axis r), ``total_sk`` all it has in SCORED (axis s).
    """

    free_rk: FloatArray
    count_k: IntArray
    total_sk: FloatArray
    pool_k: IntArray
    scored: Sequence[int]

    def fits_k(self, amount_r: FloatArray, suiting_p: BoolArray) -> FloatArray:
        """Return how many pods of these amounts each node takes."""
        (row_q,) = amount_r.nonzero()
        quotient_k = (self.free_rk[row_q] / amount_r[row_q, np.newaxis]).min(axis=0)
        fits_k: FloatArray = np.floor(quotient_k) * suiting_p[self.pool_k]
        return fits_k

    def with_pods(
        self, amount_r: FloatArray, suiting_p: BoolArray, replicas: int
    ) -> tuple[_Placing, int]:
        """Place pods of one kind, each on the node with the largest free share after it.

        The second value is the number of pods without a node.
        """
        fits_k = self.fits_k(amount_r, suiting_p)
        (cell_i,) = ((fits_k > 0) & (self.count_k > 0)).nonzero()
        if not len(cell_i):
            return self, replicas
        count_i = self.count_k[cell_i]
        fits_i = np.minimum(fits_k[cell_i], replicas)
        placed = min(replicas, int(fits_i @ count_i))
        free_ri, total_si = self.free_rk[:, cell_i], self.total_sk[:, cell_i]
        slope_i = (amount_r[self.scored, np.newaxis] / total_si).sum(axis=0)
        left_i = (free_ri[self.scored] / total_si).sum(axis=0) - slope_i
        # The free share of a node after its first pod, its second, and so on (axis j).
        pods_j1 = np.arange(int(fits_i.max()))[:, np.newaxis]
        left_ji = np.where(pods_j1 < fits_i, left_i - pods_j1 * slope_i, -np.inf)
        turn_t = np.argsort(-left_ji, axis=None, kind="stable")[:placed] % len(cell_i)
        end_t = count_i[turn_t].cumsum()
        last = int(end_t.searchsorted(placed))
        taken_i = np.bincount(turn_t[:last], minlength=len(cell_i))
        cell, nodes = int(turn_t[last]), placed - int(end_t[last]) + int(count_i[turn_t[last]])
        if nodes == count_i[cell]:
            taken_i[cell] += 1
        free_rk = self.free_rk.copy()
        free_rk[:, cell_i] = free_ri - amount_r[:, np.newaxis] * taken_i
        filled = self._replace(free_rk=free_rk)
        if nodes < count_i[cell]:
            filled = filled.divided(int(cell_i[cell]), nodes, amount_r)
        return filled, replicas - placed

    def divided(self, cell: int, nodes: int, amount_r: FloatArray) -> _Placing:
        """Place one more pod on each of some nodes of a cell."""
        count_k = np.append(self.count_k, nodes)
        count_k[cell] -= nodes
        return self._replace(
            free_rk=np.column_stack([self.free_rk, self.free_rk[:, cell] - amount_r]),
            count_k=count_k,
            total_sk=np.column_stack([self.total_sk, self.total_sk[:, cell]]),
            pool_k=np.append(self.pool_k, self.pool_k[cell]),
        )


# By the reported nodes, which many reports and all states of a cluster share.
NEWEST_REHEARSED: Final[WeakKeyDictionary[Pools, RehearsedPromises]] = WeakKeyDictionary()


@dataclass(slots=True, eq=False)
class NodeCaches:
    """Cached results about the nodes of a report; each is stored with the promises it holds for.

    ``rehearsed``: the newest rehearsal; ``rehearsed_room``: the room it left, by shape.
    ``holds_large``: whether any promise is large. ``demand``: the demand of all promises, and
    ``filled``: the nodes with it. ``beside_large``: how many replicas fit beside large pods, by
    question. ``shares``: the share of a node that a pod takes, by request. Each field is replaced
    as one value, because several threads may read it.
    """

    rehearsed: RehearsedPromises = field(default_factory=RehearsedPromises)
    rehearsed_room: tuple[Held, dict[Shape, RehearsedRoom]] | None = None
    nodes: ReportedNodes | None = None
    holds_large: tuple[Held | None, bool] = (None, False)
    demand: tuple[Held | None, DemandOnWay | None] = (None, None)
    filled: tuple[Held | None, Filled | None] = (None, None)
    beside_large: tuple[Held | None, dict[Hashable, tuple[int, Reason]]] = (None, {})
    shares: dict[Hashable, float] = field(default_factory=dict)
