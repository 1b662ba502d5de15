"""Methods that stream, and those of agents and of other control planes.

Must not decide who may call them: they pass the gate as operations do.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import Any, Final, Protocol

import grpc

from federation.codec.plans import plan_to_message
from federation.codec.strict import refuse_nul
from federation.codec.violations import Violations
from federation.model.errors import Unavailable
from federation.operations.plans import plan_id
from federation.operations.services import Services
from federation.operations.table import OperationCall, operation
from federation.rpc.calls import Context, caller
from federation.rpc.watching import (
    bindings_response,
    bindings_seen,
    clusters_response,
    clusters_seen,
    serve_watch,
)
from federation.services.threads import ENCODING
from federation.services.values import Principal
from federation.v1.agents_pb2 import ConnectRequest, ConnectResponse
from federation.v1.clusters_pb2 import WatchClustersRequest
from federation.v1.peers_pb2 import AskAgentRequest, AskAgentResponse
from federation.v1.rebalance_pb2 import WatchPlanRequest, WatchPlanResponse
from federation.v1.scheduling_pb2 import WatchBindingsRequest

Write = Callable[[ConnectResponse], Awaitable[None]]


# For a peer that names no deadline; all of ours do.
MAX_ASK_SECONDS: Final = 10.0


@operation("Peers/AskAgent", checked=False)
async def ask_agent(call: OperationCall, request: AskAgentRequest) -> AskAgentResponse:
    """Hand a question of another control plane to an agent of ours."""
    seconds = call.seconds_left
    limit = MAX_ASK_SECONDS if seconds is None else max(0.0, seconds)
    return await call.services.ask_agent(request, limit)


class Converse(Protocol):
    """Serves one agent's stream until it ends; raises what ends it other than by hanging up."""

    async def __call__(
        self, agent: Principal, requests: AsyncIterator[ConnectRequest], write: Write
    ) -> None: ...


class Streams:
    """The methods by the names that gRPC knows them by."""

    def __init__(self, services: Services, converse: Converse) -> None:
        self._services = services
        self._converse = converse

    def methods(self) -> dict[str, Callable[..., Any]]:
        return {
            "/federation.v1.Agents/Connect": self.connect,
            "/federation.v1.Clusters/WatchClusters": self.watch_clusters,
            "/federation.v1.Rebalance/WatchPlan": self.watch_plan,
            "/federation.v1.Scheduling/WatchBindings": self.watch_bindings,
        }

    async def connect(self, requests: AsyncIterator[ConnectRequest], context: Context) -> None:
        async def write(response: ConnectResponse) -> None:
            try:
                await context.write(response)
            except (grpc.RpcError, grpc.aio.BaseError) as error:
                raise Unavailable("the agent's stream broke") from error

        await self._converse(caller(), requests, write)

    async def watch_clusters(self, request: WatchClustersRequest, context: Context) -> None:
        place = ("", request.resource_version)
        visible = clusters_seen(caller().scope)
        await serve_watch(
            self._services.cluster_watches, place, context, clusters_response, visible
        )

    async def watch_bindings(self, request: WatchBindingsRequest, context: Context) -> None:
        violations = Violations()
        refuse_nul(request, "", violations)
        violations.check()
        place = (request.namespace, request.resource_version)
        visible = bindings_seen(caller().scope)
        await serve_watch(
            self._services.binding_watches, place, context, bindings_response, visible
        )

    async def watch_plan(
        self, request: WatchPlanRequest, _: Context
    ) -> AsyncGenerator[WatchPlanResponse]:
        violations = Violations()
        number = plan_id(request, violations)
        violations.check()
        async for news in self._services.plans.watch(number):
            message = await ENCODING.run(plan_to_message, news.plan, news.steps)
            yield WatchPlanResponse(plan=message)
