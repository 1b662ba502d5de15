"""A cluster whose reports were written beforehand, for trying out what is made of them.

Must not know nodes: nothing can be placed, nor answered exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from estimator.estimation.capacity import Capacity
from estimator.estimation.exact import ExactEstimates
from estimator.measures import AgentMeasures
from estimator.nodes import WorkloadRef
from estimator.sight import CURRENT, Visibility
from federation.model.echoes import InterestUpdate
from federation.model.errors import Unavailable
from federation.model.grades import ResourceModel
from federation.model.node_plans import LostPlan, NodePlan, PlaceOrder
from federation.model.shapes import Echo
from federation.model.workload import NodeClaim

_NO_NODES: Final = "there are no nodes: this agent sends scripted reports"


class ScriptedCluster:
    """Reports written beforehand: each one asked for is the next, and the last one stays."""

    def __init__(self, script: Sequence[Capacity]) -> None:
        self.measures = AgentMeasures()
        self.follow(script)

    def follow(self, script: Sequence[Capacity]) -> None:
        """Go on with another script, from its start."""
        self._script = list(script)

    def view(self) -> Visibility:
        return CURRENT

    def counting(self, model: ResourceModel) -> Callable[[], Capacity]:
        current = self._script[0] if len(self._script) == 1 else self._script.pop(0)
        return lambda: current if model.grades else replace(current, grade_counts={})

    def totals(self) -> None:
        """To look would be to step on."""

    def look_for(self, update: InterestUpdate, now: float) -> Iterator[None]:  # noqa: ARG002 - there are no pods
        return iter(())

    def echoes(self) -> tuple[int, tuple[Echo, ...]]:
        return 0, ()

    def has_news(self) -> bool:
        return False

    def lost_plans(self) -> Sequence[LostPlan]:
        return ()

    def place(self, order: PlaceOrder, now: float) -> NodePlan:  # noqa: ARG002 - there are no nodes
        return NodePlan(
            unplaced=sum(share.replicas for share in order.shares),
            message=_NO_NODES,
        )

    def exact(self) -> ExactEstimates:
        raise Unavailable(_NO_NODES)

    def unclaimed(self, now: float) -> ExactEstimates:  # noqa: ARG002 - there are no nodes
        raise Unavailable(_NO_NODES)

    def asked(self, claims: Iterable[NodeClaim | None]) -> None:
        """Scripted pools are as they are."""

    def unschedulable(self, owner: WorkloadRef, *, since: float) -> int:  # noqa: ARG002 - there are no pods
        raise Unavailable(_NO_NODES)
