"""The claims that planned promises hang on: made, kept, given up, and counted as if bound.

Must not be used where no placer follows claims. Belongs to the loop that owns the cluster.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from estimator.binpack.strategy import Strategy
from estimator.cluster.echoes import EchoCount
from estimator.cluster.holds import EXPIRY_SECONDS, AssumedPods, Claim, Claims, first_replicas
from estimator.nodes import PodState
from estimator.placement.incoming import IncomingPod
from estimator.placement.judgement import Claimed, Positions
from estimator.placement.place import (
    Seating,
    arrays_beside,
    beside,
    beside_assumed,
    fitting,
    largest_first,
    replicas_of,
    seat,
    seated_anew,
    share_like,
)
from estimator.snapshot import Snapshot
from federation.model.arrays import BoolArray
from federation.model.echoes import InterestUpdate, PodSighting, SightingState, SoughtShape
from federation.model.node_plans import LostPlan, NodePlan, NodeShare, PlaceOrder, ShareOrder
from federation.model.resources import PODS
from federation.model.shapes import Echo, ReservationKey, request_shape

NOT_FOLLOWED: Final = "nobody here follows claims"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedSnapshot:
    """A snapshot on which claims are taken for pods, and how many of each promise's are."""

    snapshot: Snapshot
    replicas: Mapping[ReservationKey, int]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PlaceableNodes:
    """Nodes to claim room on: those that are counted as capacity, by the strategy's scores."""

    snapshot: Snapshot
    counted_n: BoolArray
    strategy: Strategy


class Plans:
    """The planned promises of one cluster.

    Every claim has room: one that loses it is moved to another node. Where there is none the
    promise is ``lost``, which says why, until the control plane asks for it no more.
    """

    def __init__(self, claims: Claims, echoes: EchoCount, assumed: AssumedPods) -> None:
        self.lost: dict[ReservationKey, str] = {}
        self._claims = claims
        self._echoes = echoes
        self._assumed = assumed
        self._positions = Positions()
        self._told: set[str] = set()
        self._loosened: set[ReservationKey] = set()
        self._kept: tuple[Snapshot, int] | None = None
        self._shortened: tuple[Snapshot, int, Mapping[int, Claim]] | None = None
        self._standing: tuple[Snapshot, int, ClaimedSnapshot] | None = None

    def order(self, placeable: PlaceableNodes, order: PlaceOrder, now: float) -> NodePlan:
        """Claim nodes for every replica that is not bound yet, or leave all claims as they were."""
        self._claims.expire(now)
        self._claims.release(order.binding_key)
        former = {key: self._claims.planned(key) for key in self._of_binding(order.binding_key)}
        foreign = _without(self._claims.all(), former.values())
        keys = [_key(order.binding_key, share) for share in order.shares]
        bound = [
            self._bound(key, share.replicas) for key, share in zip(keys, order.shares, strict=True)
        ]
        missing = [
            replace(share, replicas=share.replicas - sum(nodes.values()))
            for share, nodes in zip(order.shares, bound, strict=True)
        ]
        seatings = dict(zip(keys, self._seated(placeable, foreign, missing), strict=True))
        if any(seating.unplaced for seating in seatings.values()):
            seatings |= self._seated_anew(
                placeable, dict(zip(keys, missing, strict=True)), former.keys()
            )
        unplaced = sum(seating.unplaced for seating in seatings.values())
        if not unplaced:
            for key in former.keys() - seatings.keys():
                self._claims.plan(key, ())
            for key, seating in seatings.items():
                is_own = key.binding == order.binding_key
                until = self._claims.expires_at(key)
                if is_own:
                    is_told = self._is_promised_by_plan(key, order.decision_id)
                    until = math.inf if is_told else now + EXPIRY_SECONDS
                self._claims.plan(key, seating.claims, until)
                if is_own:
                    self.lost.pop(key, None)
        own = [seatings[key] for key in keys]
        return NodePlan(
            nodes=tuple(
                node
                for share, nodes, seating in zip(order.shares, bound, own, strict=True)
                for node in _merged(share.component, nodes, seating.nodes)
            ),
            unplaced=unplaced,
            message="; ".join(seating.why for seating in own if seating.why),
            strategy=own[0].strategy if own else placeable.strategy.name,
            claimed=not unplaced,
        )

    def lost_plans(self) -> list[LostPlan]:
        """Return the promises that cannot be kept, as the control plane is told."""
        plans = []
        for key, reason in self.lost.items():
            sought = self._sought(key)
            if sought is not None and sought.decisions:
                plans.append(
                    LostPlan(
                        binding=key.binding,
                        component=key.component,
                        decision=sought.decisions[-1],
                        reason=reason,
                    )
                )
        return plans

    def give_up(self, binding: str) -> None:
        """Nothing of the binding is planned any more."""
        for key in self._of_binding(binding):
            self._drop(key)

    def look_for(
        self, update: InterestUpdate, placeable: PlaceableNodes, now: float
    ) -> Iterator[None]:
        """Claim what is promised by plan and not bound, and give up what is not; in steps.

        To be called when the update is counted. Of a large one nothing is done before its end. What
        is not promised by plan any more leaves its claims to the pods of its binding for a while.
        """
        self._told.update(interest.binding for interest in update.interests)
        if not update.version:
            return
        bindings, self._told = self._told, set()
        for key in (*self._claims.promises(), *self.lost):
            is_gone = self._echoes.interest(key.binding) is None
            is_told = update.whole or key.binding in update.removed
            if is_gone and (is_told or not self._claims.is_provisional(key)):
                self._drop(key)
        self._leave_claims(bindings, now)
        for key, sought in self._largest_first(bindings, placeable.snapshot):
            self._fill(key, sought, placeable)
            yield

    def _leave_claims(self, bindings: Collection[str], now: float) -> None:
        claims_of: dict[str, list[Claim]] = defaultdict(list)
        decisions: dict[str, str] = {}
        for key in self._claims.promises():
            if key.binding in bindings and not self._claims.is_provisional(key):
                sought = self._sought(key)
                if sought is not None and sought.planned is None and sought.promised != 0:
                    claims_of[key.binding] += self._claims.planned(key)
                    decisions[key.binding] = sought.decisions[-1] if sought.decisions else ""
        for binding, claims in claims_of.items():
            self._claims.hold(binding, claims, now, decisions[binding])

    def claimed_for(self, pod: IncomingPod, placeable: PlaceableNodes, now: float) -> Claimed:
        """Return the claims for a pod, and those of others that are not on their nodes yet.

        Only claims that have room: others do not keep anybody from anything.
        """
        self._claims.expire(now)
        self.keep(placeable)
        sighting = PodSighting(state=SightingState.UNBOUND, request=pod.amounts, origin=pod.origin)
        promise = self._echoes.key_for(sighting)
        own, foreign = self._claims.split(pod.namespace, pod.amounts, promise)
        gone = self._without_room(placeable.snapshot)
        fitting_others = (gone.get(id(claim), claim) for claim in foreign)
        foreign = [claim for claim in fitting_others if claim.replicas]
        assumed = self._assumed.beside(foreign, placeable.snapshot.table)
        return Claimed(own=own, others=foreign, promise=promise, assumed=assumed)

    def _without_room(self, snapshot: Snapshot) -> Mapping[int, Claim]:
        """Claims of no promise that pods have left less room for, by identity, as far as they fit.

        Those of promises are moved.
        """
        cached = self._shortened
        if cached is None or cached[0] is not snapshot or cached[1] != self._claims.version:
            claims = [*self._claims.all()]
            planned = [claim for claim in claims if claim.promise is not None]
            loose = [claim for claim in claims if claim.promise is None]
            fits = fitting(beside(snapshot, planned), loose, self._positions.of(snapshot))
            shortened = {
                id(claim): replace(claim, replicas=replicas)
                for claim, replicas in zip(loose, fits, strict=True)
                if replicas < claim.replicas
            }
            self._shortened = cached = snapshot, self._claims.version, shortened
        return cached[2]

    def loosen(self, key: ReservationKey | None) -> None:
        """A pod that stood for the promise changes: another may have to come in its place."""
        if key is not None and not self._claims.is_provisional(key):
            self._loosened.add(key)

    def keep(self, placeable: PlaceableNodes, *, again: bool = False) -> None:
        """Give every claim room; promises that are lost are tried ``again``."""
        loosened, self._loosened = self._loosened, set()
        for key in loosened.union(self.lost if again else ()):
            sought = self._sought(key)
            if sought is not None:
                self._fill(key, sought, placeable)
        state = self._kept
        if state is None or state[0] is not placeable.snapshot or state[1] != self._claims.version:
            self._move_displaced(placeable)
            self._kept = placeable.snapshot, self._claims.version

    def _move_displaced(self, placeable: PlaceableNodes) -> None:
        """Move claims without room elsewhere; of a node's claims the first stay."""
        held = {key: self._claims.planned(key) for key in self._claims.promises()}
        claims = [claim for entries in held.values() for claim in entries]
        rows = self._positions.of(placeable.snapshot)
        fits = fitting(placeable.snapshot, claims, rows, placeable.counted_n)
        if all(replicas == claim.replicas for claim, replicas in zip(claims, fits, strict=True)):
            return
        standing: dict[ReservationKey | None, list[Claim]] = defaultdict(list)
        for claim, replicas in zip(claims, fits, strict=True):
            if replicas:
                standing[claim.promise].append(replace(claim, replicas=replicas))
        displaced = {
            key: missing
            for key, former in held.items()
            if (missing := replicas_of(former) - replicas_of(standing[key]))
        }
        until = {key: self._claims.expires_at(key) for key in displaced}
        for key in displaced:
            self._claims.plan(key, standing[key], until[key])
        for key, missing in displaced.items():
            sought = self._sought(key)
            if until[key] == math.inf and sought is not None:
                self._fill(key, sought, placeable)
                continue
            # Nobody has said yet what it is worth.
            share = share_like(key, held[key][0], missing)
            (seating,) = self._seated(placeable, list(self._claims.all()), [share])
            self._claims.plan(key, (*standing[key], *seating.claims), until[key])

    def standing(self, placeable: PlaceableNodes) -> ClaimedSnapshot:
        """Return the snapshot beside the claims, and how many replicas have one."""
        cached, snapshot = self._standing, placeable.snapshot
        if cached is None or cached[0] is not snapshot or cached[1] != self._claims.version:
            cached = snapshot, self._claims.version, self._stand(snapshot)
            self._standing = cached
        return cached[2]

    def _stand(self, snapshot: Snapshot) -> ClaimedSnapshot:
        promises = self._claims.promises()
        if not promises:
            return ClaimedSnapshot(snapshot=snapshot, replicas={})
        rows = self._positions.of(snapshot)
        held = {key: self._claims.planned(key) for key in promises}
        replicas = {key: replicas_of(claims) for key, claims in held.items()}
        covered: Counter[str] = Counter()
        for key in promises:
            # Pods with a node kept for them do not wait for one.
            waiting = min(replicas[key], self._echoes.waiting(key))
            covered.update({name: amount * waiting for name, amount in key.shape})
            covered[PODS] += waiting
        arrays = arrays_beside(
            [claim for claims in held.values() for claim in claims], snapshot, rows
        )
        uncovered = {name: amount - covered[name] for name, amount in snapshot.waiting.items()}
        return ClaimedSnapshot(
            snapshot=replace(
                snapshot,
                requested=arrays.requested,
                waiting={name: amount for name, amount in uncovered.items() if amount > 0},
            ),
            replicas=replicas,
        )

    def _fill(self, key: ReservationKey, sought: SoughtShape, placeable: PlaceableNodes) -> None:
        """Hold as many claims as replicas are promised by plan and have no pod on a node."""
        held = self._claims.planned(key)
        if sought.planned is None:
            # What was just claimed may be promised by plan in the next update.
            if not self._claims.is_provisional(key):
                self._drop(key)
            return
        replica_count = max(0, sought.planned.replicas - self._echoes.held(key))
        missing = replica_count - replicas_of(held)
        was_lost = self.lost.pop(key, None) is not None
        if missing > 0:
            share = ShareOrder(
                component=key.component,
                replicas=missing,
                requirements=sought.planned.requirements,
            )
            (seating,) = self._seated(placeable, list(self._claims.all()), [share])
            held += seating.claims
            if seating.unplaced:
                # Once: what stays lost is tried every second.
                whole_share = replace(share, replicas=replica_count)
                if not was_lost and self._moved_for(key, whole_share, placeable):
                    return
                self.lost[key] = seating.why
        self._claims.plan(key, first_replicas(held, replica_count))

    def _moved_for(self, key: ReservationKey, share: ShareOrder, placeable: PlaceableNodes) -> bool:
        """Whether all it is to have found nodes, with claims of others that moved for it."""
        if key in self._assumed.promises():
            return False
        seatings = self._seated_anew(placeable, {key: share}, ())
        for promise, seating in seatings.items():
            self._claims.plan(promise, seating.claims, self._claims.expires_at(promise))
        return bool(seatings)

    def _seated(
        self, placeable: PlaceableNodes, claims: Sequence[Claim], shares: Sequence[ShareOrder]
    ) -> list[Seating]:
        """Nodes beside the claims, and beside what may be on its way."""
        assumed = self._assumed.beside(claims, placeable.snapshot.table)
        snapshot = beside_assumed(placeable.snapshot, assumed)
        return seat(snapshot, claims, shares, placeable.strategy, placeable.counted_n)

    def _seated_anew(
        self,
        placeable: PlaceableNodes,
        orders: Mapping[ReservationKey, ShareOrder],
        dropped: Collection[ReservationKey],
    ) -> Mapping[ReservationKey, Seating]:
        """Nodes for what found none, and for the claims of others that move for it.

        Claims stay whose pods are on their way to them; what is ``dropped`` keeps none.
        """
        on_their_way = self._assumed.promises()
        ended = {*dropped, *orders}
        held = {
            key: self._claims.planned(key)
            for key in self._claims.promises()
            if key not in ended and key not in on_their_way
        }
        gone = [self._claims.planned(key) for key in ended]
        staying = _without(self._claims.all(), [*held.values(), *gone])

        def seated(shares: Sequence[ShareOrder], strategy: Strategy) -> list[Seating]:
            return self._seated(replace(placeable, strategy=strategy), staying, shares)

        return seated_anew(held, orders, placeable.snapshot, placeable.strategy, seated)

    def _drop(self, key: ReservationKey) -> None:
        self._claims.plan(key, ())
        self.lost.pop(key, None)

    def _is_promised_by_plan(self, key: ReservationKey, decision: str) -> bool:
        """Whether the control plane has said already what this decision is worth."""
        sought = self._sought(key)
        return sought is not None and sought.planned is not None and decision in sought.decisions

    def _sought(self, key: ReservationKey) -> SoughtShape | None:
        interest = self._echoes.interest(key.binding)
        for sought in interest.shapes if interest is not None else ():
            if (sought.component, sought.shape) == (key.component, key.shape):
                return sought
        return None

    def _largest_first(
        self, bindings: Iterable[str], snapshot: Snapshot
    ) -> list[tuple[ReservationKey, SoughtShape]]:
        """Return the orders of these promises, the large ones first: they are harder to place."""
        orders = {
            ReservationKey(binding, sought.component, sought.shape): sought
            for binding in sorted(bindings)
            if (interest := self._echoes.interest(binding)) is not None
            for sought in interest.shapes
        }
        return [(key, orders[key]) for key in largest_first(orders, snapshot)]

    def _of_binding(self, binding: str) -> Collection[ReservationKey]:
        return [key for key in self._claims.promises() if key.binding == binding]

    def _bound(self, key: ReservationKey, max_replicas: int) -> Counter[str]:
        """How many of a promise's pods are on which nodes, or have finished there."""
        nodes = sorted(
            pod.node
            for pod in self._echoes.pods_of(key)
            if pod.state in (PodState.BOUND, PodState.SUCCEEDED)
        )
        return Counter(nodes[:max_replicas])


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


def _key(binding: str, share: ShareOrder) -> ReservationKey:
    return ReservationKey(binding, share.component, request_shape(share.requirements.request))


def _without(claims: Iterable[Claim], dropped: Iterable[tuple[Claim, ...]]) -> list[Claim]:
    gone = {id(claim) for held in dropped for claim in held}
    return [claim for claim in claims if id(claim) not in gone]


def _merged(
    component: str, bound: Mapping[str, int], seated: Iterable[NodeShare]
) -> Iterator[NodeShare]:
    """One share for each node, in their order: replicas that are there, and those to come."""
    merged = {
        node: NodeShare(node=node, component=component, replicas=replicas, score=0.0, scale=0.0)
        for node, replicas in bound.items()
    }
    for share in seated:
        bound_there = bound.get(share.node, 0)
        merged[share.node] = replace(share, replicas=share.replicas + bound_there)
    for node in sorted(merged):
        yield merged[node]
