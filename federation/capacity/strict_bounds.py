"""Strict promises: a bound on the replicas that others can prevent, for every placer and order.

Pure, whole-array. Must not assume where any pod goes.

A node loses replicas of a kind by the one resource r of which rivals leave too little there. Let a
rate say how many replicas a request's worth of each resource is charged. At any rate, for a node:

    lost <= sum over r of rate_r * taken_r / request_r + excess(rate)

where the excess is the most by which lost replicas are worth more than what it takes to lose them.
A rival pod is charged for its dearest resource only, and for no more replicas than it can prevent.
So the replicas that a cluster loses are at most the charges of all rivals and the excess of all
nodes, at the rate for which that sum is least. We try 145 rates for cpu, memory and pods.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import product
from typing import Final, TypeAlias

import numpy as np

from federation.capacity.fleet_cells import CellBlock, FleetCells
from federation.capacity.promise_sums import OutstandingByKind
from federation.capacity.promised_bounds import Kind
from federation.model.arrays import BoolArray, FloatArray, IntArray, LevelArray
from federation.model.pools.bounds import fit_k
from federation.model.pools.matching import Match
from federation.model.pools.values import Cells, Pools
from federation.model.quantity import divide_up
from federation.model.reservations import Outstanding, PromiseCertificate
from federation.model.resources import PODS
from federation.model.workload import ReplicaRequirements

# Bounds the cache, cells aside.
MAX_HOLD_BYTES: Final = 32 << 20
# Blocks that reports have replaced; a block of 64 clusters with 256 cells takes 1.8 MB.
MAX_FORMER_BLOCKS: Final = 16
# Claims of rivals that the cache of one kind covers.
MAX_RIVALS: Final = 256
# Pairs of kinds whose charges are cached, 1 KiB each.
_MAX_CHARGES: Final = 8192
# Keeps float rounding from making a loss smaller than it is.
_CAUTION: Final = 1e-9
# Replicas a request's worth. Nodes mostly have more pod slots than their replicas need.
RATES: Final = (0.5, 1.0, 1.5, 3.0, 8.0, 24.0)
SLOT_RATES: Final = (1 / 64, 1 / 16, 1 / 4, 1.0)
# The rate at which a pod is charged for all that it can prevent, and the excess is 0.
ANY_RATE: Final = 1e30

# A replica's amount of each resource.
_Taken: TypeAlias = tuple[tuple[str, int], ...]


@lru_cache
def rates_of(resources: tuple[str, ...]) -> FloatArray:
    """Return rates (axis q) by resource (axis r): one resource at one rate, others at another."""
    places = [place for place, name in enumerate(resources) if name != PODS]
    chosen = {(ANY_RATE,) * len(resources): None}
    for slots, usual, other, place in product(SLOT_RATES, RATES, RATES, places or [0]):
        row = [slots if name == PODS else usual for name in resources]
        if places:
            row[place] = other
        chosen[tuple(row)] = None
    return np.array(list(chosen))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Hold:
    """Replicas of one kind that the reported cells of a block hold, without any promise.

    ``room_c`` is their number in each cluster (axis c), ``excess_qc`` the excess of its nodes at
    each rate (axis q). The cells of a cluster begin at ``first_c``. ``cached_shared`` says, by the
    claim of rivals, where they may land on the same nodes.
    """

    first_c: IntArray
    taken: _Taken
    claim_key: Hashable
    verdict_k: LevelArray | None
    room_c: IntArray
    excess_qc: FloatArray
    cached_shared: dict[Hashable, BoolArray | None] = field(default_factory=dict)

    @classmethod
    def of(cls, block: CellBlock, kind: Kind) -> _Hold:
        demanded, verdict_k = kind.demanded, block.cell_verdicts(kind.claim)
        fits_k = fit_k(block.cells, demanded)
        if verdict_k is not None:
            fits_k *= verdict_k == Match.YES
        return cls(
            first_c=block.first_c,
            taken=tuple(demanded.items()),
            claim_key=kind.claim and kind.claim.key,
            verdict_k=verdict_k,
            room_c=np.add.reduceat(fits_k * block.cells.count_k, block.first_c),
            excess_qc=_excess(block, demanded, fits_k),
        )

    @property
    def bytes(self) -> int:
        """The size in memory, without ``cached_shared``, which has a few bytes a cluster."""
        verdicts = 0 if self.verdict_k is None else self.verdict_k.nbytes
        return self.excess_qc.nbytes + self.room_c.nbytes + verdicts

    def shares_nodes_c(self, rival: _Hold) -> BoolArray | None:
        """Tell where the rival may land on a node that surely suits this kind; None: everywhere."""
        if self.verdict_k is None and rival.verdict_k is None:
            return None
        if rival.claim_key not in self.cached_shared:
            may_k = True if rival.verdict_k is None else rival.verdict_k != Match.NO
            surely_k = True if self.verdict_k is None else self.verdict_k == Match.YES
            if len(self.cached_shared) >= MAX_RIVALS:
                self.cached_shared.clear()
            shared_c: BoolArray = np.logical_or.reduceat(may_k & surely_k, self.first_c)
            self.cached_shared[rival.claim_key] = None if shared_c.all() else shared_c
        return self.cached_shared[rival.claim_key]

    def charges(self, rivals: Sequence[_Hold]) -> FloatArray:
        """Return the most that a pod of each rival (axis g) is charged at each rate (axis q)."""
        return np.array([_charge_q(self.taken, rival.taken) for rival in rivals])


@lru_cache(_MAX_CHARGES)
def _charge_q(own: _Taken, rival: _Taken) -> FloatArray:
    """Return the charge of a pod at each rate, at most the number of replicas it can prevent."""
    taken = dict(rival)
    share_r = np.array([taken.get(name, 0) / amount for name, amount in own])
    max_prevented = max(divide_up(taken.get(name, 0), amount) for name, amount in own)
    rate_qr = rates_of(tuple(name for name, _ in own))
    charge_q: FloatArray = np.minimum((share_r * rate_qr).max(axis=1), max_prevented)
    return charge_q


def _excess(block: CellBlock, demanded: Mapping[str, int], fits_k: IntArray) -> FloatArray:
    """Return the excess at each rate (axis q) of all nodes of each cluster (axis c).

    Rivals must take of one resource what replicas leave over, and one more, before the first is
    lost; each further one takes a whole request. With n lost at rate q:
    excess = max over n of n - rate * (taken by the first + n - 1), largest at n = 0, 1 or all.
    """
    rate_qr = rates_of(tuple(demanded))
    excess_qc = np.zeros((len(rate_qr), len(block)))
    (j,) = np.nonzero(fits_k * block.cells.count_k)
    if not len(j):
        return excess_qc
    cells, cluster_j, fit_j = block.cells, block.cluster_k[j], fits_k[j]
    excess_qj = np.zeros((len(rate_qr), len(j)))
    for (name, amount), rate_q in zip(demanded.items(), rate_qr.T, strict=True):
        free_j = cells.min_rk[cells.resources.index(name), j]
        # In replicas' requests: the amount to be taken before the first replica is lost.
        first_j = (free_j - fit_j * amount + 1) / amount
        rate_v, place_q = np.unique(rate_q, return_inverse=True)
        rate_v1 = rate_v[:, np.newaxis]
        gain_vj = np.maximum(1 - rate_v1 * first_j, fit_j - rate_v1 * (first_j + (fit_j - 1)))
        np.maximum(excess_qj, gain_vj[place_q], out=excess_qj)
    excess_qj *= cells.count_k[j]
    first_p = np.flatnonzero(np.diff(cluster_j, prepend=-1))
    excess_qc[:, cluster_j[first_p]] = np.add.reduceat(excess_qj, first_p, axis=1)
    return excess_qc


class StrictHolds:
    """Cached holds of blocks by kind. Blocks never change.

    Belongs to one fleet and its successors. Bounded in bytes: the least recently used are dropped
    first. Bounded also in blocks that left the fleet, because their cells are kept alive.
    """

    def __init__(self, max_bytes: int = MAX_HOLD_BYTES) -> None:
        self._max_bytes = max_bytes
        # With its cells, so that their identity is not given to another object.
        self._holds: OrderedDict[tuple[int, Hashable], tuple[Cells, _Hold]] = OrderedDict()
        self._blocks: set[int] = set()
        self._bytes = 0

    @property
    def bytes(self) -> int:
        """The size in memory, without cells."""
        return self._bytes

    @property
    def blocks(self) -> int:
        """About the number of blocks whose cells are kept alive."""
        return len(self._blocks)

    def of(self, block: CellBlock, kind: Kind) -> _Hold:
        """Return the hold of a block, computed on the first use."""
        # By their cells, which a block keeps when it moves in the fleet.
        key = id(block.cells), kind.key
        cached = self._holds.get(key)
        if cached is not None:
            self._holds.move_to_end(key)
            return cached[1]
        hold = _Hold.of(block, kind)
        self._holds[key] = block.cells, hold
        self._blocks.add(key[0])
        self._bytes += hold.bytes
        while self._bytes > self._max_bytes and len(self._holds) > 1:
            self._drop(next(iter(self._holds)))
        return hold

    def keep_to(self, blocks: Collection[CellBlock]) -> None:
        """Drop blocks that left the fleet, once there are many of them."""
        if len(self._blocks) <= len(blocks) + MAX_FORMER_BLOCKS:
            return
        current = {id(block.cells) for block in blocks}
        for key in [key for key in self._holds if key[0] not in current]:
            self._drop(key)
        self._blocks = {key[0] for key in self._holds}

    def _drop(self, key: tuple[int, Hashable]) -> None:
        _, hold = self._holds.pop(key)
        self._bytes -= hold.bytes


def max_strict_c(
    cells: FleetCells,
    holds: StrictHolds,
    by_kind: OutstandingByKind,
    requirements: ReplicaRequirements,
    is_strict_c: BoolArray,
    limit_c: IntArray,
) -> IntArray:
    """Return the most further replicas, up to ``limit_c``, that leave all strict promises sure.

    They are strict themselves at ``is_strict_c``. ``cells`` are as reported.
    """
    kind, max_c = Kind.of(requirements), limit_c.copy()
    by_kind = by_kind.including(kind)
    holds.keep_to(cells.blocks)
    for block in cells.blocks:
        limit_b = limit_c[block.here]
        if limit_b.any():
            is_strict_b = is_strict_c[block.here] & (limit_b > 0)
            kinds = _KindsInBlock.of(block, holds, by_kind, kind, is_strict_b)
            max_c[block.here] = kinds.max_additional(limit_b)
    return max_c


def strict_promises_hold(pools: Pools, outstanding: Sequence[Outstanding]) -> bool:
    """Tell whether all strict replicas of a cluster find room when all others come first."""
    present = [promise for promise in outstanding if promise.in_cells > 0]
    if not present:
        return True
    *first, last = present
    max_last = max_strict(pools, first, last.requirements, last.certificate, last.in_cells)
    return max_last == last.in_cells


def max_strict(
    pools: Pools,
    outstanding: Sequence[Outstanding],
    requirements: ReplicaRequirements,
    certificate: PromiseCertificate,
    limit: int,
) -> int:
    """Return ``max_strict_c`` of one cluster: a fleet of one."""
    max_c = max_strict_c(
        FleetCells.of([pools]),
        StrictHolds(),
        OutstandingByKind.of(1, {0: outstanding}),
        requirements,
        np.array([certificate is PromiseCertificate.STRICT]),
        np.array([limit], dtype=np.int64),
    )
    return int(max_c[0])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _KindsInBlock:
    """All kinds of outstanding replicas (axis g) in a block; further ones of kind ``added``."""

    holds: Sequence[_Hold]
    replicas_gc: IntArray
    strict_gc: BoolArray
    added: int

    @classmethod
    def of(
        cls,
        block: CellBlock,
        holds: StrictHolds,
        by_kind: OutstandingByKind,
        kind: Kind,
        is_strict_c: BoolArray,
    ) -> _KindsInBlock:
        replicas = [replicas_c[block.here] for replicas_c in by_kind.replicas]
        own = by_kind.places[kind.key]
        present = [g for g, replicas_c in enumerate(replicas) if g == own or replicas_c.any()]
        strict_gc = np.array([by_kind.is_strict[g][block.here] for g in present])
        place = present.index(own)
        strict_gc[place] |= is_strict_c
        return cls(
            holds=[holds.of(block, by_kind.kinds[g]) for g in present],
            replicas_gc=np.array([replicas[g] for g in present]),
            strict_gc=strict_gc,
            added=place,
        )

    def max_additional(self, limit_c: IntArray) -> IntArray:
        """Return the most further replicas: the least that any strict kind allows."""
        strict = np.flatnonzero(self.strict_gc.any(axis=1)).tolist()
        # Their own kind comes first: its bound is cheap, and lowers the limit for the others.
        for g in sorted(strict, key=lambda kind: kind != self.added):
            (cluster_c,) = np.nonzero(self.strict_gc[g] & (limit_c > 0))
            if len(cluster_c):
                limit_c = limit_c.copy()
                limit_c[cluster_c] = self._max_beside(g, limit_c[cluster_c], cluster_c)
        return limit_c

    def _max_beside(self, g: int, limit_c: IntArray, cluster_c: IntArray) -> IntArray:
        """Return the most further replicas in some clusters that leave strict kind g sure."""
        own, rivals_gc = self.holds[g], self.replicas_gc[:, cluster_c].astype(np.float64)
        spare_c = own.room_c[cluster_c] - self.replicas_gc[g, cluster_c]
        rivals_gc[g] = 0
        is_rival_c = np.ones(len(cluster_c), dtype=np.bool_)
        for place, rival in enumerate(self.holds):
            shared_c = None if place == g else own.shares_nodes_c(rival)
            if shared_c is not None:
                rivals_gc[place] *= shared_c[cluster_c]
                if place == self.added:
                    is_rival_c = shared_c[cluster_c]
        charge_gq = own.charges(self.holds)
        lost_qc = (own.excess_qc[:, cluster_c] + charge_gq.T @ rivals_gc) * (1 + _CAUTION)
        if g == self.added:
            max_c = spare_c - np.floor(lost_qc.min(axis=0))
        else:
            # A loss below spare + 1 is at most spare, because replicas are whole.
            left_qc = (spare_c + 1) * (1 - _CAUTION) - lost_qc
            max_c = np.ceil(left_qc / charge_gq[self.added][:, np.newaxis]).max(axis=0) - 1
            max_c = np.where(is_rival_c, max_c, np.where(left_qc.max(axis=0) > 0, limit_c, 0))
        whole_c: IntArray = np.clip(max_c, 0, limit_c).astype(np.int64)
        return whole_c
