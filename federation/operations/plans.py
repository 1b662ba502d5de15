"""Operations on plans.

Must not decide anything: the use case does.
"""

from __future__ import annotations

from google.protobuf.message import Message

from federation.codec.plans import (
    plan_clusters,
    plan_kind,
    plan_limits,
    plan_to_message,
)
from federation.codec.violations import Violations
from federation.operations.table import OperationCall, operation
from federation.rpc.pages import fitting, number_of, page_size_of, page_token
from federation.services.plans.drafting import PlanWish
from federation.services.threads import ENCODING
from federation.v1 import rebalance_pb2 as messages


def plan_id(request: Message, _: Violations) -> int:
    """Read the number of the plan that a request is about."""
    number: int = request.id  # type: ignore[attr-defined] # each request about one plan has it
    return number


def _stop_of(request: messages.StopPlanRequest, violations: Violations) -> tuple[int, str]:
    return plan_id(request, violations), request.reason


def _wish(request: messages.CreatePlanRequest, violations: Violations) -> PlanWish:
    kind = plan_kind(request.kind)
    return PlanWish(
        kind=kind,
        clusters=plan_clusters(request, kind, violations),
        cluster_selector=dict(request.cluster_selector),
        limits=plan_limits(request, kind, violations),
    )


@operation("Rebalance/CreatePlan", read=_wish)
async def create_plan(call: OperationCall, wish: PlanWish) -> messages.CreatePlanResponse:
    plan, steps = await call.services.plans.create(wish, str(call.caller))
    message = await ENCODING.run(plan_to_message, plan, steps)
    return messages.CreatePlanResponse(plan=message)


@operation("Rebalance/GetPlan", read=plan_id)
async def get_plan(call: OperationCall, number: int) -> messages.GetPlanResponse:
    plan, steps = await call.services.plans.get(number)
    message = await ENCODING.run(plan_to_message, plan, steps)
    return messages.GetPlanResponse(plan=message)


@operation("Rebalance/ListPlans")
async def list_plans(
    call: OperationCall, request: messages.ListPlansRequest
) -> messages.ListPlansResponse:
    start, size = number_of(request.page_token), page_size_of(request.page_size)
    plans = await call.services.plans.page(start, size)
    listed = fitting(map(plan_to_message, plans))
    is_last = len(listed) == len(plans) < size
    token = "" if is_last or not listed else page_token((str(listed[-1].id),))
    return messages.ListPlansResponse(plans=listed, next_page_token=token)


@operation("Rebalance/ApprovePlan", read=plan_id)
async def approve_plan(call: OperationCall, number: int) -> messages.ApprovePlanResponse:
    plan = await call.services.plans.approve(number, str(call.caller))
    return messages.ApprovePlanResponse(plan=plan_to_message(plan))


@operation("Rebalance/StopPlan", read=_stop_of)
async def stop_plan(call: OperationCall, stop: tuple[int, str]) -> messages.StopPlanResponse:
    number, reason = stop
    plan = await call.services.plans.stop(number, str(call.caller), reason)
    return messages.StopPlanResponse(plan=plan_to_message(plan))
