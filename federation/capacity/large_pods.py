"""Room for large pods whose small neighbours are made first: careful promises leave it.

Pure. A large pod fits on few nodes, mostly the emptiest, and there a stock kube-scheduler puts the
small pods that are made before it. So small pods on their way take room first, wherever most is
left, whatever was promised first; then large pods take nodes, the largest last. Pods come in other
orders too, and luck differs: so room for a few more of each large shape is left. The work does not
grow with the number of promises. Must not grant anything: it only says where less may be promised.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping
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
from federation.model.pools.values import SCORED
from federation.model.reason_codes import ReasonCode
from federation.model.reasons import NO_REASON, Amount, Reason
from federation.model.reservations import RESERVE_PART, Outstanding
from federation.model.shapes import request_shape
from federation.model.workload import ReplicaRequirements

# A large pod asks for more than one in so many of what the largest node that suits it has.
LARGE_PART: Final = 4
# Pods that ask for more than one in so many are put on nodes one by one; smaller ones are spread.
LUMP_PART: Final = 32
# So many more pods of each large shape find room, where they did: pods come in other orders too.
# With one, ten hard seeds left 6 of 1,789 pending, with three 3 of 1,597. Luck grows with the pods
# that have some: where there are many small ones, one for as many as careful promises reckon with.
SPARE_PODS: Final = 3
# Clusters in which one decision looks at room for large pods: about 1 ms each.
MAX_CLUSTERS: Final = 4
# Of what fits at first sight, this many parts are told apart.
MAX_PARTS: Final = 16
# Nodes times kinds of lumps, summed over all looks at a cluster: about 3 ms. With fewer looks less
# is promised; where there is none, nothing is promised beside the large pods.
MAX_STEPS: Final = 20_000
# Claims by which small pods choose nodes that are told apart; pods of further ones count as if
# they might be on any node.
MAX_CLAIMS: Final = 8
# Requests of which a cluster remembers what share of a node they ask for.
MAX_SHARES: Final = 256
# Small lumps whose memory by cpu differs by less than so many octaves are alike.
_OCTAVES_ALIKE: Final = 2
# Halvings by which the level of what is left is found, to a millionth of a node.
_HALVINGS: Final = 20
_LEAST_SLOPE: Final = 1e-12
# Amounts are whole: what is left by less than this is what rounding took.
_ROUNDING: Final = 1e-3


# Which pools of a cluster suit, as bytes of truth values.
_Suiting: TypeAlias = bytes
_LumpKey: TypeAlias = tuple[_Suiting, Hashable]


class BesideLarge(NamedTuple):
    """How many replicas leave room for large pods, and why no more do."""

    replicas: int
    reason: Reason = NO_REASON


class Shortfall(NamedTuple):
    """Large ``pods`` that find no node, and ``spare`` ones of their shapes that would find none."""

    pods: int
    spare: int

    def is_within(self, other: Shortfall) -> bool:
        return self.pods <= other.pods and self.spare <= other.spare


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
    (may,) = np.nonzero((most_c > 0) & (fleet.outstanding_c > 0))
    mixed = [position for position in may.tolist() if is_mixed(fleet, position, requirements)]
    mixed.sort(key=lambda position: -int(most_c[position]))
    return mixed[:MAX_CLUSTERS]


def max_beside_large(room: Room, requirements: ReplicaRequirements, limit: int) -> BesideLarge:
    """The most of so many replicas that leave no more large pods, nor spare ones of their shapes,
    without a node than are already; all of them where large pods do not mix with others.
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
    nodes = _Nodes.of(room).filled_with(tally.small)
    # As often as steps allow, the first time without anything more.
    looks = MAX_STEPS // (nodes.node_count * (len(tally.lumps) + 2)) - 1
    if looks < 1:
        return BesideLarge(0, kept_for)
    one = _Tally().including(room, [Outstanding("", requirements, 1)])
    before = nodes.shortfall(tally.lumps, tally.small_pods, one.lumps)

    def leaves_room(replicas: int) -> bool:
        wanted = Outstanding("", requirements, replicas)
        more = _Tally().including(room, [wanted])
        lumps = {**tally.lumps}
        for key, lump in more.lumps.items():
            lumps[key] = lump.joined(lumps.get(key))
        after = nodes.filled_with(more.small)
        small_pods = tally.small_pods + more.small_pods
        return after.shortfall(lumps, small_pods, one.lumps).is_within(before)

    low, high = 0, MAX_PARTS
    while low < high and looks > 0:
        looks -= 1
        # What fits at first sight mostly leaves room.
        middle = (low + high + 1) // 2 if high < MAX_PARTS else high
        most = limit * middle // MAX_PARTS
        low, high = (middle, high) if not most or leaves_room(most) else (low, middle - 1)
    if low == MAX_PARTS:
        return BesideLarge(limit)
    return BesideLarge(limit * low // MAX_PARTS, kept_for)


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
    lumps; and how many pods are not large.
    """

    small: Mapping[_Suiting, Counter[str]] = field(default_factory=dict)
    lumps: Mapping[_LumpKey, _Lump] = field(default_factory=dict)
    small_pods: int = 0

    def including(self, room: Room, outstanding: Iterable[Outstanding]) -> _Tally:
        small = {suiting: Counter(amounts) for suiting, amounts in self.small.items()}
        lumps, small_pods = dict(self.lumps), self.small_pods
        for each in outstanding:
            replicas, requirements = each.to_pack, each.requirements
            if replicas <= 0:
                continue
            suiting = part_of(each, room.site.kind_p, room.kinds).suiting_p.tobytes()
            share = share_in(room.site, room.kinds, requirements)
            small_pods += 0 if share * LARGE_PART > 1 else replicas
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
        return _Tally(small=small, lumps=lumps, small_pods=small_pods)


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


class _Nodes(NamedTuple):
    """The cells of a cluster (axis k) while pods are put on their nodes: each of ``count_k`` nodes
    has ``free_rk`` left of ``resources``, of ``allocatable_sk`` of what is SCORED.
    """

    resources: tuple[str, ...]
    pool_k: IntArray
    count_k: IntArray
    free_rk: FloatArray
    allocatable_sk: FloatArray

    @classmethod
    def of(cls, room: Room) -> _Nodes:
        cells = room.pools.cells
        allocatable_sk = cells.allocatable_rk
        if allocatable_sk is None:
            raise ValueError("the cluster does not report what its nodes have allocatable")
        return cls(
            resources=cells.resources,
            pool_k=cells.pool_k.astype(np.int64),
            count_k=cells.count_k,
            free_rk=cells.min_rk.astype(np.float64),
            allocatable_sk=np.maximum(allocatable_sk, 1).astype(np.float64),
        )

    @property
    def node_count(self) -> int:
        return int(self.count_k.sum())

    @property
    def scored(self) -> list[int]:
        """The rows of what is SCORED."""
        return [self.resources.index(name) for name in SCORED]

    def filled_with(self, small: Mapping[_Suiting, Counter[str]]) -> _Nodes:
        """Once small pods are there; those that may be on the fewest nodes come first."""
        demands = [
            (np.frombuffer(suiting, dtype=np.bool_)[self.pool_k], amounts)
            for suiting, amounts in sorted(small.items())
        ]
        nodes = self
        for suiting_k, amounts in sorted(demands, key=lambda demand: int(demand[0].sum())):
            demand_r = np.array([float(amounts[name]) for name in self.resources])
            nodes = nodes._filled(suiting_k, demand_r)
        return nodes

    def _filled(self, suiting_k: BoolArray, demand_r: FloatArray) -> _Nodes:
        """With so much taken by many pods, each of which goes where most is left as a share of what
        the node has: until all that it reached have the same share left, or are full.
        """
        (asked,) = np.nonzero(demand_r)
        most_k = (self.free_rk[asked] / demand_r[asked, np.newaxis]).min(axis=0)
        part_k = most_k = np.maximum(most_k, 0.0) * suiting_k
        if float((most_k * self.count_k).sum()) > 1.0:
            scored = self.scored
            left_k = (self.free_rk[scored] / self.allocatable_sk).mean(axis=0)
            slope_k = (demand_r[scored, np.newaxis] / self.allocatable_sk).mean(axis=0)
            slope_k = np.maximum(slope_k, _LEAST_SLOPE)
            low, high = float((left_k - most_k * slope_k).min()), float(left_k.max())
            for _ in range(_HALVINGS):
                level = (low + high) / 2
                part_k = np.minimum(np.maximum(left_k - level, 0.0) / slope_k, most_k)
                is_enough = float((part_k * self.count_k).sum()) > 1.0
                low, high = (level, high) if is_enough else (low, level)
            part_k = np.minimum(np.maximum(left_k - low, 0.0) / slope_k, most_k)
            part_k = part_k / float((part_k * self.count_k).sum())
        return self._replace(free_rk=self.free_rk - demand_r[:, np.newaxis] * part_k)

    def shortfall(
        self,
        lumps: Mapping[_LumpKey, _Lump],
        small_pods: int,
        wanted: Collection[_LumpKey],
    ) -> Shortfall:
        """What is missing for large pods, where lumps come one kind after the other, the largest
        last. Of the kinds that are ``wanted`` one spare pod is enough beside few small pods.
        """
        free_rn = np.floor(self.free_rk + _ROUNDING).astype(np.int64).repeat(self.count_k, axis=1)
        total_sn = self.allocatable_sk.repeat(self.count_k, axis=1)
        pool_n = self.pool_k.repeat(self.count_k)
        placing = _Placing(free_rn, total_sn, self.scored)
        order = sorted(lumps.items(), key=lambda item: (item[1].share, str(item[0])))
        missing, spare, large = 0, 0, []
        for key, lump in order:
            # Of pods that are much alike, the mean.
            amount_r = np.array(
                [-(-lump.amounts.get(name, 0) // lump.replicas) for name in self.resources],
                dtype=np.int64,
            )
            suiting_n = np.frombuffer(key[0], dtype=np.bool_)[pool_n]
            late = placing.place(amount_r, suiting_n, lump.replicas)
            if lump.is_large:
                missing += late
                large.append((amount_r, suiting_n, 1 if key in wanted else SPARE_PODS))
        by_luck = -(-small_pods // RESERVE_PART)
        for amount_r, suiting_n, pods in large:
            has = int(placing.fits_n(amount_r, suiting_n).sum())
            spare += max(0, max(pods, by_luck) - has)
        return Shortfall(missing, spare)


class _Placing(NamedTuple):
    """Nodes (axis n) that have ``free_rn`` left, which pods take, and ``total_sn`` in all."""

    free_rn: IntArray
    total_sn: FloatArray
    scored: list[int]

    def place(self, amount_r: IntArray, suiting_n: BoolArray, replicas: int) -> int:
        """Take nodes for pods of one kind, each where most is left with it as a share of what the
        node has; how many pods find none.
        """
        fits_n = np.minimum(self.fits_n(amount_r, suiting_n), replicas)
        placed = min(replicas, int(fits_n.sum()))
        if placed:
            amount_s1 = amount_r[self.scored, np.newaxis]
            left_n = ((self.free_rn[self.scored] - amount_s1) / self.total_sn).mean(axis=0)
            slope_n = (amount_s1 / self.total_sn).mean(axis=0)
            # What is left with a node's first pod, its second, and so on (axis j).
            pods_j1 = np.arange(int(fits_n.max()))[:, np.newaxis]
            left_jn = np.where(pods_j1 < fits_n, left_n - pods_j1 * slope_n, -np.inf)
            order_i = np.argsort(-left_jn, axis=None, kind="stable")[:placed]
            taken_n = np.bincount(order_i % len(fits_n), minlength=len(fits_n))
            np.subtract(self.free_rn, amount_r[:, np.newaxis] * taken_n, out=self.free_rn)
        return replicas - placed

    def fits_n(self, amount_r: IntArray, suiting_n: BoolArray) -> IntArray:
        """How many more pods of a kind each node takes."""
        (asked,) = np.nonzero(amount_r)
        fits_rn = np.maximum(self.free_rn[asked], 0) // amount_r[asked, np.newaxis]
        fits_n: IntArray = fits_rn.min(axis=0) * suiting_n
        return fits_n


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
