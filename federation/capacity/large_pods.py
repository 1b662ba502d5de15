"""Room for large pods whose small neighbours are made first: careful promises leave it.

Pure. A large pod fits on few nodes, mostly the emptiest, and there a stock kube-scheduler puts the
small pods that are made before it. So small pods on their way take room first, wherever most is
left, whatever was promised first; then large pods take nodes, the largest last. Luck differs, and
pods come in other orders too: so room is left as if twice as many small pods were on their way.
The work does not grow with the number of promises. Must not grant anything: it only says where less
may be promised.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import frexp
from typing import Final, NamedTuple, TypeAlias

import numpy as np

from federation.capacity.as_scheduled import part_of
from federation.capacity.assignments import Assignment, Held
from federation.capacity.cluster_room import Room, Site
from federation.capacity.fleet_rooms import FleetRooms
from federation.capacity.pool_kinds import PoolKinds
from federation.model.arrays import BoolArray, FloatArray, IntArray
from federation.model.pools.bounds import per_replica
from federation.model.pools.values import SCORED, Cells
from federation.model.reason_codes import ReasonCode
from federation.model.reasons import NO_REASON, Amount, Reason
from federation.model.reservations import Outstanding
from federation.model.shapes import request_shape
from federation.model.workload import ReplicaRequirements

# A large pod asks for more than one in so many of what the largest node that suits it has.
LARGE_PART: Final = 4
# Pods that ask for more than one in so many are put on nodes one by one; smaller ones are spread.
LUMP_PART: Final = 32
# Small pods are reckoned with as if so many times as many were on their way. In twelve bursts in
# 200 to 300 unlike nodes, 1.5 left 3 of 177 large pods pending, 2 none of 185.
SMALL_MARGIN: Final = 2
# Clusters in which one decision looks at room for large pods: about 1 ms each.
MAX_CLUSTERS: Final = 4
# Looks at a cluster for one question: they tell about 100 from 150 replicas.
MAX_LOOKS: Final = 6
# Nodes, and so many more, times kinds of pods, summed over all looks at a cluster: about 5 ms. With
# fewer looks less is promised; where there is none, nothing is promised beside the large pods.
MAX_STEPS: Final = 200_000
KIND_STEPS: Final = 1_000
# Claims by which small pods choose nodes that are told apart; pods of further ones count as if
# they might be on any node.
MAX_CLAIMS: Final = 8
# Requests of which a cluster remembers what share of a node they ask for.
MAX_SHARES: Final = 256
# Small lumps whose memory by cpu differs by less than so many octaves are alike.
_OCTAVES_ALIKE: Final = 2
_LEAST_SLOPE: Final = 1e-12
_LEAST_RATE: Final = 1e-12
# Amounts are whole: what is left by less than this is what rounding took.
_ROUNDING: Final = 1e-3


# Which pools of a cluster suit, as bytes of truth values.
_Suiting: TypeAlias = bytes
_LumpKey: TypeAlias = tuple[_Suiting, Hashable]


class BesideLarge(NamedTuple):
    """How many replicas leave room for large pods, and why no more do."""

    replicas: int
    reason: Reason = NO_REASON


def is_mixed(fleet: FleetRooms, position: int, requirements: ReplicaRequirements) -> bool:
    """Whether large pods and others are on their way to a cluster, or would be."""
    site, held = fleet.sites[position], fleet.held[position]
    return site is not None and held is not None and _mixes(site, held, fleet.kinds, requirements)


def ranked_mixed(
    fleet: FleetRooms, requirements: ReplicaRequirements, most_c: IntArray
) -> list[int]:
    """The clusters in which room for large pods is looked at: of those where large pods and others
    are on their way, a few with most room.
    """
    on_way_c = fleet.sums.on_their_way_c(request_shape(requirements.request))
    (may,) = np.nonzero((most_c > 0) & (on_way_c > 0))
    mixed = [position for position in may.tolist() if is_mixed(fleet, position, requirements)]
    mixed.sort(key=lambda position: -int(most_c[position]))
    return mixed[:MAX_CLUSTERS]


def max_beside_large(room: Room, requirements: ReplicaRequirements, limit: int) -> BesideLarge:
    """The most of so many replicas that leave no more large pods without a node than are already,
    and take none that others have taken by half; all where large pods do not mix with others.
    """
    site = room.site
    if limit <= 0 or not _mixes(site, room.held, room.kinds, requirements):
        return BesideLarge(limit)
    claim = requirements.node_claim
    question = request_shape(requirements.request), claim and claim.key, limit
    held, found = site.beside_large.found
    if held is not room.held:
        found = {}
        site.beside_large.found = room.held, found
    if question not in found:
        found[question] = _max_beside_large(room, requirements, limit)
    return BesideLarge(*found[question])


def _max_beside_large(room: Room, requirements: ReplicaRequirements, limit: int) -> BesideLarge:
    tally = _tally(room)
    pods = sum(lump.replicas for lump in tally.lumps.values() if lump.is_large)
    kept_for = Reason.of(ReasonCode.KEPT_FOR_LARGE_PODS, Amount(pods))
    nodes = _nodes(room)
    looks = MAX_STEPS // ((len(tally.lumps) + 2) * (nodes.node_count + KIND_STEPS)) - 1
    if looks < 1:
        return BesideLarge(0, kept_for)
    margins: tuple[int, ...] = (SMALL_MARGIN,)
    missing = nodes.missing_beside(tally)
    if missing:
        # Counts of pods that have no node anyway grow no more: so nodes are kept that suit them.
        crowded_out = missing - nodes.missing_beside(tally, 0)
        if nodes.may_take_node_of(crowded_out, tally, room, requirements):
            return BesideLarge(0, kept_for)
        if crowded_out:
            margins, looks = (1, SMALL_MARGIN), (looks - 1) // 2
        if looks < 1:
            return BesideLarge(0, kept_for)
    missing_now = [nodes.missing_beside(tally, margin) for margin in margins[:-1]] + [missing]

    def leaves_room(replicas: int) -> bool:
        wanted = tally.including(room, [Outstanding("", requirements, replicas)])
        return all(
            nodes.missing_beside(wanted, margin) <= now
            for margin, now in zip(margins, missing_now, strict=True)
        )

    replicas = _most_that(leaves_room, limit, min(looks, MAX_LOOKS))
    return BesideLarge(replicas, NO_REASON if replicas == limit else kept_for)


def _most_that(holds: Callable[[int], bool], limit: int, looks: int) -> int:
    """The most replicas, up to a limit, for which something holds, as far as so many looks tell.

    First the number of halvings of the limit is found, so that few replicas are found as well as
    many; what looks are left go to what is between.
    """
    if holds(limit):
        return limit
    looks -= 1
    failing, holding = 0, limit.bit_length()
    while holding - failing > 1 and looks > 0:
        looks -= 1
        middle = (failing + holding) // 2
        failing, holding = (failing, middle) if holds(limit >> middle) else (middle, holding)
    low, high = limit >> holding, limit >> failing
    while high - low > 1 and looks > 0:
        looks -= 1
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


class _Lump(NamedTuple):
    """Pods of one kind or much alike, each of which asks for so much of a node that it matters on
    which nodes they are: ``amounts`` of all ``replicas`` together, of ``share`` of a node each.
    """

    share: float
    replicas: int
    amounts: Mapping[str, int]

    @property
    def is_large(self) -> bool:
        return self.share * LARGE_PART > 1

    def mean_r(self, resources: Sequence[str]) -> IntArray:
        """What one of the pods asks for: of pods that are much alike, the mean."""
        amounts = [-(-self.amounts.get(name, 0) // self.replicas) for name in resources]
        return np.array(amounts, dtype=np.int64)

    def joined(self, other: _Lump | None) -> _Lump:
        """With the pods of another one."""
        if other is None:
            return self
        amounts = {
            name: self.amounts.get(name, 0) + other.amounts.get(name, 0)
            for name in {**self.amounts, **other.amounts}
        }
        replicas = self.replicas + other.replicas
        return _Lump(max(self.share, other.share), replicas, amounts)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tally:
    """What is on its way to a cluster: all that small pods ask for by the nodes that suit them, and
    lumps.
    """

    small: Mapping[_Suiting, Counter[str]] = field(default_factory=dict)
    lumps: Mapping[_LumpKey, _Lump] = field(default_factory=dict)

    def including(self, room: Room, outstanding: Iterable[Outstanding]) -> _Tally:
        small = {suiting: Counter(amounts) for suiting, amounts in self.small.items()}
        lumps = dict(self.lumps)
        for each in outstanding:
            replicas, requirements = each.to_pack, each.requirements
            if replicas <= 0:
                continue
            suiting = part_of(each, room.site.kind_p, room.kinds).suiting_p.tobytes()
            share = share_in(room.site, room.kinds, requirements)
            asked = per_replica(requirements.request)
            if share * LUMP_PART > 1:
                key = _lump_key(each, suiting, share)
                amounts = {name: amount * replicas for name, amount in asked.items()}
                lumps[key] = _Lump(share, replicas, amounts).joined(lumps.get(key))
                continue
            if suiting not in small and len(small) >= MAX_CLAIMS:
                suiting = b"\x01" * len(suiting)
            amounts_of_all = small.setdefault(suiting, Counter())
            for name, amount in asked.items():
                amounts_of_all[name] += amount * replicas
        return _Tally(small=small, lumps=lumps)


def _lump_key(outstanding: Outstanding, suiting: _Suiting, share: float) -> _LumpKey:
    """Large pods by what they ask for; others are alike by the octave of their share and by what is
    scarcest for them, so that there are few kinds, however many requests differ.
    """
    if share * LARGE_PART > 1:
        return suiting, outstanding.shape
    request = outstanding.requirements.request
    memory_by_cpu = request.get(SCORED[1], 0) / max(request.get(SCORED[0], 0), 1)
    return suiting, (frexp(share)[1], frexp(memory_by_cpu)[1] // _OCTAVES_ALIKE)


def _tally(room: Room) -> _Tally:
    """What is on its way: mostly it is known of all but what came last."""
    known, tally = room.site.beside_large.tally
    newest: Held | None = room.held
    more: list[tuple[Assignment, ...]] = []
    while newest is not None and newest is not known:
        more.append(newest.more)
        newest = newest.before
    if newest is None or not isinstance(tally, _Tally):
        tally = _Tally()
    tally = tally.including(room, [each.outstanding for part in reversed(more) for each in part])
    room.site.beside_large.tally = room.held, tally
    return tally


def _nodes(room: Room) -> _Nodes:
    """The nodes as the cluster's report has them."""
    memo = room.site.beside_large
    if not isinstance(memo.nodes, _Nodes):
        memo.nodes = _Nodes.of(room.pools.cells)
    return memo.nodes


class _Nodes(NamedTuple):
    """The nodes of a cluster (axis n): each has ``free_rn`` left of ``resources``, and in all
    ``total_sn`` of what is SCORED.
    """

    resources: tuple[str, ...]
    scored: list[int]
    pool_n: IntArray
    free_rn: FloatArray
    total_sn: FloatArray

    @classmethod
    def of(cls, cells: Cells) -> _Nodes:
        allocatable_sk = cells.allocatable_rk
        if allocatable_sk is None:
            raise ValueError("the cluster does not report what its nodes have allocatable")
        total_sk = np.maximum(allocatable_sk, 1).astype(np.float64)
        return cls(
            resources=cells.resources,
            scored=[cells.resources.index(name) for name in SCORED],
            pool_n=cells.pool_k.astype(np.int64).repeat(cells.count_k),
            free_rn=cells.min_rk.astype(np.float64).repeat(cells.count_k, axis=1),
            total_sn=total_sk.repeat(cells.count_k, axis=1),
        )

    @property
    def node_count(self) -> int:
        return len(self.pool_n)

    def missing_beside(self, tally: _Tally, margin: int = SMALL_MARGIN) -> Counter[_LumpKey]:
        """How many large pods of each kind find no node once all that is on its way is there, with
        so many times as many small pods: first what is small, then lumps one kind after the other,
        the largest last.
        """
        free_rn = self._free_beside(tally.small, margin) if margin else self.free_rn
        whole_rn = np.floor(free_rn + _ROUNDING).astype(np.int64)
        placing = _Placing(whole_rn, self.total_sn, self.scored)
        missing = Counter[_LumpKey]()
        for key, lump in sorted(
            tally.lumps.items(), key=lambda item: (item[1].share, str(item[0]))
        ):
            pods = lump.replicas if lump.is_large else lump.replicas * margin
            if not pods:
                continue
            late = placing.place(lump.mean_r(self.resources), self._suiting_n(key[0]), pods)
            if late and lump.is_large:
                missing[key] = late
        return missing

    def may_take_node_of(
        self,
        kinds: Iterable[_LumpKey],
        tally: _Tally,
        room: Room,
        requirements: ReplicaRequirements,
    ) -> bool:
        """Whether a pod that requires this may be on a node that takes a large pod of these kinds
        before any pod on its way is there.
        """
        wanted = Outstanding("", requirements, 1)
        suiting_p = part_of(wanted, room.site.kind_p, room.kinds).suiting_p
        asked = per_replica(requirements.request)
        amount_r = np.array([asked.get(name, 0) for name in self.resources], dtype=np.int64)
        may_n = suiting_p[self.pool_n] & self._has_room_n(amount_r)
        return any(
            bool((may_n & self._suiting_n(key[0]) & self._has_room_n(large_r)).any())
            for key in kinds
            for large_r in [tally.lumps[key].mean_r(self.resources)]
        )

    def _suiting_n(self, suiting: _Suiting) -> BoolArray:
        suiting_n: BoolArray = np.frombuffer(suiting, dtype=np.bool_)[self.pool_n]
        return suiting_n

    def _has_room_n(self, amount_r: IntArray) -> BoolArray:
        """Which nodes take a pod that asks for so much, as reported."""
        (asked,) = amount_r.nonzero()
        left_rn = self.free_rn[asked] - amount_r[asked, np.newaxis]
        has_room_n: BoolArray = left_rn.min(axis=0, initial=0.0) >= 0
        return has_room_n

    def _free_beside(self, small: Mapping[_Suiting, Counter[str]], margin: int) -> FloatArray:
        """What is left beside so many times as many small pods; those that may be on the fewest
        nodes come first.
        """
        demands = [
            (self._suiting_n(suiting), amounts) for suiting, amounts in sorted(small.items())
        ]
        free_rn = self.free_rn
        for suiting_n, amounts in sorted(demands, key=lambda demand: int(demand[0].sum())):
            demand_r = np.array([amounts[name] * margin for name in self.resources])
            part_n = self._parts_n(free_rn, suiting_n, demand_r)
            free_rn = free_rn - demand_r[:, np.newaxis] * part_n
        return free_rn

    def _parts_n(
        self, free_rn: FloatArray, suiting_n: BoolArray, demand_r: FloatArray
    ) -> FloatArray:
        """Which part of all that many pods ask for each node takes, where each pod goes where most
        is left as a share of what the node has: until all that it reached have the same share left,
        or are full.
        """
        (asked,) = np.nonzero(demand_r)
        fits_n = (free_rn[asked] / demand_r[asked, np.newaxis]).min(axis=0)
        most_n: FloatArray = np.maximum(fits_n, 0.0) * suiting_n
        if float(most_n.sum()) <= 1.0:
            return most_n
        left_n = (free_rn[self.scored] / self.total_sn).sum(axis=0)
        slope_n = (demand_r[self.scored, np.newaxis] / self.total_sn).sum(axis=0)
        slope_n = np.maximum(slope_n, _LEAST_SLOPE)
        level = _water_level(left_n, left_n - most_n * slope_n, 1 / slope_n)
        part_n: FloatArray = np.minimum(np.maximum(left_n - level, 0.0) / slope_n, most_n)
        part_n /= part_n.sum()
        return part_n


def _water_level(high_n: FloatArray, low_n: FloatArray, rate_n: FloatArray) -> float:
    """The level at which all that is above it, down to ``low_n`` at most, comes to 1 at these
    rates; it comes to more than that in all.
    """
    edge_i = np.concatenate([high_n, low_n])
    order_i = np.argsort(-edge_i, kind="stable")
    edge_i = edge_i[order_i]
    rate_i = np.concatenate([rate_n, -rate_n])[order_i].cumsum()[:-1]
    sum_i = (rate_i * (edge_i[:-1] - edge_i[1:])).cumsum()
    place = min(int(sum_i.searchsorted(1.0)), len(sum_i) - 1)
    surplus = float(sum_i[place]) - 1.0
    return float(edge_i[place + 1]) + surplus / max(float(rate_i[place]), _LEAST_RATE)


class _Placing(NamedTuple):
    """Nodes (axis n) that have ``free_rn`` left, which pods take, and ``total_sn`` in all."""

    free_rn: IntArray
    total_sn: FloatArray
    scored: list[int]

    def place(self, amount_r: IntArray, suiting_n: BoolArray, replicas: int) -> int:
        """Take nodes for pods of one kind, each where most is left with it as a share of what the
        node has; how many pods find none.
        """
        (asked,) = amount_r.nonzero()
        fits_n = (self.free_rn[asked] // amount_r[asked, np.newaxis]).min(axis=0) * suiting_n
        (node_i,) = (fits_n > 0).nonzero()
        if not len(node_i):
            return replicas
        fits_i = np.minimum(fits_n[node_i], replicas)
        placed = min(replicas, int(fits_i.sum()))
        free_ri, total_si = self.free_rn[:, node_i], self.total_sn[:, node_i]
        slope_i = (amount_r[self.scored, np.newaxis] / total_si).sum(axis=0)
        left_i = (free_ri[self.scored] / total_si).sum(axis=0) - slope_i
        # What is left with a node's first pod, its second, and so on (axis j).
        pods_j1 = np.arange(int(fits_i.max()))[:, np.newaxis]
        left_ji = np.where(pods_j1 < fits_i, left_i - pods_j1 * slope_i, -np.inf)
        order = np.argsort(-left_ji, axis=None, kind="stable")[:placed]
        taken_i = np.bincount(order % len(node_i), minlength=len(node_i))
        self.free_rn[:, node_i] = free_ri - amount_r[:, np.newaxis] * taken_i
        return replicas - placed


def is_large_in(site: Site, kinds: PoolKinds, requirements: ReplicaRequirements) -> bool:
    return share_in(site, kinds, requirements) * LARGE_PART > 1


def share_in(site: Site, kinds: PoolKinds, requirements: ReplicaRequirements) -> float:
    """The largest share that a pod asks for of what the largest node has that suits it."""
    request, claim = requirements.request, requirements.node_claim
    key = *(request.get(name, 0) for name in SCORED), claim and claim.key
    shares = site.beside_large.shares
    if key not in shares:
        if len(shares) >= MAX_SHARES:
            shares.clear()
        shares[key] = _share(site, kinds, requirements)
    return shares[key]


def _share(site: Site, kinds: PoolKinds, requirements: ReplicaRequirements) -> float:
    cells = site.pools.cells
    if cells.allocatable_rk is None:
        return 0.0
    suiting_p = part_of(Outstanding("", requirements, 1), site.kind_p, kinds).suiting_p
    suiting_k = suiting_p[cells.pool_k] & (cells.count_k > 0)
    if not suiting_k.any():
        return 0.0
    largest_s: list[int] = np.maximum(cells.allocatable_rk[:, suiting_k].max(axis=1), 1).tolist()
    return max(
        requirements.request.get(name, 0) / most
        for name, most in zip(SCORED, largest_s, strict=True)
    )


def _mixes(site: Site, held: Held, kinds: PoolKinds, requirements: ReplicaRequirements) -> bool:
    if site.pools.cells.allocatable_rk is None or not held.replicas:
        return False
    if held.only is not None and held.only == request_shape(requirements.request):
        return False
    return is_large_in(site, kinds, requirements) or _holds_large(site, held, kinds)


def _holds_large(site: Site, held: Held, kinds: PoolKinds) -> bool:
    """Whether something large is on its way: mostly it is known of all but what came last."""
    known, is_there = site.beside_large.large
    newest: Held | None = held
    found = False
    while newest is not None and not found:
        if newest is known:
            found = is_there
            break
        found = any(
            each.outstanding.to_pack > 0 and is_large_in(site, kinds, each.outstanding.requirements)
            for each in newest.more
        )
        newest = newest.before
    site.beside_large.large = held, found
    return found
