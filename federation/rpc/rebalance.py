"""Plans over the wire.

Must not decide anything: reads the message, calls the use case, writes the answer.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator

from google.protobuf.message import Message

from federation.codec import texts
from federation.codec.plans import (
    plan_clusters,
    plan_kind,
    plan_limits,
    plan_selector,
    plan_to_message,
)
from federation.codec.ranges import MAX_INT64, whole
from federation.codec.strict import refuse_nul
from federation.codec.violations import Violations
from federation.rpc.calls import Context, caller
from federation.rpc.pages import fitting, number_of, page_size_of, page_token
from federation.services.plans.control import PlanControl
from federation.services.plans.drafting import PlanWish
from federation.services.threads import ENCODING
from federation.v1 import rebalance_pb2 as messages
from federation.v1.rebalance_pb2_grpc import RebalanceServicer as Servicer


class RebalanceServicer(Servicer):
    """Implements federation.v1.Rebalance."""

    def __init__(self, control: PlanControl) -> None:
        self._control = control

    async def CreatePlan(
        self, request: messages.CreatePlanRequest, context: Context
    ) -> messages.CreatePlanResponse:
        plan, steps = await self._control.create(_wish(request), str(caller()))
        message = await ENCODING.run(plan_to_message, plan, steps)
        return messages.CreatePlanResponse(plan=message)

    async def GetPlan(
        self, request: messages.GetPlanRequest, context: Context
    ) -> messages.GetPlanResponse:
        plan, steps = await self._control.get(_id(request))
        message = await ENCODING.run(plan_to_message, plan, steps)
        return messages.GetPlanResponse(plan=message)

    async def ListPlans(
        self, request: messages.ListPlansRequest, context: Context
    ) -> messages.ListPlansResponse:
        before = number_of(request.page_token)
        size = page_size_of(request.page_size)
        plans = await self._control.page(before, size)
        listed = fitting(map(plan_to_message, plans))
        is_last = len(listed) == len(plans) < size
        token = "" if is_last or not listed else page_token((str(listed[-1].id),))
        return messages.ListPlansResponse(plans=listed, next_page_token=token)

    async def ApprovePlan(
        self, request: messages.ApprovePlanRequest, context: Context
    ) -> messages.ApprovePlanResponse:
        plan = await self._control.approve(_id(request), str(caller()))
        return messages.ApprovePlanResponse(plan=plan_to_message(plan))

    async def StopPlan(
        self, request: messages.StopPlanRequest, context: Context
    ) -> messages.StopPlanResponse:
        found = Violations()
        refuse_nul(request, "", found)
        texts.word(request.reason, "reason", found)
        found.check()
        plan = await self._control.stop(_id(request), str(caller()), request.reason)
        return messages.StopPlanResponse(plan=plan_to_message(plan))

    async def WatchPlan(
        self, request: messages.WatchPlanRequest, context: Context
    ) -> AsyncGenerator[messages.WatchPlanResponse]:
        async for news in self._control.watch(_id(request)):
            message = await ENCODING.run(plan_to_message, news.plan, news.steps)
            yield messages.WatchPlanResponse(plan=message)


def _id(request: Message) -> int:
    """Raises InvalidRequest."""
    found = Violations()
    plan_id: int = request.id  # type: ignore[attr-defined] # each request about one plan has it
    whole(plan_id, "id", found, least=1, most=MAX_INT64)
    found.check()
    return plan_id


def _wish(request: messages.CreatePlanRequest) -> PlanWish:
    """Raises InvalidRequest."""
    found = Violations()
    refuse_nul(request, "", found)
    kind = plan_kind(request.kind, "kind", found)
    selector = plan_selector(request.cluster_selector, "clusterSelector", found)
    wish = PlanWish(
        kind=kind,
        clusters=plan_clusters(request.clusters, selector, kind, "clusters", found),
        cluster_selector=selector,
        limits=plan_limits(request, kind, found),
    )
    found.check()
    return wish
