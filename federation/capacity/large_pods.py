"""Room that careful promises leave for large pods on their way.

Pure. A large pod fits on few nodes, mostly the emptiest ones, and a stock kube-scheduler puts the
small pods created before it there. So small pods on their way are placed first, wherever most is
free, in whatever order they were promised; then large pods take nodes, the largest last. Scores
and orders differ in reality, so room is left as if twice as many small pods were on their way.
The work does not grow with the number of promises. Must not grant anything: it only says where
less may be promised.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import frexp, isqrt
from typing import Final, NamedTuple

import numpy as np

from federation.capacity.assignments import Assignment, Held
from federation.capacity.cluster_room import ClusterPools, Room
from federation.capacity.filled_nodes import (
    LARGE_PART,
    DemandOnWay,
    Filled,
    Lump,
    LumpKey,
    ReportedNodes,
    Suiting,
    suiting_pools,
)
from federation.capacity.fleet_rooms import FleetRooms
from federation.capacity.largest_nodes import holds_large, is_large_in, share_in
from federation.capacity.pool_kinds import PoolKinds
from federation.capacity.rehearsal import part_of
from federation.model.arrays import BoolArray, FloatArray, IntArray
from federation.model.pools.bounds import per_replica
from federation.model.pools.values import SCORED
from federation.model.reason_codes import ReasonCode
from federation.model.reasons import NO_REASON, Amount, Reason
from federation.model.reservations import Outstanding
from federation.model.shapes import request_shape
from federation.model.workload import ReplicaRequirements

# Pods that ask for more than 1/32 of a node are placed one by one; smaller ones are spread.
LUMP_PART: Final = 32
# Small pods count as this many times their number. In twelve bursts in 200 to 300 unlike nodes,
# 1.5 left 3 of 177 large pods pending, 2 none of 185.
SMALL_MARGIN: Final = 2
# Clusters in which one decision leaves room for large pods: about 1 ms each.
MAX_CLUSTERS: Final = 4
# Trials in one cluster for one question: they tell about 100 from 115 replicas.
MAX_LOOKS: Final = 6
_TOLD_APART: Final = 8
# Steps of all trials in one cluster: (cells + KIND_STEPS) x kinds of pods, about 10 ms. With fewer
# trials less is promised; without any, nothing is promised beside large pods.
MAX_STEPS: Final = 200_000
KIND_STEPS: Final = 1_000
# Distinct claims of small pods; pods of further claims count as if they might be on any node.
MAX_CLAIMS: Final = 8
# Small lumps are alike if their ratios of memory to cpu differ by fewer octaves.
_OCTAVES_ALIKE: Final = 2


class BesideLarge(NamedTuple):
    """How many replicas leave room for large pods; ``reason``: why no more do."""

    replicas: int
    reason: Reason = NO_REASON


def is_mixed(fleet: FleetRooms, position: int, requirements: ReplicaRequirements) -> bool:
    """Tell whether a cluster gets both large pods and others, with one of the requirements."""
    cluster, held = fleet.clusters[position], fleet.held[position]
    return (
        cluster is not None
        and held is not None
        and _mixes(cluster, held, fleet.kinds, requirements)
    )


def mixed_c(fleet: FleetRooms, requirements: ReplicaRequirements) -> BoolArray:
    """Tell where both large pods and others are on their way (axis c), with one of these."""
    largest = fleet.largest
    mixed_c = fleet.sums.on_their_way_c(request_shape(requirements.request)) > 0
    mixed_c &= largest.has_allocatable_c
    if not mixed_c.any():
        return mixed_c
    is_large_c = mixed_c & largest.is_large_c(fleet.kinds, requirements)
    unsure_c = mixed_c & ~is_large_c
    return is_large_c | largest.holds_large_c(fleet.clusters, fleet.held, fleet.kinds, unsure_c)


def ranked_mixed(
    fleet: FleetRooms, requirements: ReplicaRequirements, max_c: IntArray
) -> list[int]:
    """Return the clusters that leave room for large pods: a few mixed ones with most room."""
    (mixed,) = np.nonzero((max_c > 0) & mixed_c(fleet, requirements))
    ranked = mixed[np.argsort(-max_c[mixed], kind="stable")]
    positions: list[int] = ranked[:MAX_CLUSTERS].tolist()
    return positions


def max_beside_large(room: Room, requirements: ReplicaRequirements, limit: int) -> BesideLarge:
    """Return the most replicas with which no further large pod is left without a node.

    Nor may they take a node that suits a large pod which small ones crowd out already. Return the
    limit where large pods are not mixed with others.
    """
    cluster = room.cluster
    if limit <= 0 or not _mixes(cluster, room.held, room.kinds, requirements):
        return BesideLarge(limit)
    claim = requirements.node_claim
    question = request_shape(requirements.request), claim and claim.key, limit
    held, answers = cluster.caches.beside_large
    if held is not room.held:
        answers = {}
        cluster.caches.beside_large = room.held, answers
    if question not in answers:
        answers[question] = _max_beside_large(room, requirements, limit)
    return BesideLarge(*answers[question])


def _max_beside_large(room: Room, requirements: ReplicaRequirements, limit: int) -> BesideLarge:
    demand, nodes = _demand(room), _nodes(room)
    pods = sum(lump.replicas for lump in demand.lumps.values() if lump.is_large)
    kept_for = Reason.of(ReasonCode.KEPT_FOR_LARGE_PODS, Amount(pods))
    looks = MAX_STEPS // ((len(demand.lumps) + 2) * (len(nodes.count_k) + KIND_STEPS)) - 1
    if looks < 1:
        return BesideLarge(0, kept_for)
    kind, filled = _Kind.of(room, requirements), _filled(room, demand, nodes)
    margins: tuple[int, ...] = (SMALL_MARGIN,)
    missing = [filled.missing]
    if filled.missing:
        # Pods that lack a node already cannot be lost again, so nodes that suit them are kept.
        crowded_out = filled.missing - nodes.filled(demand, 0).missing
        large = [(key[0], demand.lumps[key].mean_r) for key in crowded_out]
        if nodes.may_take_node_of(large, kind.suiting, kind.amount_r):
            return BesideLarge(0, kept_for)
        if crowded_out:
            margins, looks = (1, SMALL_MARGIN), (looks - 1) // 2
            missing = [nodes.filled(demand, 1).missing, filled.missing]
        if looks < 1:
            return BesideLarge(0, kept_for)

    def leaves_room(replicas: int) -> bool:
        demand_with = _including(demand, [(kind, replicas)])
        return not any(
            nodes.filled(demand_with, margin, now).is_incomplete
            for margin, now in zip(margins, missing, strict=True)
        )

    probably = limit if filled.late else min(limit, kind.room_in(filled))
    likely = limit if probably == limit else (probably + 1) // 2
    # With a single trial, few replicas are not tried.
    guesses = (1, likely) if filled.is_tight and looks > 1 else (likely,)
    replicas = _max_that_holds(leaves_room, limit, probably, min(looks, MAX_LOOKS), guesses)
    return BesideLarge(replicas, NO_REASON if replicas == limit else kept_for)


def _max_that_holds(
    holds: Callable[[int], bool], limit: int, probably: int, looks: int, guesses: tuple[int, ...]
) -> int:
    """Return the most replicas, up to a limit, for which a condition holds, in ``looks`` trials.

    It ``probably`` holds for no more than that. If it holds for all of these, large pods lose no
    node, and the limit is tried next. The ``guesses`` are tried first. Usually the answer is a
    quarter to a half of ``probably``. Where it is far less, the bisection is geometric, so that few
    replicas are found as fast as many.
    """
    low, high, coming = 0, probably + 1, list(reversed(guesses))
    for _ in range(looks):
        if high - low <= max(1, low // _TOLD_APART):
            if high <= probably or probably == limit:
                break
            probably, high, coming = limit, limit + 1, [limit]
        is_near = 4 * high > probably or high <= 4 * low
        step = (low + high) // 2 if is_near else isqrt(max(low, 1) * high)
        while coming:
            guess = coming.pop()
            if low < guess < high:
                step = guess
                break
        low, high = (step, high) if holds(step) else (low, step)
    return low


class _Kind(NamedTuple):
    """A replica's request: the pools that match, and its ``share`` of the largest node.

    ``key`` is that of its lump, None for a small pod.
    """

    suiting: Suiting
    share: float
    amount_r: FloatArray
    key: LumpKey | None

    @classmethod
    def of(cls, room: Room, requirements: ReplicaRequirements) -> _Kind:
        promise = Outstanding("", requirements, 1)
        suiting = part_of(promise, room.cluster.kind_p, room.kinds).suiting_p.tobytes()
        share = share_in(room.cluster, room.kinds, requirements)
        demanded = per_replica(requirements.request)
        amounts = [float(demanded.get(name, 0)) for name in room.pools.cells.resources]
        is_lump = share * LUMP_PART > 1
        key = _lump_key(requirements, suiting, share) if is_lump else None
        return cls(suiting, share, np.array(amounts), key)

    def room_in(self, filled: Filled) -> int:
        """Return how many fit beside all on their way; small ones count SMALL_MARGIN times."""
        nodes = filled.nodes
        pod_count = int(nodes.fits_k(self.amount_r, suiting_pools(self.suiting)) @ nodes.count_k)
        return pod_count if self.share * LARGE_PART > 1 else pod_count // SMALL_MARGIN


def _including(demand: DemandOnWay, pods: Iterable[tuple[_Kind, int]]) -> DemandOnWay:
    """Add pods of these kinds to the demand."""
    small, lumps = dict(demand.small), dict(demand.lumps)
    for kind, replicas in pods:
        amount_r = kind.amount_r * replicas
        if kind.key is not None:
            lumps[kind.key] = Lump(kind.share, replicas, amount_r).joined(lumps.get(kind.key))
            continue
        suiting = kind.suiting
        if suiting not in small and len(small) >= MAX_CLAIMS:
            suiting = b"\x01" * len(suiting)
        small[suiting] = small.get(suiting, 0.0) + amount_r
    return DemandOnWay(small, lumps)


def _lump_key(requirements: ReplicaRequirements, suiting: Suiting, share: float) -> LumpKey:
    """Return the key of a lump: large pods by request, others by the octave of their share.

    Others are also told apart by their ratio of memory to cpu, so that there are few kinds even
    where all requests differ.
    """
    request = requirements.request
    if share * LARGE_PART > 1:
        return suiting, request_shape(request)
    memory_by_cpu = request.get(SCORED[1], 0) / max(request.get(SCORED[0], 0), 1)
    return suiting, (frexp(share)[1], frexp(memory_by_cpu)[1] // _OCTAVES_ALIKE)


def _demand(room: Room) -> DemandOnWay:
    """Return the demand on its way; usually it is cached for all but the last promises."""
    cached, demand = room.cluster.caches.demand
    newest: Held | None = room.held
    added: list[tuple[Assignment, ...]] = []
    while newest is not None and newest is not cached:
        added.append(newest.more)
        newest = newest.before
    if newest is None or demand is None:
        demand = DemandOnWay({}, {})
    outstanding = [assignment.outstanding for part in reversed(added) for assignment in part]
    demand = _including(
        demand,
        (
            (_Kind.of(room, promise.requirements), promise.to_pack)
            for promise in outstanding
            if promise.to_pack > 0
        ),
    )
    room.cluster.caches.demand = room.held, demand
    return demand


def _nodes(room: Room) -> ReportedNodes:
    """Return the reported nodes."""
    caches = room.cluster.caches
    if caches.nodes is None:
        caches.nodes = ReportedNodes.of(room.pools.cells)
    return caches.nodes


def _filled(room: Room, demand: DemandOnWay, nodes: ReportedNodes) -> Filled:
    """Return the nodes with all pods on their way, small ones counted twice."""
    caches = room.cluster.caches
    held, filled = caches.filled
    if held is not room.held or filled is None:
        filled = nodes.filled(demand, SMALL_MARGIN)
        caches.filled = room.held, filled
    return filled


def _mixes(
    cluster: ClusterPools, held: Held, kinds: PoolKinds, requirements: ReplicaRequirements
) -> bool:
    if cluster.pools.cells.allocatable_rk is None or not held.replicas:
        return False
    if held.only is not None and held.only == request_shape(requirements.request):
        return False
    return is_large_in(cluster, kinds, requirements) or holds_large(cluster, held, kinds)
