"""The cluster of an agent as it is watched: its nodes and pods, claims, and what was placed there.

Must not know when an agent reports.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from estimator.binpack.strategy import Strategy
from estimator.cluster.cache import ClusterCache, ResourceQuotas
from estimator.cluster.echoes import EchoCount
from estimator.cluster.holds import AssumedPods, Claims
from estimator.cluster.label_use import LabelUse
from estimator.estimation.capacity import Capacity, NodeSet, capacity_of, counted_nodes
from estimator.estimation.exact import ExactEstimates
from estimator.estimation.pooling import Pooling
from estimator.measures import AgentMeasures
from estimator.nodes import Pod, PodState, WorkloadRef
from estimator.placement.incoming import IncomingPod
from estimator.placement.judgement import Claimed
from estimator.placement.place import DEFAULT_STRATEGY, beside, place_shares
from estimator.placement.plans import (
    NOT_FOLLOWED,
    ClaimedSnapshot,
    PlaceableNodes,
    Plans,
    echoes_with,
)
from estimator.sight import Sight, Visibility
from estimator.snapshot import Snapshot
from federation.model.cluster import NodeSummary, ReportedPools, ResourceSummary
from federation.model.echoes import InterestUpdate
from federation.model.grades import ResourceModel
from federation.model.node_plans import LostPlan, NodePlan, PlaceOrder
from federation.model.pools.values import DEFAULT_BUDGET
from federation.model.reported_pools import reported_pools
from federation.model.shapes import Echo, ReservationKey
from federation.model.workload import NodeClaim

# Totals are of no grade.
UNGRADED: Final = ResourceModel()


class WatchedCluster:
    """A cluster of nodes and pods. Whoever feeds the cache tells ``sight`` what is not seen.

    ``follows_claims``: an extender or a binder here puts pods where room is claimed for them.
    They wait for ``told``, which is set once the promises here were told as a whole.
    """

    def __init__(self, node_set: NodeSet, sight: Sight | None = None) -> None:
        self.sight = sight or Sight(time.monotonic)
        self.measures = AgentMeasures()
        self.claims = Claims()
        self.follows_claims = False
        self.told = asyncio.Event()
        self._node_set = node_set
        self.cache = ClusterCache(
            on_bound=self._settle,
            on_change=self._follow,
            is_promised=lambda pod: self._echoes.key_of(pod) is not None,
        )
        self.assumed = AssumedPods(self.cache.assumptions)
        self._echoes = EchoCount(self.cache.pod)
        self._plans = Plans(self.claims, self._echoes, self.assumed)
        self._told_lost: frozenset[ReservationKey] = frozenset()
        self.quotas = ResourceQuotas()
        self._totalled: tuple[Snapshot, Capacity] | None = None
        self._pooling = Pooling(DEFAULT_BUDGET)
        self._label_use = LabelUse()
        self._pooled: tuple[Snapshot, tuple[str, ...], ReportedPools] | None = None
        self._strategy: Strategy = DEFAULT_STRATEGY

    def pool_by(self, pooling: Pooling) -> None:
        """Make pools and cells this way from now on."""
        self._pooling, self._pooled = pooling, None

    def place_by(self, strategy: Strategy) -> None:
        """Choose nodes by this strategy's scores from now on."""
        self._strategy = strategy

    def view(self) -> Visibility:
        return self.sight.view()

    def capacity(self, model: ResourceModel) -> Capacity:
        """Return the capacity to report now, counted at once."""
        return self.counting(model)()

    def counting(self, model: ResourceModel) -> Callable[[], Capacity]:
        snapshot, label_keys = self._standing().snapshot, self._label_use.choose()

        def count() -> Capacity:
            capacity = capacity_of(snapshot, model, self._node_set)
            return replace(capacity, pools=self._pools(snapshot, label_keys))

        return count

    def _pools(self, snapshot: Snapshot, label_keys: tuple[str, ...]) -> ReportedPools:
        pooled = self._pooled
        if pooled is None or pooled[0] is not snapshot or pooled[1] != label_keys:
            counted_n = counted_nodes(snapshot, self._node_set)
            pools = self._pooling.pools(snapshot, counted_n, label_keys)
            self._pooled = pooled = snapshot, label_keys, reported_pools(pools)
        return pooled[2]

    def totals(self) -> tuple[ResourceSummary, NodeSummary] | None:
        snapshot = self._standing().snapshot
        if self._totalled is None or self._totalled[0] is not snapshot:
            self._totalled = snapshot, capacity_of(snapshot, UNGRADED, self._node_set)
        capacity = self._totalled[1]
        return capacity.summary, capacity.nodes

    def look_for(self, update: InterestUpdate, now: float) -> Iterator[None]:
        yield from self._echoes.tell(update)
        self.cache.promises_changed()
        self._release_ended(update)
        if self.follows_claims:
            yield from self._plans.look_for(update, self._placeable(), now)
        if update.is_complete:
            self.told.set()

    def echoes(self) -> tuple[int, tuple[Echo, ...]]:
        echoes = echoes_with(self._echoes.take(), self._standing().replicas)
        return self._echoes.version, echoes

    def has_news(self) -> bool:
        return self._echoes.has_grown or not self._plans.lost.keys() <= self._told_lost

    def lost_plans(self) -> Sequence[LostPlan]:
        self._told_lost = frozenset(self._plans.lost)
        return self._plans.lost_plans()

    def place(self, order: PlaceOrder, now: float) -> NodePlan:
        self.view().check()
        snapshot = self.cache.snapshot()
        self.asked(share.requirements.node_claim for share in order.shares)
        if order.planned and self.follows_claims:
            self._plans.keep(self._placeable())
            return self._plans.order(self._placeable(), order, now)
        self._plans.give_up(order.binding_key)
        plan = place_shares(snapshot, self.claims, order, now, self._strategy)
        if order.planned and not plan.message:
            return replace(plan, message=NOT_FOLLOWED)
        return plan

    def claimed_for(self, pod: IncomingPod, now: float) -> Claimed:
        """Return the claims for a pod, and those of others that are not on their nodes yet."""
        self.expire_assumptions(now)
        return self._plans.claimed_for(pod, self._placeable(), now)

    def expire_assumptions(self, now: float) -> None:
        """Count no longer the pods that were not seen on their nodes in time."""
        assumptions = self.cache.assumptions
        if self.view().is_current:
            assumptions.expire(now)
        else:
            assumptions.hold(now)

    def exact(self) -> ExactEstimates:
        self.view().check()
        return ExactEstimates(snapshot=self._standing().snapshot, quotas=self.quotas.all())

    def unclaimed(self, now: float) -> ExactEstimates:
        self.view().check()
        self.claims.expire(now)
        snapshot = beside(self.cache.snapshot(), tuple(self.claims.all()))
        return ExactEstimates(snapshot=snapshot, quotas=self.quotas.all())

    def asked(self, claims: Iterable[NodeClaim | None]) -> None:
        self._label_use.asked(claims)

    def unschedulable(self, owner: WorkloadRef, *, since: float) -> int:
        self.view().check()
        return self.cache.unschedulable_replicas(owner, since=since)

    def _standing(self) -> ClaimedSnapshot:
        """The cluster now, with claims taken for pods."""
        placeable = self._placeable()
        self._plans.keep(placeable, again=True)
        return self._plans.standing(placeable)

    def _placeable(self) -> PlaceableNodes:
        snapshot = self.cache.snapshot()
        counted_n = counted_nodes(snapshot, self._node_set)
        return PlaceableNodes(snapshot=snapshot, counted_n=counted_n, strategy=self._strategy)

    def _release_ended(self, update: InterestUpdate) -> None:
        """Drop the claims of bindings that are promised nothing here any more."""
        for binding in update.removed:
            self.claims.release(binding)
        for interest in update.interests:
            if interest.has_ended(self.claims.decision_of(interest.binding)):
                self.claims.release(interest.binding)

    def _settle(self, pod: Pod) -> None:
        self.claims.settle(pod, self._echoes.key_of(pod))

    def _follow(self, former: Pod | None, current: Pod | None) -> None:
        if former is not None and former.state is PodState.BOUND:
            self._plans.loosen(self._echoes.key_of(former))
        self._echoes.follow(former, current)
        self._label_use.follow(former, current)
