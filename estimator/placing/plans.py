"""The claims that planned promises hang on: made, kept, given up, and counted as if bound.

Must not be used where no placer follows claims. Belongs to the loop that owns the cluster.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from estimator.binpack.strategy import Strategy
from estimator.cluster.assumed import AssumedPods
from estimator.cluster.claims import EXPIRY_SECONDS, Claim, Claims, first_replicas
from estimator.cluster.echoes import EchoCount
from estimator.nodes import PodState
from estimator.placing.place import arrays_beside, beside_assumed, seat
from estimator.snapshot import Snapshot
from federation.model.arrays import BoolArray
from federation.model.echoes import InterestUpdate, SoughtShape
from federation.model.node_plans import NodePlan, NodeShare, PlaceOrder, ShareOrder
from federation.model.resources import PODS
from federation.model.shapes import Echo, ReservationKey, request_shape

NOT_FOLLOWED: Final = "nobody here follows claims"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedSnapshot:
    """A snapshot on which claims are taken for pods, and how many of each promise's are."""

    snapshot: Snapshot
    replicas: Mapping[ReservationKey, int]


class Plans:
    """What is planned in one cluster."""

    def __init__(self, claims: Claims, echoes: EchoCount, assumed: AssumedPods) -> None:
        self._claims = claims
        self._echoes = echoes
        self._assumed = assumed
        self._told: set[str] = set()
        self._standing: tuple[Snapshot, int, ClaimedSnapshot] | None = None

    def order(
        self, snapshot: Snapshot, order: PlaceOrder, now: float, strategy: Strategy
    ) -> NodePlan:
        """Claim nodes for every replica that is not bound yet, or leave all claims as they were."""
        self._claims.expire(now)
        self._claims.release(order.binding_key)
        before = {key: self._claims.planned(key) for key in self._of_binding(order.binding_key)}
        others = _without(self._claims.all(), before.values())
        keys = [_key(order.binding_key, share) for share in order.shares]
        bound = [
            self._bound(key, share.replicas) for key, share in zip(keys, order.shares, strict=True)
        ]
        missing = [
            replace(share, replicas=share.replicas - sum(nodes.values()))
            for share, nodes in zip(order.shares, bound, strict=True)
        ]
        seatings = seat(self._beside_assumed(snapshot, others), others, missing, strategy)
        unplaced = sum(seating.unplaced for seating in seatings)
        if not unplaced:
            for key in before.keys() - set(keys):
                self._claims.plan(key, ())
            for key, seating in zip(keys, seatings, strict=True):
                self._claims.plan(key, seating.claims, now + EXPIRY_SECONDS)
        return NodePlan(
            nodes=tuple(
                node
                for share, nodes, seating in zip(order.shares, bound, seatings, strict=True)
                for node in _merged(share.component, nodes, seating.nodes)
            ),
            unplaced=unplaced,
            message="; ".join(seating.why for seating in seatings if seating.why),
            strategy=strategy.name,
            claimed=not unplaced,
        )

    def give_up(self, binding: str) -> None:
        """Nothing of the binding is planned any more."""
        for key in self._of_binding(binding):
            self._claims.plan(key, ())

    def look_for(
        self, update: InterestUpdate, snapshot: Snapshot, strategy: Strategy
    ) -> Iterator[None]:
        """Claim what is promised by plan and not bound, and give up what is not; in steps.

        To be called when the update is counted. Of a large one nothing is done before its end.
        """
        self._told.update(each.binding for each in update.interests)
        if not update.version:
            return
        told, self._told = sorted(self._told), set()
        for key in self._claims.promises():
            is_gone = self._echoes.interest(key.binding) is None
            is_told = update.whole or key.binding in update.removed
            if is_gone and (is_told or not self._claims.is_provisional(key)):
                self._claims.plan(key, ())
        for binding in told:
            interest = self._echoes.interest(binding)
            for sought in interest.shapes if interest is not None else ():
                self._keep(ReservationKey(binding, sought.component, sought.shape), sought,
                           snapshot, strategy)  # fmt: skip
            yield

    def standing(self, snapshot: Snapshot, counted_n: BoolArray) -> ClaimedSnapshot:
        """What claims leave; those count that are on counted nodes with room for them."""
        known = self._standing
        if known is None or known[0] is not snapshot or known[1] != self._claims.version:
            known = snapshot, self._claims.version, self._stand(snapshot, counted_n)
            self._standing = known
        return known[2]

    def _stand(self, snapshot: Snapshot, counted_n: BoolArray) -> ClaimedSnapshot:
        promises = self._claims.promises()
        if not promises:
            return ClaimedSnapshot(snapshot=snapshot, replicas={})
        rows = {node.name: row for row, node in enumerate(snapshot.table.nodes)}
        free = _Free(snapshot)
        standing: list[Claim] = []
        replicas: Counter[ReservationKey] = Counter()
        covered: Counter[str] = Counter()
        for key in promises:
            for claim in self._claims.planned(key):
                row = rows.get(claim.node)
                if row is None or not counted_n[row]:
                    continue
                fitting = free.take(row, claim)
                if fitting:
                    standing.append(replace(claim, replicas=fitting))
                    replicas[key] += fitting
            # Pods with a node kept for them do not wait for one.
            waiting = min(replicas[key], self._echoes.waiting(key))
            covered.update({name: amount * waiting for name, amount in key.shape})
            covered[PODS] += waiting
        arrays = arrays_beside(standing, snapshot, rows)
        left = {name: amount - covered[name] for name, amount in snapshot.waiting.items()}
        return ClaimedSnapshot(
            snapshot=replace(
                snapshot,
                requested=arrays.requested,
                waiting={name: amount for name, amount in left.items() if amount > 0},
            ),
            replicas=+replicas,
        )

    def _keep(
        self, key: ReservationKey, sought: SoughtShape, snapshot: Snapshot, strategy: Strategy
    ) -> None:
        held = self._claims.planned(key)
        if sought.planned is None:
            # What was just claimed may be promised by plan in the next update.
            if held and not self._claims.is_provisional(key):
                self._claims.plan(key, ())
            return
        wanted = max(0, sought.planned.replicas - self._echoes.held(key))
        missing = wanted - sum(claim.replicas for claim in held)
        if missing > 0:
            share = ShareOrder(
                component=key.component,
                replicas=missing,
                requirements=sought.planned.requirements,
            )
            others = list(self._claims.all())
            (seating,) = seat(self._beside_assumed(snapshot, others), others, [share], strategy)
            held += seating.claims
        self._claims.plan(key, first_replicas(held, wanted))

    def _beside_assumed(self, snapshot: Snapshot, claims: Sequence[Claim]) -> Snapshot:
        """The snapshot with what may be on its way to nodes, beyond the claims, requested."""
        return beside_assumed(snapshot, self._assumed.beside(claims, snapshot.table))

    def _of_binding(self, binding: str) -> Collection[ReservationKey]:
        return [key for key in self._claims.promises() if key.binding == binding]

    def _bound(self, key: ReservationKey, most: int) -> Counter[str]:
        """How many of a promise's pods are on which nodes, or have finished there."""
        nodes = sorted(
            pod.node
            for pod in self._echoes.pods_of(key)
            if pod.state in (PodState.BOUND, PodState.SUCCEEDED)
        )
        return Counter(nodes[:most])


def echoes_with(echoes: Sequence[Echo], claimed: Mapping[ReservationKey, int]) -> tuple[Echo, ...]:
    """The echoes with nodes that are kept for pods counted as pods on nodes."""
    if not claimed:
        return tuple(echoes)
    by_key = {echo.key: echo for echo in echoes}
    for key, replicas in claimed.items():
        binding, component, shape = key
        echo = by_key.get(key) or Echo(binding=binding, component=component, shape=shape)
        by_key[key] = replace(
            echo, bound=echo.bound + replicas, unbound=max(0, echo.unbound - replicas)
        )
    return tuple(by_key.values())


class _Free:
    """What pods, and the claims that were taken before, leave of nodes."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._left: dict[tuple[int, str], int] = {}

    def take(self, row: int, claim: Claim) -> int:
        """Take as many of the claim's replicas as fit; how many."""
        asked = {**claim.request, PODS: 1}
        left = {name: self._left_of(row, name) for name in asked}
        fitting = min(left[name] // amount for name, amount in asked.items())
        fitting = max(0, min(fitting, claim.replicas))
        for name, amount in asked.items():
            self._left[row, name] = left[name] - fitting * amount
        return fitting

    def _left_of(self, row: int, name: str) -> int:
        known = self._left.get((row, name))
        if known is not None:
            return known
        free_n = self._snapshot.allocatable_n(name), self._snapshot.requested_n(name)
        return int(free_n[0][row]) - int(free_n[1][row])


def _key(binding: str, share: ShareOrder) -> ReservationKey:
    return ReservationKey(binding, share.component, request_shape(share.requirements.request))


def _without(claims: Iterable[Claim], dropped: Iterable[tuple[Claim, ...]]) -> list[Claim]:
    gone = {id(claim) for held in dropped for claim in held}
    return [claim for claim in claims if id(claim) not in gone]


def _merged(
    component: str, bound: Mapping[str, int], seated: Iterable[NodeShare]
) -> Iterator[NodeShare]:
    """One share for each node, in their order: replicas that are there, and those to come."""
    found = {
        node: NodeShare(node=node, component=component, replicas=replicas, score=0.0, scale=0.0)
        for node, replicas in bound.items()
    }
    for share in seated:
        there = bound.get(share.node, 0)
        found[share.node] = replace(share, replicas=share.replicas + there)
    for node in sorted(found):
        yield found[node]
