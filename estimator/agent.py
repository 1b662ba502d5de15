"""What the agent knows and answers: reports in sequence, heartbeats, and places for replicas.

Must not know the wire's transport or Kubernetes; one loop owns it. Times are Unix seconds.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

from estimator.binpack.strategy import Strategy
from estimator.cluster.assumed import AssumedPods
from estimator.cluster.cache import ClusterCache, ResourceQuotas
from estimator.cluster.claims import Claims
from estimator.cluster.echoes import EchoCount
from estimator.cluster.label_use import LabelUse
from estimator.estimation.capacity import (
    Capacity,
    NodeSet,
    capacity_of,
    changed_much,
    counted_nodes,
)
from estimator.estimation.exact import ExactEstimates
from estimator.estimation.pooling import Pooling
from estimator.measures import AgentMeasures
from estimator.nodes import Pod, PodState, WorkloadRef
from estimator.placing.incoming import IncomingPod
from estimator.placing.judgement import Claimed
from estimator.placing.place import MOST_ALLOCATED, beside, place_shares
from estimator.placing.plans import (
    NOT_FOLLOWED,
    ClaimedSnapshot,
    PlaceableNodes,
    Plans,
    echoes_with,
)
from estimator.sight import Sight, Visibility
from estimator.snapshot import Snapshot
from federation.codec.echoes import fitting
from federation.codec.reports import content_hash
from federation.model.cluster import (
    CapacityReport,
    NodeSummary,
    ReportedPools,
    ResourceSummary,
)
from federation.model.echoes import InterestUpdate
from federation.model.grades import ResourceModel
from federation.model.node_plans import LostPlan, NodePlan, PlaceOrder
from federation.model.pools.values import DEFAULT_BUDGET
from federation.model.reported_pools import reported_pools
from federation.model.shapes import Echo, ReservationKey
from federation.model.workload import NodeClaim

UNGRADED: Final = ResourceModel()
# So many steps of counting anew do not hold up the loop.
STEPS_AT_ONCE: Final = 100


class MemberCluster(Protocol):
    """The cluster an agent speaks for, read from the API server, a dump or a script."""

    @property
    def measures(self) -> AgentMeasures:
        """What is counted of the work for it."""
        ...

    def view(self) -> Visibility:
        """How good the picture is now."""
        ...

    def counting(self, model: ResourceModel) -> Callable[[], Capacity]:
        """What to report, of this instant, as a count that may be made in any thread.

        Graded by ``model`` unless that has no grades.
        """
        ...

    def totals(self) -> tuple[ResourceSummary, NodeSummary] | None:
        """The ungraded part of the capacity, cheap enough for every second; None: not known."""
        ...

    def look_for(self, update: InterestUpdate) -> Iterator[None]:
        """Count the pods of these promises from now on; in steps, between which others may work."""
        ...

    def echoes(self) -> tuple[int, tuple[Echo, ...]]:
        """What there is of promises now, and which version of what to look for it answers.

        0: it was never told. Together with ``counting``, with nothing between, one picture.
        """
        ...

    def has_news(self) -> bool:
        """Whether promises have more pods on nodes than the newest echoes say, or lost a plan."""
        ...

    def lost_plans(self) -> Sequence[LostPlan]:
        """Promises by plan that cannot be kept any more."""
        ...

    def place(self, order: PlaceOrder, now: float) -> NodePlan:
        """Nodes for the order. Raises Unavailable when the picture is not current."""
        ...

    def exact(self) -> ExactEstimates:
        """What fits now.

        Raises Unavailable without nodes to look at, and when the picture is not current; the
        others below likewise.
        """
        ...

    def unclaimed(self, now: float) -> ExactEstimates:
        """What fits beside all claims, for callers who know of no promise."""
        ...

    def asked(self, claims: Iterable[NodeClaim | None]) -> None:
        """Requests with these node claims came in: pools are told apart by what is asked for."""
        ...

    def unschedulable(self, owner: WorkloadRef, *, since: float) -> int:
        """Pods of the owner that no node was found for since then."""
        ...


class WatchedCluster:
    """A cluster of nodes and pods. Whoever feeds the cache tells ``sight`` what is not seen.

    ``follows_claims``: an extender or a binder here puts pods where room is claimed for them;
    they wait for ``told``, which is set once what is promised here was said as a whole.
    """

    def __init__(self, node_set: NodeSet, sight: Sight | None = None) -> None:
        self.sight = sight or Sight(time.monotonic)
        self.measures = AgentMeasures()
        self.claims = Claims()
        self.assumed = AssumedPods()
        self.follows_claims = False
        self.told = asyncio.Event()
        self._node_set = node_set
        self.cache = ClusterCache(on_bound=self._settle, on_change=self._follow)
        self._echoes = EchoCount(self.cache.pod)
        self._plans = Plans(self.claims, self._echoes, self.assumed)
        self._told_lost: frozenset[ReservationKey] = frozenset()
        self.quotas = ResourceQuotas()
        self._totalled: tuple[Snapshot, Capacity] | None = None
        self._pooling = Pooling(DEFAULT_BUDGET)
        self._label_use = LabelUse()
        self._pooled: tuple[Snapshot, tuple[str, ...], ReportedPools] | None = None
        self._strategy: Strategy = MOST_ALLOCATED

    def pool_by(self, pooling: Pooling) -> None:
        """Make pools and cells this way from now on."""
        self._pooling, self._pooled = pooling, None

    def place_by(self, strategy: Strategy) -> None:
        """Choose nodes by this strategy's scores from now on."""
        self._strategy = strategy

    def view(self) -> Visibility:
        return self.sight.view()

    def capacity(self, model: ResourceModel) -> Capacity:
        """What to report now, counted at once."""
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

    def look_for(self, update: InterestUpdate) -> Iterator[None]:
        yield from self._echoes.tell(update)
        if self.follows_claims:
            yield from self._plans.look_for(update, self._placeable())
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
        """What is claimed for a pod, and what others have that are not on their nodes yet."""
        return self._plans.claimed_for(pod, self._placeable(), now)

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

    def _settle(self, pod: Pod) -> None:
        self.claims.settle(pod, self._echoes.key_of(pod))

    def _follow(self, before: Pod | None, after: Pod | None) -> None:
        if before is not None and before.state is PodState.BOUND:
            self._plans.loosen(self._echoes.key_of(before))
        self._echoes.follow(before, after)
        self._label_use.follow(before, after)
        if after is not None:
            self.assumed.see(after)
        elif before is not None:
            self.assumed.drop(before.uid)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rhythm:
    """What the control plane told this agent: the model to grade by, and how often to speak."""

    model: ResourceModel
    model_hash: str
    heartbeat_seconds: float
    report_seconds: float


class Agent:
    """One agent session: its epoch, its growing sequence, and what was last sent."""

    def __init__(self, member: MemberCluster, *, epoch: int, clock: Callable[[], float]) -> None:
        self.epoch = epoch
        self.acknowledged_sequence = 0
        self._member = member
        self._clock = clock
        self._rhythm: Rhythm | None = None
        self._sequence = 0
        self._sent: CapacityReport | None = None
        self._is_told = False

    @property
    def measures(self) -> AgentMeasures:
        """What is counted of its work, in all its sessions."""
        return self._member.measures

    @property
    def rhythm(self) -> Rhythm:
        if self._rhythm is None:
            raise RuntimeError("the control plane has not said yet how often to speak")
        return self._rhythm

    def now(self) -> float:
        """The agent's clock."""
        return self._clock()

    def welcome(self, rhythm: Rhythm) -> bool:
        """Keep this rhythm from now on; whether another model comes with it."""
        before, self._rhythm = self._rhythm, rhythm
        return before is None or before.model_hash != rhythm.model_hash

    def acknowledge(self, sequence: int) -> None:
        """The report of this sequence is stored."""
        self.acknowledged_sequence = max(self.acknowledged_sequence, sequence)

    async def report(self) -> CapacityReport:
        """The whole picture, to be sent whatever was sent before."""
        return self._send(await self._picture())

    async def changed_report(self) -> CapacityReport | None:
        """The picture, unless it is the one that was sent last."""
        picture = await self._picture()
        if self._sent is not None and picture.content_hash == self._sent.content_hash:
            return None
        return self._send(picture)

    @property
    def is_told(self) -> bool:
        """Whether the control plane has said, as a whole, what to look for."""
        return self._is_told

    async def look_for(self, update: InterestUpdate) -> None:
        """Count the pods of these promises from now on."""
        for step, _ in enumerate(self._member.look_for(update), start=1):
            if step % STEPS_AT_ONCE == 0:
                await asyncio.sleep(0)
        self._is_told = update.is_complete

    def has_changed_much(self) -> bool:
        """Whether the picture is so unlike the newest report that another should not wait.

        Pods on nodes free what was promised to them: until that is reported it counts twice.
        """
        if self._member.has_news():
            return True
        sent, totals = self._sent, self._member.totals()
        if sent is None or totals is None:
            return False
        return changed_much((sent.summary, sent.nodes), totals)

    def sent(self) -> CapacityReport | None:
        """The newest report handed out, as of when it last was the picture for sure."""
        if self._sent is None:
            return None
        return replace(self._sent, snapshot_time=self._clock() - self.view().age_seconds)

    def view(self) -> Visibility:
        """How good the picture is now."""
        return self._member.view()

    def exact(self) -> ExactEstimates:
        """What fits now. Raises Unavailable when what is known may be out of date."""
        return self._member.exact()

    def lost_plans(self) -> Sequence[LostPlan]:
        """Promises by plan that cannot be kept any more."""
        return self._member.lost_plans()

    def asked(self, claims: Iterable[NodeClaim | None]) -> None:
        """Requests with these node claims came in."""
        self._member.asked(claims)

    def place(self, order: PlaceOrder) -> NodePlan:
        """Nodes for the order. Raises Unavailable when what is known may be out of date."""
        return self._member.place(order, self._clock())

    def _send(self, picture: CapacityReport) -> CapacityReport:
        self._sequence += 1
        self._sent = replace(picture, sequence=self._sequence)
        return self._sent

    async def _picture(self) -> CapacityReport:
        """The picture of this instant; counted in a thread, as a large cluster takes a while."""
        rhythm = self.rhythm
        snapshot_time = self._clock() - self.view().age_seconds
        counting = self._member.counting(rhythm.model)
        interest_version, echoes = self._member.echoes()

        def picture() -> CapacityReport:
            capacity = counting()
            counted = CapacityReport(
                epoch=self.epoch,
                sequence=0,
                snapshot_time=snapshot_time,
                summary=capacity.summary,
                nodes=capacity.nodes,
                grade_counts=capacity.grade_counts,
                model_hash=rhythm.model_hash if capacity.grade_counts else "",
                pools=capacity.pools,
                interest_version=interest_version,
                echoes=fitting(echoes),
            )
            return replace(counted, content_hash=content_hash(counted))

        return await asyncio.to_thread(picture)
