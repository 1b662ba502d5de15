"""What promises that are on no node yet leave of the bounds of cells, wherever their pods land.

Pure, whole-array. Holds for every placer, so it must not assume where anything goes.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import count
from typing import Final, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from federation.capacity.fleet_cells import CellBlock, FleetCells
from federation.capacity.pool_estimates import PoolBounds
from federation.capacity.pool_verdicts import pool_verdicts
from federation.capacity.prices import PriceLists
from federation.capacity.some_clusters import SomeClusters, in_tables
from federation.model.arrays import BoolArray, IntArray
from federation.model.estimate import MAX_REPLICAS
from federation.model.pools.bounds import fit_k, per_replica
from federation.model.pools.matching import Match
from federation.model.reservations import Outstanding
from federation.model.resources import PODS
from federation.model.shapes import Shape, request_shape
from federation.model.workload import NodeClaim, ReplicaRequirements

# Kinds that nothing is promised of any more are kept until there are so many.
_MOST_UNUSED: Final = 256
_NUMBERS: Final = count(1)
# More than all that cells hold costs: see PriceLists.
_ENDLESS: Final = 2**62

_Number = TypeVar("_Number", bound=np.generic)


def _nothing() -> IntArray:
    return np.zeros(0, dtype=np.int64)


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


@dataclass(frozen=True, kw_only=True, eq=False)
class _Kinds:
    """Distinct shapes and claims (axis g), and the place of each by its key."""

    every: tuple[Kind, ...] = ()
    places: Mapping[Hashable, int] = field(default_factory=dict)

    def including(self, more: Mapping[Hashable, tuple[int, Kind]]) -> _Kinds:
        """With more at the places behind the others; the very same where there are no more."""
        if not more:
            return self
        return _Kinds(
            every=(*self.every, *(kind for _, kind in more.values())),
            places={**self.places, **{key: place for key, (place, _) in more.items()}},
        )

    @cached_property
    def claims(self) -> tuple[NodeClaim | None, ...]:
        """The distinct claims of all kinds."""
        return tuple({each.claim and each.claim.key: each.claim for each in self.every}.values())

    @cached_property
    def claim_g(self) -> IntArray:
        """The place of each kind's claim among them."""
        places = {claim and claim.key: place for place, claim in enumerate(self.claims)}
        return np.array([places[each.claim and each.claim.key] for each in self.every], np.int64)

    def taken_g(self, name: str) -> IntArray:
        """What one replica of each kind takes of a resource."""
        taken_g = self._amounts.get(name)
        return np.zeros(len(self.every), dtype=np.int64) if taken_g is None else taken_g

    @cached_property
    def _amounts(self) -> Mapping[str, IntArray]:
        names = dict.fromkeys(name for each in self.every for name, _ in each.shape)
        amounts = {name: np.zeros(len(self.every), dtype=np.int64) for name in names}
        for place, each in enumerate(self.every):
            for name, amount in each.shape:
                amounts[name][place] = amount
        return {**amounts, PODS: np.ones(len(self.every), dtype=np.int64)}


class _Part(NamedTuple):
    """What is promised in one cluster, and the rows it comes to; known by its identity, and by a
    number that nothing else has.
    """

    promised: Sequence[Outstanding]
    rows: IntArray
    number: int


@dataclass(frozen=True, kw_only=True, eq=False)
class PromisedColumns:
    """All that is outstanding in the cells of a fleet, in columns (axis i); the rows of a cluster
    stand together.

    Of ``to_pack_i`` replicas nothing else makes room; ``replicas_i`` also has those that take the
    place of older pods. What was computed of a cluster's rows holds as long as they have the same
    number of ``number_p``, which nothing else has; the cluster stands at ``position_p``.
    """

    position_i: IntArray = field(default_factory=_nothing)
    kind_i: IntArray = field(default_factory=_nothing)
    replicas_i: IntArray = field(default_factory=_nothing)
    to_pack_i: IntArray = field(default_factory=_nothing)
    kinds: _Kinds = field(default_factory=_Kinds)
    position_p: IntArray = field(default_factory=_nothing)
    number_p: IntArray = field(default_factory=_nothing)
    _parts: Mapping[int, _Part] = field(default_factory=dict)

    @classmethod
    def of(cls, outstanding: Mapping[int, Sequence[Outstanding]]) -> PromisedColumns:
        return cls().after(outstanding)

    def after(self, outstanding: Mapping[int, Sequence[Outstanding]]) -> PromisedColumns:
        """Those of a newer state; only where something else is outstanding is it read again."""
        if len(self.kinds.every) > _MOST_UNUSED + 2 * len(self.kind_i):
            return PromisedColumns.of(outstanding)
        newcomers: dict[Hashable, tuple[int, Kind]] = {}
        parts = []
        for promised in outstanding.values():
            part = self._parts.get(id(promised))
            if part is None:
                rows = _rows(promised, self.kinds.places, newcomers)
                part = _Part(promised, rows, next(_NUMBERS))
            parts.append(part)
        every = np.concatenate(
            [np.zeros((3, 0), dtype=np.int64), *(each.rows for each in parts)], axis=1
        )
        positions = np.array(list(outstanding), dtype=np.int64)
        return PromisedColumns(
            position_i=positions.repeat([each.rows.shape[1] for each in parts]),
            kind_i=every[0],
            replicas_i=every[1],
            to_pack_i=every[2],
            kinds=self.kinds.including(newcomers),
            position_p=positions,
            number_p=np.array([each.number for each in parts], dtype=np.int64),
            _parts={id(each.promised): each for each in parts},
        )

    def number_c(self, size: int) -> IntArray:
        """The number of what is promised in each cluster of so many, 0 where nothing is."""
        number_c = np.zeros(size, dtype=np.int64)
        number_c[self.position_p] = self.number_p
        return number_c

    def sums(self, size: int, value_i: npt.NDArray[_Number]) -> npt.NDArray[_Number]:
        """The sums of what rows are worth, by cluster of so many."""
        sum_c = np.zeros(size, dtype=value_i.dtype)
        first_p = self._first_p
        sum_c[self.position_i[first_p]] = np.add.reduceat(value_i, first_p)
        return sum_c

    def to_pack_c(self, size: int, kind: Kind) -> IntArray:
        """What is to be packed of one kind, by cluster of so many."""
        place = self.kinds.places.get(kind.key)
        if place is None:
            return np.zeros(size, dtype=np.int64)
        return self.sums(size, self.to_pack_i * (self.kind_i == place))

    @cached_property
    def _first_p(self) -> IntArray:
        """Where the rows of each cluster begin that has any."""
        return np.flatnonzero(np.diff(self.position_i, prepend=-1))


def _rows(
    promised: Sequence[Outstanding],
    places: Mapping[Hashable, int],
    newcomers: dict[Hashable, tuple[int, Kind]],
) -> IntArray:
    """What one cluster has outstanding: kind, replicas, and those to pack; adds kinds that have no
    place yet.
    """
    rows = []
    for each in promised:
        if each.in_cells > 0:
            kind = Kind.of(each.requirements)
            key = kind.key
            place = places.get(key)
            if place is None:
                place, _ = newcomers.setdefault(key, (len(places) + len(newcomers), kind))
            rows.append((place, each.in_cells, each.to_pack))
    return np.array(rows, dtype=np.int64).reshape(len(rows), 3).T.copy()


def bounds_beside(
    cells: FleetCells,
    bounds: PoolBounds,
    requirements: ReplicaRequirements,
    promised: PromisedColumns,
    known_c: IntArray | None = None,
) -> PoolBounds:
    """The bounds of a fleet's cells beside what is promised in them; nothing is exact there.

    ``known_c``: lower bounds that were found of the same cells beside the same promises, negative
    where none was.

    A promised replica takes from the node it lands on at most what its largest amount is worth,
    and all of them together at most what their amounts can buy: the lesser loss counts. Where
    promised replicas of the same kind do not land, no more of them would either: so many less fit
    at most.
    """
    if not len(promised.position_i):
        return bounds
    claim, demanded = requirements.node_claim, per_replica(requirements.request)
    replicas_i = promised.replicas_i
    rival_i = _rivals(cells, claim, promised)
    if rival_i is not None:
        replicas_i = replicas_i * rival_i
    lost_c = _lost_by_replica(len(cells), demanded, promised, replicas_i)
    taken_rc = _taken(len(cells), demanded, promised, replicas_i)
    lower_c = np.maximum(bounds.lower_c - lost_c, 0)
    if known_c is not None:
        lower_c = np.where(known_c >= 0, known_c, lower_c)
        lost_c *= known_c < 0
    for here_c in in_tables(cells, np.flatnonzero(lost_c)):
        some = SomeClusters.of(cells, here_c, demanded, claim, with_sums=False)
        left_c = _left_by_amount(some, demanded, taken_rc[:, here_c], lower_c[here_c])
        lower_c[here_c] = np.maximum(lower_c[here_c], left_c)
    like_c = promised.to_pack_c(len(cells), Kind.of(requirements))
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


def _rivals(
    cells: FleetCells, claim: NodeClaim | None, promised: PromisedColumns
) -> BoolArray | None:
    """Which of what is promised might land on a node that surely suits the claim; None: all."""
    met_ch = np.ones((len(cells), len(promised.kinds.claims)), dtype=np.bool_)
    for block in cells.blocks:
        met_ch[block.here] = _met(block, claim, promised.kinds.claims)
    if met_ch.all():
        return None
    return met_ch[promised.position_i, promised.kinds.claim_g[promised.kind_i]]


def _met(
    block: CellBlock, claim: NodeClaim | None, others: Sequence[NodeClaim | None]
) -> BoolArray | bool:
    """Whether each cluster of a block has a pool that surely suits the claim, and may suit each of
    the others.
    """
    own_p = pool_verdicts(block, claim)
    verdict_hp = [pool_verdicts(block, other) for other in others]
    if own_p is None and all(verdict_p is None for verdict_p in verdict_hp):
        return True
    has_cp = np.zeros((len(block), len(block.pools)), dtype=np.float32)
    has_cp[block.cluster_k, block.cells.pool_k] = 1.0
    if own_p is not None:
        has_cp *= own_p == Match.YES
    may_hp = [
        np.ones(len(block.pools), dtype=np.bool_) if each_p is None else each_p != Match.NO
        for each_p in verdict_hp
    ]
    return (has_cp @ np.array(may_hp, dtype=np.float32).T) > 0


def _lost_by_replica(
    size: int, demanded: Mapping[str, int], promised: PromisedColumns, replicas_i: IntArray
) -> IntArray:
    """Replica by replica, by cluster; at most MAX_REPLICAS for each of what is promised."""
    worth_g = np.ones(len(promised.kinds.every), dtype=np.int64)
    for name, amount in demanded.items():
        taken_g = promised.kinds.taken_g(name)
        np.maximum(worth_g, taken_g // amount + (taken_g % amount > 0), out=worth_g)
    lost_i = np.minimum(worth_g, MAX_REPLICAS)[promised.kind_i] * replicas_i
    return promised.sums(size, np.minimum(lost_i, MAX_REPLICAS))


def _taken(
    size: int, demanded: Mapping[str, int], promised: PromisedColumns, replicas_i: IntArray
) -> IntArray:
    """What so many replicas take of each resource in all, by cluster; at most _ENDLESS."""
    taken_rc = np.zeros((len(demanded), size), dtype=np.int64)
    for row, name in enumerate(demanded):
        taken_g = promised.kinds.taken_g(name)
        taken_i = taken_g[promised.kind_i]
        taken_rc[row] = promised.sums(size, taken_i * replicas_i)
        if float(taken_g.max()) * float(replicas_i.sum()) >= _ENDLESS:
            about_c = promised.sums(size, taken_i.astype(np.float64) * replicas_i)
            taken_rc[row, about_c >= _ENDLESS] = _ENDLESS
    return taken_rc


def _left_by_amount(
    some: SomeClusters, demanded: Mapping[str, int], taken_rc: IntArray, known_c: IntArray
) -> IntArray:
    """What the minimums hold less what the amounts that are promised can buy of it, where that
    might be more than is ``known_c``.
    """
    fits_k = some.suiting(fit_k(some.cells, demanded))
    left_c: IntArray = np.add.reduceat(fits_k * some.cells.count_k, some.first_c)
    is_open_c = (left_c > known_c) & taken_rc.any(axis=0)
    if is_open_c.any():
        prices = PriceLists.of(some, demanded, fits_k, is_open_c)
        left_c -= prices.bought(taken_rc, np.arange(len(some)))
    return np.clip(left_c, 0, MAX_REPLICAS)
