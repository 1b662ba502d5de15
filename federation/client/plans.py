"""The calls about plans, as ``Client.plans``.

Must not repeat what changes something: callers know whether that is harmless.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import aclosing
from functools import partial
from typing import Any, TypeAlias

import grpc.aio

from federation.client.paging import listed
from federation.client.watching import responses
from federation.v1 import rebalance_pb2, rebalance_pb2_grpc

# Makes one call of a method with a request.
Answer: TypeAlias = Callable[[Any, object], Awaitable[Any]]


class PlanCalls:
    """Plans of moves: made, shown, approved, stopped, watched."""

    def __init__(
        self, channel: grpc.aio.Channel, answer: Answer, metadata: Callable[[], Any]
    ) -> None:
        self._stub = rebalance_pb2_grpc.RebalanceStub(channel)
        self._answer = answer
        self._metadata = metadata

    async def create(self, request: rebalance_pb2.CreatePlanRequest) -> rebalance_pb2.Plan:
        """A draft with all its steps; nothing moves."""
        answer: rebalance_pb2.CreatePlanResponse
        answer = await self._answer(self._stub.CreatePlan, request)
        return answer.plan

    async def get(self, plan_id: int) -> rebalance_pb2.Plan:
        """A plan with all its steps."""
        answer: rebalance_pb2.GetPlanResponse
        answer = await self._answer(self._stub.GetPlan, rebalance_pb2.GetPlanRequest(id=plan_id))
        return answer.plan

    async def list(self, *, limit: int) -> list[rebalance_pb2.Plan]:
        """The newest first, at most so many, without their steps."""

        def rows(page: rebalance_pb2.ListPlansResponse) -> Iterable[rebalance_pb2.Plan]:
            return page.plans

        ask = partial(self._answer, self._stub.ListPlans)
        return await listed(ask, rebalance_pb2.ListPlansRequest(), rows, limit)

    async def approve(self, plan_id: int) -> rebalance_pb2.Plan:
        """From now on its steps are done."""
        request = rebalance_pb2.ApprovePlanRequest(id=plan_id)
        answer: rebalance_pb2.ApprovePlanResponse
        answer = await self._answer(self._stub.ApprovePlan, request)
        return answer.plan

    async def stop(self, plan_id: int, reason: str = "") -> rebalance_pb2.Plan:
        """No step begins any more."""
        request = rebalance_pb2.StopPlanRequest(id=plan_id, reason=reason)
        answer: rebalance_pb2.StopPlanResponse
        answer = await self._answer(self._stub.StopPlan, request)
        return answer.plan

    async def watch(self, plan_id: int) -> AsyncGenerator[rebalance_pb2.Plan]:
        """The plan with all its steps, then with those that changed, until nothing can any more."""
        method: Any = self._stub.WatchPlan
        call = method(rebalance_pb2.WatchPlanRequest(id=plan_id), metadata=self._metadata())
        async with aclosing(responses(call)) as answers:
            async for answer in answers:
                yield answer.plan
