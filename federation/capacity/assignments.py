"""Outstanding promises of one cluster, where each is packed, and the margin beside them.

Pure and immutable. The steps of a packing are computed on demand. Must not pack, nor know what is
free.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final, NamedTuple

import numpy as np

from federation.capacity.packing import Take, Takes
from federation.model.placement import Certificate
from federation.model.pools.bounds import per_replica
from federation.model.pools.values import Pools
from federation.model.reservations import (
    RESERVE_PART,
    Outstanding,
    PackingOrder,
    PromiseCertificate,
    careful_reserve,
)
from federation.model.shapes import Shape


@dataclass(frozen=True, slots=True, kw_only=True)
class PackingStep:
    """Replicas on equal nodes: ``replicas`` on each of ``nodes`` nodes of the pool at ``pool``.

    Each node has at least ``free``, in the order of the cells' resources, after all earlier steps.
    """

    pool: int
    free: tuple[int, ...]
    nodes: int
    replicas: int


class Assignment(NamedTuple):
    """An outstanding promise, and how many of its replicas are ``unplaced``.

    It is packed in the ``takes`` of ``cluster``, after ``skipped`` replicas of other promises of
    its shape. ``takes`` is None in a cluster that never reported cells. ``resources`` are the
    resources of the cluster's cells.
    """

    outstanding: Outstanding
    takes: Takes | None = None
    cluster: int = 0
    resources: tuple[str, ...] = ()
    skipped: int = 0
    unplaced: int = 0

    @property
    def steps(self) -> tuple[PackingStep, ...]:
        """The packing of the promise, in order."""
        if self.takes is None:
            return ()
        demanded = per_replica(self.outstanding.requirements.request)
        amount_r = [demanded.get(name, 0) for name in self.resources]
        takes = self.takes.of(self.cluster, self.resources)
        placed = self.outstanding.to_pack - self.unplaced
        return tuple(_steps(takes, amount_r, self.skipped, placed))

    @property
    def contending(self) -> Outstanding:
        """The promise as strict promises see it; one that lost its room is strict no more."""
        if self.is_broken:
            return self.outstanding._replace(certificate=PromiseCertificate.CAREFUL)
        return self.outstanding

    @property
    def is_broken(self) -> bool:
        """Tell whether the promise was packed once and has no room any more."""
        return self.unplaced > 0 and self.outstanding.certificate.is_packed


class Held(NamedTuple):
    """All outstanding promises of a cluster in packing order: ``more`` after those ``before``.

    A linked list: later states share ``before``. ``replicas`` is the sum to be packed, and
    ``only`` their shape where they have a single one. ``arrived`` has the promises in the order
    in which they were made, where they had to be packed in another order. The first ``grouped``
    of that order are older than the newest report.
    """

    before: Held | None = None
    more: tuple[Assignment, ...] = ()
    is_overcommitted: bool = False
    is_strict: bool = False
    replicas: int = 0
    only: Shape | None = None
    arrived: tuple[Outstanding, ...] = ()
    grouped: int = 0

    @property
    def every(self) -> tuple[Assignment, ...]:
        parts: list[tuple[Assignment, ...]] = []
        held: Held | None = self
        while held is not None:
            parts.append(held.more)
            held = held.before
        return tuple(chain.from_iterable(reversed(parts)))

    @property
    def outstanding(self) -> tuple[Outstanding, ...]:
        """All promises in the order in which they were made."""
        return self.arrived or tuple([assignment.outstanding for assignment in self.every])

    @property
    def order(self) -> PackingOrder:
        """All promises in the order in which they were made, and how many are packed by kind."""
        return PackingOrder(self.outstanding, self.grouped)

    def of_binding(self, binding: str) -> tuple[Outstanding, ...]:
        """Return the promises of one binding in the order in which they were made."""
        if self.arrived:
            return tuple([promise for promise in self.arrived if promise.binding == binding])
        promises = [assignment.outstanding for assignment in self.every]
        return tuple([promise for promise in promises if promise.binding == binding])

    @property
    def late(self) -> int:
        """The number of promised replicas that have no room in the newest report."""
        if not self.is_overcommitted:
            return 0
        return sum([part.unplaced for part in self.every if part.unplaced and part.is_broken])

    @property
    def reserve(self) -> int:
        """The replicas kept back of a careful promise where best fit and spreading differ."""
        return careful_reserve(self.late)

    @property
    def max_kept_back(self) -> int:
        """The most replicas that are kept back of a careful promise, of any shape."""
        return self.reserve + -(-self.replicas // RESERVE_PART)

    def on_their_way(self, shape: Shape) -> int:
        """Count the replicas that may land anywhere: 0 where all have this shape.

        Replicas of the same shape each take the room of one, wherever they land.
        """
        return 0 if self.only == shape else self.replicas

    def with_more(
        self, assignments: Sequence[Assignment], shapes: dict[int, Shape] | None = None
    ) -> Held:
        """Append assignments.

        ``shapes`` caches shapes by the identity of requirements, which promises of a decision share
        over all clusters; the caller keeps the requirements alive.
        """
        replicas, only = self.replicas, self.only
        is_overcommitted, is_strict = self.is_overcommitted, self.is_strict
        shapes = {} if shapes is None else shapes
        for added in assignments:
            promise = added.outstanding
            is_overcommitted = is_overcommitted or added.is_broken
            is_strict = is_strict or promise.certificate is PromiseCertificate.STRICT
            to_pack = promise.to_pack
            # Shapes are the costly part, and a further one of several changes nothing.
            if to_pack and (only is not None or not replicas):
                key = id(promise.requirements)
                shape = shapes.get(key)
                if shape is None:
                    shape = shapes[key] = promise.shape
                only = shape if not replicas or only == shape else None
            replicas += to_pack
        arrived = self.arrived
        if arrived:
            arrived = (*arrived, *[added.outstanding for added in assignments])
        # Keyword arguments would take twice as long, in each cluster of each decision.
        return Held(
            self,
            tuple(assignments),
            is_overcommitted,
            is_strict,
            replicas,
            only,
            arrived,
            self.grouped,
        )


class ShapeIndex:
    """Numbers of promises that are packed in the same way, in the order of their first use.

    ``firsts`` has the first promise of each number. The caller must keep the promises alive,
    because their values are cached by identity.
    """

    def __init__(self) -> None:
        self.firsts: list[Outstanding] = []
        self._by_shape: dict[tuple[Shape, bool], list[int]] = {}
        # By the request as it is written, because that is faster than its shape.
        self._by_request: dict[tuple[object, int], list[int]] = {}
        # By identity, because bindings with equal requests mostly share these values.
        self._by_identity: dict[tuple[int, int, int], int] = {}

    def number(self, promise: Outstanding) -> int:
        """Return the number of a promise: equal for two that are packed in the same way."""
        requirements = promise.requirements
        identity = (
            id(requirements.request),
            id(requirements.node_claim),
            id(promise.certificate),
        )
        number = self._by_identity.get(identity)
        if number is None:
            number = self._by_identity[identity] = self._number_by_value(promise)
        return number

    def _number_by_value(self, promise: Outstanding) -> int:
        written = tuple(promise.requirements.request.items()), id(promise.certificate)
        candidates = self._by_request.get(written)
        if candidates is None:
            shape = promise.shape, promise.certificate.is_packed
            candidates = self._by_request[written] = self._by_shape.setdefault(shape, [])
        claim = promise.requirements.node_claim
        for number in candidates:
            if self.firsts[number].requirements.node_claim == claim:
                return number
        candidates.append(len(self.firsts))
        self.firsts.append(promise)
        return candidates[-1]


def in_groups(order: PackingOrder, index: ShapeIndex) -> list[list[Outstanding]]:
    """Return the groups of promises that are packed in one step, in their order.

    Older promises are grouped kind by kind, in the order of each kind's first. The later ones are
    alone.
    """
    groups: dict[int, list[Outstanding]] = {}
    for promise in order.older:
        groups.setdefault(index.number(promise), []).append(promise)
    return [*groups.values(), *[[promise] for promise in order.later]]


def by_size(pools: Pools, groups: Sequence[Sequence[Outstanding]]) -> list[Sequence[Outstanding]]:
    """Sort groups of promises by size, the largest first.

    The size of a group is the largest share of the cluster's total that one replica requests of
    any resource.
    """
    total_r = (pools.cells.min_rk.astype(np.float64) * pools.cells.count_k).sum(axis=1)
    total_r = np.maximum(total_r, 1.0)
    totals = dict(zip(pools.cells.resources, total_r.tolist(), strict=True))

    def share(group: Sequence[Outstanding]) -> float:
        demanded = per_replica(group[0].requirements.request)
        return float(max([amount / totals.get(name, 1.0) for name, amount in demanded.items()]))

    return sorted(groups, key=share, reverse=True)


def holdings_of(
    promises: Sequence[Outstanding],
    placed: int,
    takes: Takes,
    resources: tuple[str, ...],
    cluster: int = 0,
) -> list[Assignment]:
    """Divide ``placed`` replicas of a group among its promises: the first promise comes first."""
    assignments, skipped = [], 0
    for promise in promises:
        own_placed = min(promise.to_pack, placed - skipped)
        unplaced = promise.to_pack - own_placed
        # Keyword arguments would take twice as long, for all promises of all clusters.
        assignments.append(Assignment(promise, takes, cluster, resources, skipped, unplaced))
        skipped += own_placed
    return assignments


def _steps(
    takes: Iterable[Take], amount_r: Sequence[int], skipped: int, replicas: int
) -> Iterator[PackingStep]:
    """Yield the steps of ``replicas`` that come after ``skipped`` others of the same shape."""
    for take in takes:
        skipped_now = min(skipped, take.nodes * take.replicas)
        skipped -= skipped_now
        full_nodes, on_first = divmod(skipped_now, take.replicas)
        nodes = take.nodes - full_nodes
        while replicas and nodes:
            capacity = take.replicas - on_first
            full = 1 if on_first else min(nodes, replicas // capacity)
            per_node = min(capacity, replicas)
            yield PackingStep(
                pool=take.pool,
                free=tuple(
                    free - on_first * amount
                    for free, amount in zip(take.free, amount_r, strict=True)
                ),
                nodes=max(full, 1),
                replicas=per_node,
            )
            replicas -= per_node * max(full, 1)
            nodes -= max(full, 1)
            on_first = 0


class OwnReplicas(NamedTuple):
    """A binding's replicas to be packed in a cluster; ``stuck`` of them lost their room."""

    replicas: int = 0
    stuck: int = 0


NOT_OWN: Final = OwnReplicas()


def max_careful(
    filled: int, spread: int, held: Held, shape: Shape, own: OwnReplicas = NOT_OWN
) -> int:
    """Return how many replicas may be promised, unless strictly, of those that fit in both views.

    available = min(filled, spread) - min(|filled - spread|, reserve) - ceil(on_way / RESERVE_PART)
    - own.stuck, where on_way are the other bindings' replicas of other shapes on their way.
    """
    kept_back = min(abs(filled - spread), held.reserve) + own.stuck
    on_their_way = max(0, held.on_their_way(shape) - own.replicas)
    kept_back += -(-on_their_way // RESERVE_PART)
    return max(0, min(filled, spread) - kept_back)


def worth(
    requested: Certificate | None, *, carries_labels: bool, follows_plans: bool
) -> PromiseCertificate:
    """Return the certificate of a promise that finds room.

    ``carries_labels``: the pools carry the labels that the claim names. ``follows_plans``: a binder
    of ours places pods on the nodes that the cluster's agent plans.
    """
    if not carries_labels:
        return PromiseCertificate.UNPROVEN
    if requested is Certificate.STRICT:
        return PromiseCertificate.STRICT
    if requested is Certificate.CAREFUL or not follows_plans:
        return PromiseCertificate.CAREFUL
    return PromiseCertificate.PLANNED
