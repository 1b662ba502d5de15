"""Bounds of the pool level beside promises whose pods have no node yet, wherever these land.

Pure, whole-array. Holds for every placer, so it must not assume where any pod goes. Price lists say
how much of a resource must be taken of nodes before they hold a replica less.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import count
from typing import Final, NamedTuple, Self, TypeVar

import numpy as np
import numpy.typing as npt

from federation.capacity.fleet_cells import CellBlock, FleetCells
from federation.capacity.pool_estimates import PoolBounds
from federation.capacity.some_clusters import SomeClusters, in_tables
from federation.model.arrays import BoolArray, IntArray
from federation.model.estimate import MAX_REPLICAS
from federation.model.pools.bounds import fit_k, per_replica
from federation.model.pools.matching import Match
from federation.model.reservations import Outstanding
from federation.model.resources import PODS
from federation.model.shapes import Shape, request_shape
from federation.model.workload import NodeClaim, ReplicaRequirements

# Sums of prices fit in int64 below this; otherwise any amount taken counts as all.
_SAFE: Final = 2.0**62
# Bits of an int64 without its sign.
_BITS: Final = 63


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PriceLists:
    """Prices by resource (axis r) and cluster (axis c): one list for each pair.

    The prices (axis s) of list q begin at ``first_q[q]``, the cheapest first; the lists of a
    resource are neighbours. All prices before place s cost ``spent_s[s]`` and buy ``had_s[s]``
    replicas; both have one place more than the prices.
    """

    size: int
    first_q: IntArray
    price_s: IntArray
    spent_s: IntArray
    had_s: IntArray
    is_safe: bool

    @classmethod
    def of(
        cls, some: SomeClusters, demanded: Mapping[str, int], fits_k: IntArray, listed_c: BoolArray
    ) -> PriceLists:
        """List the prices of replicas that take what is ``demanded``, in the clusters ``listed_c``.

        Each node of a cell holds ``fits_k`` replicas.
        """
        cells, room_k = some.cells, fits_k * some.cells.count_k
        (j,) = np.nonzero(room_k * listed_c.take(some.cluster_k))
        lists = _Lists.of(some.cluster_k.take(j))
        room_j, fits_j, count_j = room_k.take(j), fits_k.take(j), cells.count_k.take(j)
        # A resource that no cluster has is not among the rows.
        rows = demanded.items() if len(j) else ()
        price_rs, count_rs = np.empty((2, len(rows), len(lists)), dtype=np.int64)
        for row, (name, amount) in enumerate(rows):
            free_j = cells.min_rk[cells.resources.index(name)].take(j)
            price_j, is_dear_j = _prices(free_j, fits_j, amount)
            priced_j = np.where(is_dear_j, room_j, count_j)
            # Behind the cells of each cluster: the price of a whole request, in all of them.
            price_n = lists.with_last(price_j, amount)
            count_n = lists.with_last(priced_j, np.add.reduceat(room_j - priced_j, lists.first_p))
            order_n = lists.order(price_n)
            price_n.take(order_n, out=price_rs[row], mode="clip")
            count_n.take(order_n, out=count_rs[row], mode="clip")
        length_c = np.zeros(len(some), dtype=np.int64)
        length_c[lists.cluster_p] = lists.length_p
        price_s, count_s = price_rs.ravel(), count_rs.ravel()
        return cls(
            size=len(some),
            first_q=_sums(np.tile(length_c, len(demanded))),
            price_s=np.append(price_s, 1),
            spent_s=_sums(price_s * count_s),
            had_s=_sums(count_s),
            is_safe=float(price_s.astype(np.float64) @ count_s.astype(np.float64)) < _SAFE,
        )

    def bought(self, budget_rc: IntArray, cluster_c: IntArray) -> IntArray:
        """Return how many replicas the amounts buy in some clusters, the cheapest first.

        The replicas of all resources are added.
        """
        list_rc = cluster_c + np.arange(len(budget_rc))[:, np.newaxis] * self.size
        first_rc, stop_rc = self.first_q.take(list_rc), self.first_q.take(list_rc + 1)
        had_rc = self.had_s.take(first_rc)
        if not self.is_safe:
            all_rc = self.had_s.take(stop_rc) - had_rc
            all_c: IntArray = np.where(budget_rc > 0, all_rc, 0).sum(axis=0)
            return all_c
        until_rc = self.spent_s.take(first_rc) + budget_rc
        # Places with a count of 0 cost nothing, so they may stand behind a cluster's last one.
        whole_rc = np.minimum(self.spent_s.searchsorted(until_rc, side="right") - 1, stop_rc)
        left_rc = (until_rc - self.spent_s.take(whole_rc)) // self.price_s.take(whole_rc)
        bought_rc = self.had_s.take(whole_rc) - had_rc
        bought_rc += left_rc * (whole_rc < stop_rc)
        bought_c: IntArray = bought_rc.sum(axis=0)
        return bought_c


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Lists:
    """Places of the lists of clusters (axis p), all lists one after the other (axis n).

    A list has a place for each cell (axis j) of its cluster, and one place more. The cells of list
    p begin at ``first_p``, and cell j is at ``place_j``. The last place is at ``last_p``.
    ``list_n`` is the list of each place, ``within_n`` its position in the list.
    """

    cluster_p: IntArray
    first_p: IntArray
    length_p: IntArray
    place_j: IntArray
    last_p: IntArray
    list_n: IntArray
    within_n: IntArray

    @classmethod
    def of(cls, cluster_j: IntArray) -> Self:
        """Make lists of cells that belong to these clusters, in ascending order."""
        is_first_j = np.ones(len(cluster_j), dtype=np.bool_)
        np.not_equal(cluster_j[1:], cluster_j[:-1], out=is_first_j[1:])
        first_p = np.flatnonzero(is_first_j)
        length_p = np.diff(first_p, append=len(cluster_j)) + 1
        stop_p = np.cumsum(length_p)
        place_j = np.cumsum(is_first_j, dtype=np.int64)
        place_j += np.arange(-1, len(cluster_j) - 1)
        within_n = np.arange(len(cluster_j) + len(first_p))
        within_n -= (stop_p - length_p).repeat(length_p)
        return cls(
            cluster_p=cluster_j.take(first_p),
            first_p=first_p,
            length_p=length_p,
            place_j=place_j,
            last_p=stop_p - 1,
            list_n=np.arange(len(first_p)).repeat(length_p),
            within_n=within_n,
        )

    def with_last(self, value_j: IntArray, last_p: IntArray | int) -> IntArray:
        """Put values of cells, and of the last place of each list, in places."""
        value_n = np.empty(len(self), dtype=np.int64)
        value_n[self.place_j] = value_j
        value_n[self.last_p] = last_p
        return value_n

    def order(self, price_n: IntArray) -> IntArray:
        """Return the order in which each list is sorted by price."""
        price_bits = int(price_n.max(initial=0)).bit_length()
        place_bits = int(self.length_p.max(initial=0)).bit_length()
        if len(self.length_p).bit_length() + price_bits + place_bits > _BITS:
            return np.lexsort((price_n, self.list_n))
        # Three times as fast, because plain integers are sorted instead of indices.
        key_n = self.list_n << price_bits
        key_n |= price_n
        key_n <<= place_bits
        key_n |= self.within_n
        key_n.sort()
        key_n &= (1 << place_bits) - 1
        key_n += np.arange(len(self)) - self.within_n
        return key_n

    def __len__(self) -> int:
        return len(self.within_n)


def _prices(free_j: IntArray, fits_j: IntArray, amount: int) -> tuple[IntArray, BoolArray]:
    """Return the price of a replica by cell, and whether it holds for all its replicas.

    Nodes hold ``fits_j`` replicas, at least one. The first costs what a node has beyond them, and
    one more; each further one costs a whole request. Where the first is dearer than the others,
    none can be bought without it, so all cost the mean.
    """
    first_j = free_j - fits_j * amount
    first_j += 1
    is_dear_j = first_j > amount
    # Unsigned division is faster, because it does not round towards minus infinity.
    mean_j = (free_j - (amount - 1)).view(np.uint64) // fits_j.view(np.uint64)
    np.copyto(first_j, mean_j.view(np.int64), where=is_dear_j)
    return first_j, is_dear_j


def _sums(values: IntArray) -> IntArray:
    """Return the sum before each place, and the sum of all."""
    sums = np.zeros(len(values) + 1, dtype=np.int64)
    np.cumsum(values, out=sums[1:])
    return sums


# Kinds without promises that are kept, beyond twice the number of promises.
_MAX_UNUSED: Final = 256
_NUMBERS: Final = count(1)
# More than the price of everything in a list: see PriceLists.
_ENDLESS: Final = 2**62

_Number = TypeVar("_Number", bound=np.generic)


def _nothing() -> IntArray:
    return np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of replica: its shape and its node claim."""

    shape: Shape
    claim: NodeClaim | None

    @classmethod
    def of(cls, requirements: ReplicaRequirements) -> Kind:
        return cls(request_shape(requirements.request), requirements.node_claim)

    @property
    def demanded(self) -> dict[str, int]:
        """A replica's amount of each resource."""
        return per_replica(dict(self.shape))

    @property
    def key(self) -> Hashable:
        return self.shape, self.claim and self.claim.key


@dataclass(frozen=True, kw_only=True, eq=False)
class _Kinds:
    """Distinct kinds (axis g), and the place of each by its key."""

    kinds: tuple[Kind, ...] = ()
    places: Mapping[Hashable, int] = field(default_factory=dict)

    def including(self, newcomers: Mapping[Hashable, tuple[int, Kind]]) -> _Kinds:
        """Append kinds at their places; return the very same without any."""
        if not newcomers:
            return self
        return _Kinds(
            kinds=(*self.kinds, *(kind for _, kind in newcomers.values())),
            places={**self.places, **{key: place for key, (place, _) in newcomers.items()}},
        )

    @cached_property
    def claims(self) -> tuple[NodeClaim | None, ...]:
        """The distinct claims of all kinds (axis h)."""
        return tuple({kind.claim and kind.claim.key: kind.claim for kind in self.kinds}.values())

    @cached_property
    def claim_g(self) -> IntArray:
        """The place of each kind's claim in ``claims``."""
        places = {claim and claim.key: place for place, claim in enumerate(self.claims)}
        return np.array([places[kind.claim and kind.claim.key] for kind in self.kinds], np.int64)

    def taken_g(self, name: str) -> IntArray:
        """Return a replica's amount of a resource, by kind."""
        taken_g = self._amounts.get(name)
        return np.zeros(len(self.kinds), dtype=np.int64) if taken_g is None else taken_g

    @cached_property
    def _amounts(self) -> Mapping[str, IntArray]:
        names = dict.fromkeys(name for kind in self.kinds for name, _ in kind.shape)
        amounts = {name: np.zeros(len(self.kinds), dtype=np.int64) for name in names}
        for place, kind in enumerate(self.kinds):
            for name, amount in kind.shape:
                amounts[name][place] = amount
        return {**amounts, PODS: np.ones(len(self.kinds), dtype=np.int64)}


class _Part(NamedTuple):
    """The promises of one cluster and their rows, under a number that no others have."""

    promised: Sequence[Outstanding]
    rows: IntArray
    number: int


@dataclass(frozen=True, kw_only=True, eq=False)
class PromisedColumns:
    """Outstanding promises of a fleet in columns (axis i); rows of a cluster are neighbours.

    ``replicas_i`` may still get nodes. ``to_pack_i`` of them need room of their own, and the
    others take the place of older pods. Clusters with promises (axis p) are at ``position_p``.
    A result for the rows of a cluster holds as long as ``number_p`` is the same.
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
        """Return the columns of a newer state; only promises that changed are read again."""
        if len(self.kinds.kinds) > _MAX_UNUSED + 2 * len(self.kind_i):
            return PromisedColumns.of(outstanding)
        newcomers: dict[Hashable, tuple[int, Kind]] = {}
        parts = []
        for promised in outstanding.values():
            part = self._parts.get(id(promised))
            if part is None:
                rows = _rows(promised, self.kinds.places, newcomers)
                part = _Part(promised, rows, next(_NUMBERS))
            parts.append(part)
        columns = np.concatenate(
            [np.zeros((3, 0), dtype=np.int64), *(part.rows for part in parts)], axis=1
        )
        positions = np.array(list(outstanding), dtype=np.int64)
        return PromisedColumns(
            position_i=positions.repeat([part.rows.shape[1] for part in parts]),
            kind_i=columns[0],
            replicas_i=columns[1],
            to_pack_i=columns[2],
            kinds=self.kinds.including(newcomers),
            position_p=positions,
            number_p=np.array([part.number for part in parts], dtype=np.int64),
            _parts={id(part.promised): part for part in parts},
        )

    def number_c(self, size: int) -> IntArray:
        """Return the number of the promises of each cluster, 0 without promises."""
        number_c = np.zeros(size, dtype=np.int64)
        number_c[self.position_p] = self.number_p
        return number_c

    def sums(self, size: int, value_i: npt.NDArray[_Number]) -> npt.NDArray[_Number]:
        """Return the sum of a value over the rows of each cluster."""
        sum_c = np.zeros(size, dtype=value_i.dtype)
        first_p = self._first_p
        sum_c[self.position_i[first_p]] = np.add.reduceat(value_i, first_p)
        return sum_c

    def to_pack_c(self, size: int, kind: Kind) -> IntArray:
        """Return the replicas of one kind that need room of their own, by cluster."""
        place = self.kinds.places.get(kind.key)
        if place is None:
            return np.zeros(size, dtype=np.int64)
        return self.sums(size, self.to_pack_i * (self.kind_i == place))

    @cached_property
    def _first_p(self) -> IntArray:
        """The first row of each cluster with promises."""
        return np.flatnonzero(np.diff(self.position_i, prepend=-1))


def _rows(
    promised: Sequence[Outstanding],
    places: Mapping[Hashable, int],
    newcomers: dict[Hashable, tuple[int, Kind]],
) -> IntArray:
    """Return the rows of one cluster: kind, replicas, replicas to pack; collect new kinds."""
    rows = []
    for promise in promised:
        if promise.in_cells > 0:
            kind = Kind.of(promise.requirements)
            key = kind.key
            place = places.get(key)
            if place is None:
                place, _ = newcomers.setdefault(key, (len(places) + len(newcomers), kind))
            rows.append((place, promise.in_cells, promise.to_pack))
    return np.array(rows, dtype=np.int64).reshape(len(rows), 3).T.copy()


def bounds_beside(
    cells: FleetCells,
    bounds: PoolBounds,
    requirements: ReplicaRequirements,
    promised: PromisedColumns,
    sure_c: IntArray | None = None,
) -> PoolBounds:
    """Return the bounds of a fleet's cells beside promises; nothing is exact there.

    ``sure_c``: lower bounds computed for the same cells and promises, negative where unknown.

    A promised replica costs at most ceil(taken / requested) replicas, for the largest resource.
    All together cost at most what their amounts buy (PriceLists). The lower of the two losses
    counts. Where promised replicas of the same kind find no room, no more of them would either,
    so the upper bound is lower by their number.
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
    if sure_c is not None:
        lower_c = np.where(sure_c >= 0, sure_c, lower_c)
        lost_c *= sure_c < 0
    for some_c in in_tables(cells, np.flatnonzero(lost_c)):
        some = SomeClusters.of(cells, some_c, demanded, claim, with_sums=False)
        left_c = _left_by_amount(some, demanded, taken_rc[:, some_c], lower_c[some_c])
        lower_c[some_c] = np.maximum(lower_c[some_c], left_c)
    like_c = promised.to_pack_c(len(cells), Kind.of(requirements))
    # An upper bound of MAX_REPLICAS may stand for more, so it stays.
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
    """Tell which rows may land on a node that surely suits the claim; None: all."""
    met_ch = np.ones((len(cells), len(promised.kinds.claims)), dtype=np.bool_)
    for block in cells.blocks:
        met_ch[block.here] = _met(block, claim, promised.kinds.claims)
    if met_ch.all():
        return None
    return met_ch[promised.position_i, promised.kinds.claim_g[promised.kind_i]]


def _met(
    block: CellBlock, claim: NodeClaim | None, rivals: Sequence[NodeClaim | None]
) -> BoolArray | bool:
    """Tell which clusters have a pool that surely suits the claim and may suit a rival's.

    By cluster (axis c) and rival claim (axis h); True: all.
    """
    own_p = block.pool_verdicts(claim)
    verdict_hp = [block.pool_verdicts(rival) for rival in rivals]
    if own_p is None and all(verdict_p is None for verdict_p in verdict_hp):
        return True
    has_cp = np.zeros((len(block), len(block.pools)), dtype=np.float32)
    has_cp[block.cluster_k, block.cells.pool_k] = 1.0
    if own_p is not None:
        has_cp *= own_p == Match.YES
    may_hp = [
        np.ones(len(block.pools), dtype=np.bool_) if verdict_p is None else verdict_p != Match.NO
        for verdict_p in verdict_hp
    ]
    return (has_cp @ np.array(may_hp, dtype=np.float32).T) > 0


def _lost_by_replica(
    size: int, demanded: Mapping[str, int], promised: PromisedColumns, replicas_i: IntArray
) -> IntArray:
    """Return the loss by cluster, replica by replica; at most MAX_REPLICAS for each row."""
    worth_g = np.ones(len(promised.kinds.kinds), dtype=np.int64)
    for name, amount in demanded.items():
        taken_g = promised.kinds.taken_g(name)
        np.maximum(worth_g, taken_g // amount + (taken_g % amount > 0), out=worth_g)
    lost_i = np.minimum(worth_g, MAX_REPLICAS)[promised.kind_i] * replicas_i
    return promised.sums(size, np.minimum(lost_i, MAX_REPLICAS))


def _taken(
    size: int, demanded: Mapping[str, int], promised: PromisedColumns, replicas_i: IntArray
) -> IntArray:
    """Return the amounts of all replicas by resource and cluster, at most _ENDLESS."""
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
    some: SomeClusters, demanded: Mapping[str, int], taken_rc: IntArray, lower_c: IntArray
) -> IntArray:
    """Return what the minimums hold less what the promised amounts buy of it.

    Prices are computed only where the answer may be more than ``lower_c``.
    """
    fits_k = some.suiting(fit_k(some.cells, demanded))
    left_c: IntArray = np.add.reduceat(fits_k * some.cells.count_k, some.first_c)
    is_open_c = (left_c > lower_c) & taken_rc.any(axis=0)
    if is_open_c.any():
        prices = PriceLists.of(some, demanded, fits_k, is_open_c)
        left_c -= prices.bought(taken_rc, np.arange(len(some)))
    return np.clip(left_c, 0, MAX_REPLICAS)
