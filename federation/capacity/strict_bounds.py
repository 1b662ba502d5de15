"""What strict promises rest on: how many replicas others can at most stand in the way of.

Pure, whole-array. Holds for every placer and every order, so it must not assume where anything
goes.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from federation.capacity.contention import Contention
from federation.capacity.fleet_cells import CellBlock, FleetCells
from federation.capacity.pool_estimates import block_verdicts
from federation.capacity.prices import PriceLists
from federation.capacity.promised_bounds import Kind
from federation.model.arrays import BoolArray, IntArray
from federation.model.pools.bounds import fit_k
from federation.model.pools.matching import Match
from federation.model.pools.values import Cells, Pools
from federation.model.quantity import divide_up
from federation.model.reservations import Outstanding, PromiseCertificate
from federation.model.workload import ReplicaRequirements

# More than any sum that is compared here, and small enough to be added to another.
_ENDLESS: Final = 2**61
# Numbers kept of what cells hold, 8 bytes each.
_MOST_KNOWN: Final = 4_000_000


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Hold:
    """What the cells of a block surely hold of one kind of replica, whatever is promised.

    ``room_c`` is how many a cluster holds, ``prices`` what it takes that it holds fewer. Its cells
    begin at ``first_c``.
    """

    first_c: IntArray
    demanded: Mapping[str, int]
    verdict_k: npt.NDArray[np.int8] | None
    room_c: IntArray
    prices: PriceLists

    @classmethod
    def of(cls, block: CellBlock, kind: Kind) -> _Hold:
        demanded, verdict_k = kind.demanded, block_verdicts(block, kind.claim)
        fits_k = fit_k(block.cells, demanded)
        if verdict_k is not None:
            fits_k *= verdict_k == Match.YES
        room_c = np.add.reduceat(fits_k * block.cells.count_k, block.first_c)
        return cls(
            first_c=block.first_c,
            demanded=demanded,
            verdict_k=verdict_k,
            room_c=room_c,
            prices=PriceLists.of(block, demanded, fits_k, room_c > 0),
        )

    def met_by(self, rival: _Hold) -> BoolArray | None:
        """Where the rival may land on a node that surely suits; None: everywhere."""
        if self.verdict_k is None and rival.verdict_k is None:
            return None
        may_k = True if rival.verdict_k is None else rival.verdict_k != Match.NO
        surely_k = True if self.verdict_k is None else self.verdict_k == Match.YES
        met_c: BoolArray = np.logical_or.reduceat(may_k & surely_k, self.first_c)
        return met_c


class KnownHolds:
    """What blocks hold of kinds that were asked about before. Blocks never change.

    Belongs to one fleet and its successors. Forgets everything when that is too much.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[int, Hashable], tuple[Cells, _Hold]] = {}
        self._numbers = 0

    def of(self, block: CellBlock, kind: Kind) -> _Hold:
        # By their cells, which they keep when clusters come and leave before them.
        asked = id(block.cells), kind.key
        known = self._known.get(asked)
        if known is not None:
            return known[1]
        if self._numbers >= _MOST_KNOWN:
            self._known, self._numbers = {}, 0
        found = _Hold.of(block, kind)
        self._known[asked] = block.cells, found
        self._numbers += 3 * len(found.prices.price_s)
        return found


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
        own, rivals_gc = self.holds[g], self.replicas_gc[:, cluster_c]
        spare_c = own.room_c[cluster_c] - rivals_gc[g]
        rivals_gc[g] = 0
        more_is_met_c = np.ones(len(cluster_c), dtype=np.bool_)
        for place, rival in enumerate(self.holds):
            met_c = None if place == g else own.met_by(rival)
            if met_c is not None:
                rivals_gc[place] *= met_c[cluster_c]
                if place == self.more:
                    more_is_met_c = met_c[cluster_c]
        worth_g = [_worth(own.demanded, rival.demanded) for rival in self.holds]
        amount_rg = [[rival.demanded.get(name, 0) for rival in self.holds] for name in own.demanded]
        stand = _Stand(
            own=own,
            cluster_c=cluster_c,
            spare_c=spare_c,
            lost_c=_sums([worth_g], rivals_gc)[0],
            taken_rc=_sums(amount_rg, rivals_gc),
        )
        if g == self.more:
            return stand.most_own(limit_c)
        amount_r = np.array([amount_g[self.more] for amount_g in amount_rg], dtype=np.int64)
        return stand.most_of_rival(amount_r, worth_g[self.more], more_is_met_c, limit_c)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Stand:
    """One kind that is promised strictly against its rivals, in some clusters of a block (axis c
    here): ``spare_c`` are the replicas that there is room for beyond those promised.

    Rivals cost it at most ``lost_c``, as each takes from its node at most what its largest amount
    is worth; and at most what the amounts that all of them take, ``taken_rc``, can buy.
    """

    own: _Hold
    cluster_c: IntArray
    spare_c: IntArray
    lost_c: IntArray
    taken_rc: IntArray

    def most_own(self, limit_c: IntArray) -> IntArray:
        """The most more of the same kind."""
        bought_c = self.own.prices.bought(self.taken_rc, self.cluster_c)
        most_c: IntArray = np.clip(self.spare_c - np.minimum(self.lost_c, bought_c), 0, limit_c)
        return most_c

    def most_of_rival(
        self, amount_r: IntArray, worth: int, is_met_c: BoolArray, limit_c: IntArray
    ) -> IntArray:
        """The most more of another kind, which take so much each and cost this one ``worth`` so
        many each, where the two may meet.
        """
        left_c = self.spare_c - self.lost_c
        low_c = np.where(is_met_c, left_c // worth, limit_c)
        low_c = np.clip(np.where(left_c < 0, 0, low_c), 0, limit_c)
        high_c = np.where(self.spare_c < 0, 0, limit_c)
        probe_c = high_c
        while len(open_j := np.flatnonzero(low_c < high_c)):
            more_j = probe_c[open_j]
            bought_j = self._bought(amount_r, more_j * is_met_c[open_j], open_j)
            is_enough_j = bought_j <= self.spare_c[open_j]
            low_c[open_j] = np.where(is_enough_j, more_j, low_c[open_j])
            high_c[open_j] = np.where(is_enough_j, high_c[open_j], more_j - 1)
            probe_c = (low_c + high_c + 1) // 2
        return low_c

    def _bought(
        self, amount_r: IntArray, more_j: IntArray, place_j: npt.NDArray[np.intp]
    ) -> IntArray:
        """What can be bought in all with so many more that take so much each."""
        amount_r1 = amount_r[:, np.newaxis]
        is_countable_rj = more_j <= _ENDLESS // np.maximum(amount_r1, 1)
        added_rj = np.where(is_countable_rj, more_j * amount_r1, _ENDLESS)
        budget_rj = self.taken_rc[:, place_j] + added_rj
        return self.own.prices.bought(budget_rj, self.cluster_c[place_j])


def _worth(demanded: Mapping[str, int], taken: Mapping[str, int]) -> int:
    """How many replicas a node loses at most with one that takes so much."""
    return max(divide_up(taken.get(name, 0), amount) for name, amount in demanded.items())


def _sums(weight_rg: Sequence[Sequence[int]], replicas_gc: IntArray) -> IntArray:
    """Weighted sums over all kinds, by cluster; at most endless."""
    weights_rg = np.array(weight_rg, dtype=np.int64)
    about_rc = weights_rg.astype(np.float64) @ replicas_gc.astype(np.float64)
    return np.where(about_rc < _ENDLESS / 2, weights_rg @ replicas_gc, _ENDLESS)
