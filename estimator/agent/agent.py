"""The agent's answers: reports in sequence, heartbeats, and places for replicas.

Must not know the wire's transport or Kubernetes; one loop owns it. Times are Unix seconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

from estimator.estimation.capacity import Capacity, changed_much
from estimator.estimation.exact import ExactEstimates
from estimator.measures import AgentMeasures
from estimator.nodes import WorkloadRef
from estimator.sight import CURRENT, Visibility
from federation.codec.echoes import fitting
from federation.codec.reports import content_hash
from federation.model.cluster import CapacityReport, NodeSummary, ResourceSummary
from federation.model.echoes import InterestUpdate
from federation.model.errors import Unavailable
from federation.model.grades import ResourceModel
from federation.model.node_plans import LostPlan, NodePlan, PlaceOrder
from federation.model.shapes import Echo
from federation.model.workload import NodeClaim

# So many steps of counting anew do not hold up the loop.
STEPS_AT_ONCE: Final = 100


class MemberCluster(Protocol):
    """The cluster an agent speaks for, read from the API server, a dump or a script."""

    @property
    def measures(self) -> AgentMeasures:
        """The counts of the work for it."""
        ...

    def view(self) -> Visibility:
        """How good the picture is now."""
        ...

    def counting(self, model: ResourceModel) -> Callable[[], Capacity] | None:
        """Return a count, in any thread, of the capacity to report of this instant.

        Graded by ``model`` unless that has no grades. None: the cluster has said nothing yet.
        """
        ...

    def totals(self) -> tuple[ResourceSummary, NodeSummary] | None:
        """The ungraded part of the capacity, cheap enough for every second; None: not known."""
        ...

    def look_for(self, update: InterestUpdate, now: float) -> Iterator[None]:
        """Count the pods of these promises from now on; in steps, between which others may work."""
        ...

    def echoes(self) -> tuple[int, tuple[Echo, ...]]:
        """Return the promised pods that there are now, and the version of the interests it answers.

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
        """Return exact estimates of now.

        Raises Unavailable without nodes to look at, and when the picture is not current; the
        others below likewise.
        """
        ...

    def unclaimed(self, now: float) -> ExactEstimates:
        """Return estimates beside all claims, for callers who know of no promise."""
        ...

    def asked(self, claims: Iterable[NodeClaim | None]) -> None:
        """Requests with these node claims came in: pools are told apart by what is asked for."""
        ...

    def unschedulable(self, owner: WorkloadRef, *, since: float) -> int:
        """Pods of the owner that no node was found for since then."""
        ...


class NodelessCluster:
    """A cluster whose nodes the agent does not see: nothing is placed, or estimated exactly.

    Subclasses say what to report.
    """

    def __init__(self, why: str) -> None:
        """``why`` is the answer to requests that need nodes."""
        self.measures = AgentMeasures()
        self._why = why

    def view(self) -> Visibility:
        return CURRENT

    def totals(self) -> tuple[ResourceSummary, NodeSummary] | None:
        return None

    def look_for(self, update: InterestUpdate, now: float) -> Iterator[None]:  # noqa: ARG002 - there are no pods
        return iter(())

    def echoes(self) -> tuple[int, tuple[Echo, ...]]:
        return 0, ()

    def has_news(self) -> bool:
        return False

    def lost_plans(self) -> Sequence[LostPlan]:
        return ()

    def place(self, order: PlaceOrder, now: float) -> NodePlan:  # noqa: ARG002 - there are no nodes
        unplaced = sum(share.replicas for share in order.shares)
        return NodePlan(unplaced=unplaced, message=self._why)

    def exact(self) -> ExactEstimates:
        raise Unavailable(self._why)

    def unclaimed(self, now: float) -> ExactEstimates:  # noqa: ARG002 - there are no nodes
        raise Unavailable(self._why)

    def asked(self, claims: Iterable[NodeClaim | None]) -> None:
        """No nodes are told apart."""

    def unschedulable(self, owner: WorkloadRef, *, since: float) -> int:  # noqa: ARG002 - there are no pods
        raise Unavailable(self._why)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rhythm:
    """The control plane's orders for this agent: the model to grade by, and how often to speak."""

    model: ResourceModel
    model_hash: str
    heartbeat_seconds: float
    report_seconds: float


class Agent:
    """One agent session: its epoch, its growing sequence, and what was last sent."""

    def __init__(
        self, member: MemberCluster, *, epoch: int, clock: Callable[[], float], source: str = ""
    ) -> None:
        """``source`` is whose totals the reports have, where nobody saw the nodes."""
        # Whether the cluster has said nothing that could be reported.
        self.is_unreported = False
        self._source = source
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
        """The counts of its work, in all its sessions."""
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
        former, self._rhythm = self._rhythm, rhythm
        return former is None or former.model_hash != rhythm.model_hash

    def acknowledge(self, sequence: int) -> None:
        """The report of this sequence is stored."""
        self.acknowledged_sequence = max(self.acknowledged_sequence, sequence)

    async def report(self) -> CapacityReport | None:
        """The whole picture, to be sent whatever was sent before; None where there is none."""
        picture = await self._picture()
        return None if picture is None else self._send(picture)

    async def changed_report(self) -> CapacityReport | None:
        """The picture, unless it is the one that was sent last."""
        picture = await self._picture()
        if picture is None:
            return None
        if self._sent is not None and picture.content_hash == self._sent.content_hash:
            return None
        return self._send(picture)

    @property
    def is_told(self) -> bool:
        """Whether the control plane has said, as a whole, what to look for."""
        return self._is_told

    async def look_for(self, update: InterestUpdate) -> None:
        """Count the pods of these promises from now on."""
        for step, _ in enumerate(self._member.look_for(update, self._clock()), start=1):
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
        """Return exact estimates of now. Raises Unavailable when the picture may be out of date."""
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

    async def _picture(self) -> CapacityReport | None:
        """The picture of this instant; counted in a thread, as a large cluster takes a while."""
        rhythm = self.rhythm
        snapshot_time = self._clock() - self.view().age_seconds
        counting = self._member.counting(rhythm.model)
        self.is_unreported = counting is None
        if counting is None:
            return None
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
                source=self._source,
            )
            return replace(counted, content_hash=content_hash(counted))

        return await asyncio.to_thread(picture)
