"""What promises that are on no node yet leave of the bounds of cells, wherever their pods land.

Pure, whole-array. Holds for every placer, so it must not assume where anything goes.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np

from federation.capacity.fleet_cells import CellBlock, FleetCells
from federation.capacity.pool_estimates import PoolBounds, block_verdicts
from federation.capacity.prices import PriceLists
from federation.model.arrays import BoolArray, IntArray
from federation.model.estimate import MAX_REPLICAS
from federation.model.pools.bounds import fit_k, per_replica
from federation.model.pools.matching import Match, pool_match
from federation.model.reservations import Outstanding
from federation.model.resources import PODS
from federation.model.shapes import Shape, request_shape
from federation.model.workload import NodeClaim, ReplicaRequirements

# Sums of amounts stay below this, else they are not reckoned with: int64 holds twice as much.
_SAFE: Final = 2.0**62
# Kinds that nothing is promised of any more are kept until there are so many.
_MOST_UNUSED: Final = 256
_NOTHING: Final = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Kind:
    """What replicas are told apart by here."""

    shape: Shape
    claim: NodeClaim | None

    @classmethod
    def of(cls, requirements: ReplicaRequirements) -> Kind:
        return cls(request_shape(requirements.request), requirements.node_claim)

    @property
    def demanded(self) -> dict[str, int]:
        """What one replica takes."""
        return per_replica(dict(self.shape))

    @property
    def key(self) -> Hashable:
        return self.shape, self.claim and self.claim.key


class _Part(NamedTuple):
    """What is promised in one cluster, and the rows it comes to; known by its identity."""

    promised: Sequence[Outstanding]
    rows: IntArray


@dataclass(frozen=True, kw_only=True, eq=False)
class PromisedColumns:
    """All that is outstanding in the cells of a fleet, in columns (axis i).

    ``kinds`` are the distinct shapes and claims (axis g). Of ``to_pack_i`` replicas nothing else
    makes room; ``replicas_i`` also has those that take the place of older pods.
    """

    position_i: IntArray
    kind_i: IntArray
    replicas_i: IntArray
    to_pack_i: IntArray
    kinds: tuple[Kind, ...]
    _parts: Mapping[int, _Part]
    _places: Mapping[Hashable, int]

    @classmethod
    def of(cls, outstanding: Mapping[int, Sequence[Outstanding]]) -> PromisedColumns:
        return cls(
            position_i=_NOTHING,
            kind_i=_NOTHING,
            replicas_i=_NOTHING,
            to_pack_i=_NOTHING,
            kinds=(),
            _parts={},
            _places={},
        ).after(outstanding)

    def after(self, outstanding: Mapping[int, Sequence[Outstanding]]) -> PromisedColumns:
        """Those of a newer state; only where something else is outstanding is it read again."""
        if len(self.kinds) > _MOST_UNUSED + 2 * len(self.kind_i):
            return PromisedColumns.of(outstanding)
        kinds, places = list(self.kinds), dict(self._places)
        parts: dict[int, _Part] = {}
        for promised in outstanding.values():
            part = self._parts.get(id(promised))
            if part is None:
                part = _Part(promised, _rows(promised, kinds, places))
            parts[id(promised)] = part
        rows = [parts[id(promised)].rows for promised in outstanding.values()]
        column_i = np.concatenate([np.zeros((0, 3), dtype=np.int64), *rows]).T
        return PromisedColumns(
            position_i=np.repeat(
                np.array(list(outstanding), dtype=np.int64), [len(each) for each in rows]
            ),
            kind_i=column_i[0],
            replicas_i=column_i[1],
            to_pack_i=column_i[2],
            kinds=tuple(kinds),
            _parts=parts,
            _places=places,
        )

    @cached_property
    def amounts(self) -> Mapping[str, IntArray]:
        """What one replica of each kind takes, by resource."""
        names = dict.fromkeys(name for each in self.kinds for name, _ in each.shape)
        of_kind = [dict(each.shape) for each in self.kinds]
        amounts = {
            name: np.array([each.get(name, 0) for each in of_kind], dtype=np.int64)
            for name in names
        }
        return {**amounts, PODS: np.ones(len(self.kinds), dtype=np.int64)}

    def taken_g(self, name: str) -> IntArray:
        """What one replica of each kind takes of a resource."""
        found = self.amounts.get(name)
        return np.zeros(len(self.kinds), dtype=np.int64) if found is None else found


def _rows(
    promised: Sequence[Outstanding], kinds: list[Kind], places: dict[Hashable, int]
) -> IntArray:
    """What one cluster has outstanding: kind, replicas, and those to pack; adds new kinds."""
    rows = []
    for each in promised:
        if each.in_cells > 0:
            kind = Kind.of(each.requirements)
            place = places.setdefault(kind.key, len(kinds))
            if place == len(kinds):
                kinds.append(kind)
            rows.append((place, each.in_cells, each.to_pack))
    return np.array(rows, dtype=np.int64).reshape(len(rows), 3)


def bounds_beside(
    cells: FleetCells,
    bounds: PoolBounds,
    requirements: ReplicaRequirements,
    promised: PromisedColumns,
) -> PoolBounds:
    """The bounds of a fleet's cells beside what is promised in them; nothing is exact there.

    A promised replica takes from the node it lands on at most what its largest amount is worth,
    and all of them together at most what their amounts can buy: the lesser loss counts. Where
    promised replicas of the same kind do not land, no more of them would either: so many less fit
    at most.
    """
    if not len(promised.position_i):
        return bounds
    demanded = per_replica(requirements.request)
    rival_i = _rivals(cells, requirements.node_claim, promised)
    lost_c = _lost_by_replica(len(cells), demanded, promised, rival_i)
    lower_c = np.maximum(bounds.lower_c - lost_c, 0)
    for block in cells.blocks:
        if lost_c[block.here].any():
            left_c = _left_by_amount(block, demanded, requirements.node_claim, promised, rival_i)
            lower_c[block.here] = np.maximum(lower_c[block.here], left_c)
    like_i = _like(requirements, promised)
    like_c = np.zeros(len(cells), dtype=np.int64)
    np.add.at(like_c, promised.position_i[like_i], promised.to_pack_i[like_i])
    # What is more than can be told stays more.
    less_c = np.where(bounds.upper_c < MAX_REPLICAS, bounds.upper_c - like_c, bounds.upper_c)
    beside_c = np.zeros(len(cells), dtype=np.bool_)
    beside_c[promised.position_i] = True
    return replace(
        bounds,
        lower_c=np.where(bounds.answered_c, lower_c, bounds.lower_c),
        upper_c=np.maximum(less_c, lower_c),
        beside_promises_c=beside_c,
    )


def _rivals(cells: FleetCells, claim: NodeClaim | None, promised: PromisedColumns) -> BoolArray:
    """Which of what is promised might land on a node that surely suits the claim."""
    claims = [each.claim for each in promised.kinds]
    if claim is None and not any(claims):
        return np.ones(len(promised.position_i), dtype=np.bool_)
    known: dict[tuple[int, int], bool] = {}
    rival_i = np.ones(len(promised.position_i), dtype=np.bool_)
    pairs = zip(promised.position_i.tolist(), promised.kind_i.tolist(), strict=True)
    for i, pair in enumerate(pairs):
        position, kind = pair
        if pair not in known:
            known[pair] = _may_meet(cells, position, claim, claims[kind])
        rival_i[i] = known[pair]
    return rival_i


def _may_meet(
    cells: FleetCells, position: int, claim: NodeClaim | None, other: NodeClaim | None
) -> bool:
    pools = cells.pools[position]
    return pools is not None and any(
        pool_match(pool, pools.label_keys, claim) is Match.YES
        and pool_match(pool, pools.label_keys, other) is not Match.NO
        for pool in pools.pools
    )


def _like(requirements: ReplicaRequirements, promised: PromisedColumns) -> BoolArray:
    """Which of what is promised stands in for replicas of these requirements."""
    shape = sorted(per_replica(requirements.request).items())
    like_g = [
        sorted({**dict(each.shape), PODS: 1}.items()) == shape
        and each.claim == requirements.node_claim
        for each in promised.kinds
    ]
    return np.array(like_g, dtype=np.bool_)[promised.kind_i]


def _lost_by_replica(
    size: int, demanded: Mapping[str, int], promised: PromisedColumns, rival_i: BoolArray
) -> IntArray:
    """Replica by replica, by cluster; at most MAX_REPLICAS for each of what is promised."""
    worth_g = np.ones(len(promised.kinds), dtype=np.int64)
    for name, amount in demanded.items():
        taken_g = promised.taken_g(name)
        np.maximum(worth_g, taken_g // amount + (taken_g % amount > 0), out=worth_g)
    worth_i = np.minimum(worth_g, MAX_REPLICAS)[promised.kind_i]
    lost_c = np.zeros(size, dtype=np.int64)
    lost_i = np.minimum(worth_i * promised.replicas_i, MAX_REPLICAS)
    np.add.at(lost_c, promised.position_i[rival_i], lost_i[rival_i])
    return lost_c


def _left_by_amount(
    block: CellBlock,
    demanded: Mapping[str, int],
    claim: NodeClaim | None,
    promised: PromisedColumns,
    rival_i: BoolArray,
) -> IntArray:
    """What the minimums hold less what the amounts that are promised can buy of it, 0 or more."""
    verdict_k = block_verdicts(block, claim)
    fits_k = fit_k(block.cells, demanded)
    if verdict_k is not None:
        fits_k *= verdict_k == Match.YES
    room_k = fits_k * block.cells.count_k
    left_c: IntArray = np.add.reduceat(room_k, block.first_c)
    if not left_c.any():
        return left_c
    taken = {name: _taken(block, promised.taken_g(name), promised, rival_i) for name in demanded}
    taken_rc = [taken_c for taken_c in taken.values() if taken_c is not None]
    if len(taken_rc) < len(taken):
        return np.zeros(len(block), dtype=np.int64)
    budget_rc = np.array(taken_rc)
    is_taken_c: BoolArray = np.logical_or.reduce(budget_rc > 0, axis=0)
    prices = PriceLists.of(block, demanded, fits_k, is_taken_c)
    left_c -= prices.bought(budget_rc, np.arange(len(block)))
    return np.clip(left_c, 0, MAX_REPLICAS)


def _taken(
    block: CellBlock, taken_g: IntArray, promised: PromisedColumns, rival_i: BoolArray
) -> IntArray | None:
    """What is promised of a resource in all, by cluster of the block; None beyond int64."""
    inside_i = rival_i & (promised.position_i >= block.start)
    inside_i &= promised.position_i < block.start + len(block)
    amount_i, replicas_i = taken_g[promised.kind_i[inside_i]], promised.replicas_i[inside_i]
    if float((amount_i.astype(np.float64) * replicas_i).sum()) >= _SAFE:
        return None
    taken_c = np.zeros(len(block), dtype=np.int64)
    np.add.at(taken_c, promised.position_i[inside_i] - block.start, amount_i * replicas_i)
    return taken_c
