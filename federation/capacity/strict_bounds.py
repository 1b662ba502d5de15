"""What strict promises rest on: how many replicas others can at most stand in the way of.

Pure, whole-array. Holds for every placer and every order, so it must not assume where anything
goes.

A node loses replicas of a kind by the one resource of which rivals leave too little there. At any
rate, in replicas by requests' worth of each resource, a node loses at most what it is charged at
that rate for what rivals take of it, and an excess: the most by which what is lost can be worth
more than what it takes to lose that. A rival is charged for the resource that comes dearest, and
never for more replicas than one of its pods can be in the way of. So the charges of all rivals
and the excess of all nodes, at whichever rate that is least, are the most that is lost.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import product
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from federation.capacity.contention import Contention
from federation.capacity.fleet_cells import CellBlock, FleetCells
from federation.capacity.pool_verdicts import block_verdicts
from federation.capacity.promised_bounds import Kind
from federation.model.arrays import BoolArray, FloatArray, IntArray
from federation.model.pools.bounds import fit_k
from federation.model.pools.matching import Match
from federation.model.pools.values import Cells, Pools
from federation.model.quantity import divide_up
from federation.model.reservations import Outstanding, PromiseCertificate
from federation.model.resources import PODS
from federation.model.workload import ReplicaRequirements

# Kept of what cells hold.
MAX_HOLD_BYTES: Final = 32 << 20
# Blocks of cells that reports have replaced; of 64 clusters with 256 cells one has 1.8 MB.
MAX_FORMER_BLOCKS: Final = 16
# Rivals of one kind, by claim.
MAX_RIVALS: Final = 256
# What pods of two kinds have to do with each other is kept for so many pairs, 1 KiB each.
_MOST_CHARGES: Final = 8192
# Rounding of floats must not make a loss smaller than it is.
_CAUTION: Final = 1e-9
# Replicas by requests' worth. Of pods' slots nodes mostly have more than their replicas need.
RATES: Final = (0.5, 1.0, 1.5, 3.0, 8.0, 24.0)
SLOT_RATES: Final = (1 / 64, 1 / 16, 1 / 4, 1.0)
# At this, a node is charged for all that one pod can be in the way of, and nothing is in excess.
ANY_RATE: Final = 1e30

# What one replica takes, by resource.
_Taken: TypeAlias = tuple[tuple[str, int], ...]


@lru_cache
def rates_of(resources: tuple[str, ...]) -> FloatArray:
    """Rates (axis q) of each resource (axis r): one at one rate and the others at another."""
    places = [place for place, name in enumerate(resources) if name != PODS]
    chosen = {(ANY_RATE,) * len(resources): None}
    for slots, usual, other, at in product(SLOT_RATES, RATES, RATES, places or [0]):
        row = [slots if name == PODS else usual for name in resources]
        if places:
            row[at] = other
        chosen[tuple(row)] = None
    return np.array(list(chosen))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Hold:
    """What the cells of a block surely hold of one kind of replica, whatever is promised.

    ``room_c`` is how many a cluster holds, ``excess_qc`` the excess of its nodes at each rate. Its
    cells begin at ``first_c``. ``known_met`` is where those of other claims may land, by their key.
    """

    first_c: IntArray
    taken: _Taken
    claim_key: Hashable
    verdict_k: npt.NDArray[np.int8] | None
    room_c: IntArray
    excess_qc: FloatArray
    known_met: dict[Hashable, BoolArray | None] = field(default_factory=dict)

    @classmethod
    def of(cls, block: CellBlock, kind: Kind) -> _Hold:
        demanded, verdict_k = kind.demanded, block_verdicts(block, kind.claim)
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
        """How much it takes, without what it says of rivals: a few bytes for each cluster."""
        verdicts = 0 if self.verdict_k is None else self.verdict_k.nbytes
        return self.excess_qc.nbytes + self.room_c.nbytes + verdicts

    def met_by(self, rival: _Hold) -> BoolArray | None:
        """Where the rival may land on a node that surely suits; None: everywhere."""
        if self.verdict_k is None and rival.verdict_k is None:
            return None
        if rival.claim_key not in self.known_met:
            may_k = True if rival.verdict_k is None else rival.verdict_k != Match.NO
            surely_k = True if self.verdict_k is None else self.verdict_k == Match.YES
            if len(self.known_met) >= MAX_RIVALS:
                self.known_met.clear()
            met_c: BoolArray = np.logical_or.reduceat(may_k & surely_k, self.first_c)
            self.known_met[rival.claim_key] = None if met_c.all() else met_c
        return self.known_met[rival.claim_key]

    def charges(self, rivals: Sequence[_Hold]) -> FloatArray:
        """What a pod of each rival (axis g) is charged at most, at each rate."""
        return np.array([_charge_q(self.taken, rival.taken) for rival in rivals])


@lru_cache(_MOST_CHARGES)
def _charge_q(own: _Taken, rival: _Taken) -> FloatArray:
    """What a pod is charged at each rate, and not for more than it can be in the way of."""
    taken = dict(rival)
    share_r = np.array([taken.get(name, 0) / amount for name, amount in own])
    most = max(divide_up(taken.get(name, 0), amount) for name, amount in own)
    rate_qr = rates_of(tuple(name for name, _ in own))
    charge_q: FloatArray = np.minimum((share_r * rate_qr).max(axis=1), most)
    return charge_q


def _excess(block: CellBlock, demanded: Mapping[str, int], fits_k: IntArray) -> FloatArray:
    """By how much, at each rate, what is lost can be worth more than what is taken.

    To lose the first of a node's replicas by a resource, one more is to be taken of it than they
    leave over; each further one takes a whole request. So the most is where none is lost, one, or
    all.
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
        first_j = (free_j - fit_j * amount + 1) / amount
        rate_v, place_q = np.unique(rate_q, return_inverse=True)
        rate_v1 = rate_v[:, np.newaxis]
        gain_vj = np.maximum(1 - rate_v1 * first_j, fit_j - rate_v1 * (first_j + (fit_j - 1)))
        np.maximum(excess_qj, gain_vj[place_q], out=excess_qj)
    excess_qj *= cells.count_k[j]
    first_p = np.flatnonzero(np.diff(cluster_j, prepend=-1))
    excess_qc[:, cluster_j[first_p]] = np.add.reduceat(excess_qj, first_p, axis=1)
    return excess_qc


class KnownHolds:
    """What blocks hold of kinds that were asked about before. Blocks never change.

    Belongs to one fleet and its successors. Bounded in bytes, those asked about longest ago are
    forgotten first; and in blocks that are no longer of the fleet, whose cells it keeps alive.
    """

    def __init__(self, max_bytes: int = MAX_HOLD_BYTES) -> None:
        self._max_bytes = max_bytes
        # With its cells: without a reference their identity may be given away.
        self._known: OrderedDict[tuple[int, Hashable], tuple[Cells, _Hold]] = OrderedDict()
        self._blocks: set[int] = set()
        self._bytes = 0

    @property
    def bytes(self) -> int:
        """How much is kept, without cells."""
        return self._bytes

    @property
    def blocks(self) -> int:
        """Of how many blocks, about, cells are kept alive."""
        return len(self._blocks)

    def of(self, block: CellBlock, kind: Kind) -> _Hold:
        # By their cells, which they keep when clusters come and leave before them.
        asked = id(block.cells), kind.key
        known = self._known.get(asked)
        if known is not None:
            self._known.move_to_end(asked)
            return known[1]
        hold = _Hold.of(block, kind)
        self._known[asked] = block.cells, hold
        self._blocks.add(asked[0])
        self._bytes += hold.bytes
        while self._bytes > self._max_bytes and len(self._known) > 1:
            self._forget(next(iter(self._known)))
        return hold

    def keep_to(self, blocks: Collection[CellBlock]) -> None:
        """Forget blocks that are no longer of the fleet, once there are many of them."""
        if len(self._blocks) <= len(blocks) + MAX_FORMER_BLOCKS:
            return
        current = {id(block.cells) for block in blocks}
        for asked in [asked for asked in self._known if asked[0] not in current]:
            self._forget(asked)
        self._blocks = {asked[0] for asked in self._known}

    def _forget(self, asked: tuple[int, Hashable]) -> None:
        _, hold = self._known.pop(asked)
        self._bytes -= hold.bytes


def strict_most_c(
    cells: FleetCells,
    known: KnownHolds,
    others: Contention,
    requirements: ReplicaRequirements,
    is_strict_c: BoolArray,
    limit_c: IntArray,
) -> IntArray:
    """The most more replicas, up to ``limit_c``, beside which every strict promise is sure of its
    room, theirs included where they are strict. ``cells`` are as reported.
    """
    more, most_c = Kind.of(requirements), limit_c.copy()
    every = others.including(more)
    known.keep_to(cells.blocks)
    for block in cells.blocks:
        limit_b = limit_c[block.here]
        if limit_b.any():
            asked = _Asked.of(block, known, every, more, is_strict_c[block.here] & (limit_b > 0))
            most_c[block.here] = asked.most(limit_b)
    return most_c


def strict_promises_hold(pools: Pools, outstanding: Sequence[Outstanding]) -> bool:
    """Whether all that is promised strictly in a cluster finds room when all others come first."""
    present = [each for each in outstanding if each.in_cells > 0]
    if not present:
        return True
    *others, last = present
    most = strict_most(pools, others, last.requirements, last.certificate, last.in_cells)
    return most == last.in_cells


def strict_most(
    pools: Pools,
    outstanding: Sequence[Outstanding],
    requirements: ReplicaRequirements,
    certificate: PromiseCertificate,
    limit: int,
) -> int:
    """``strict_most_c`` of one cluster: a fleet of one."""
    most_c = strict_most_c(
        FleetCells.of([pools]),
        KnownHolds(),
        Contention.of(1, {0: outstanding}),
        requirements,
        np.array([certificate is PromiseCertificate.STRICT]),
        np.array([limit], dtype=np.int64),
    )
    return int(most_c[0])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Asked:
    """More replicas of the kind at ``more`` in the clusters of a block, among all kinds there."""

    holds: Sequence[_Hold]
    replicas_gc: IntArray
    strict_gc: BoolArray
    more: int

    @classmethod
    def of(
        cls,
        block: CellBlock,
        known: KnownHolds,
        every: Contention,
        more: Kind,
        is_strict_c: BoolArray,
    ) -> _Asked:
        replicas = [replicas_c[block.here] for replicas_c in every.replicas]
        own = every.places[more.key]
        present = [g for g, replicas_c in enumerate(replicas) if g == own or replicas_c.any()]
        strict_gc = np.array([every.is_strict[g][block.here] for g in present])
        place = present.index(own)
        strict_gc[place] |= is_strict_c
        return cls(
            holds=[known.of(block, every.kinds[g]) for g in present],
            replicas_gc=np.array([replicas[g] for g in present]),
            strict_gc=strict_gc,
            more=place,
        )

    def most(self, limit_c: IntArray) -> IntArray:
        """The most replicas, by what each kind that is promised strictly leaves of that."""
        strict = np.flatnonzero(self.strict_gc.any(axis=1)).tolist()
        # What they themselves are sure of is known at once, and leaves less to be looked through.
        for g in sorted(strict, key=lambda each: each != self.more):
            (cluster_c,) = np.nonzero(self.strict_gc[g] & (limit_c > 0))
            if len(cluster_c):
                limit_c = limit_c.copy()
                limit_c[cluster_c] = self._most_beside(g, limit_c[cluster_c], cluster_c)
        return limit_c

    def _most_beside(self, g: int, limit_c: IntArray, cluster_c: IntArray) -> IntArray:
        """The most in some clusters with which the strict promises of one kind stay sure."""
        own, rivals_gc = self.holds[g], self.replicas_gc[:, cluster_c].astype(np.float64)
        spare_c = own.room_c[cluster_c] - self.replicas_gc[g, cluster_c]
        rivals_gc[g] = 0
        is_met_c = np.ones(len(cluster_c), dtype=np.bool_)
        for place, rival in enumerate(self.holds):
            met_c = None if place == g else own.met_by(rival)
            if met_c is not None:
                rivals_gc[place] *= met_c[cluster_c]
                if place == self.more:
                    is_met_c = met_c[cluster_c]
        charge_gq = own.charges(self.holds)
        lost_qc = (own.excess_qc[:, cluster_c] + charge_gq.T @ rivals_gc) * (1 + _CAUTION)
        if g == self.more:
            most_c = spare_c - np.floor(lost_qc.min(axis=0))
        else:
            # Less than a whole replica more than can be spared is none.
            left_qc = (spare_c + 1) * (1 - _CAUTION) - lost_qc
            most_c = np.ceil(left_qc / charge_gq[self.more][:, np.newaxis]).max(axis=0) - 1
            most_c = np.where(is_met_c, most_c, np.where(left_qc.max(axis=0) > 0, limit_c, 0))
        whole_c: IntArray = np.clip(most_c, 0, limit_c).astype(np.int64)
        return whole_c
