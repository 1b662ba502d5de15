"""Scheduling: decide, read and delete bindings, read decisions.

Must not decide anything: reads the message, calls ``Scheduling``, writes the answer.
"""

from __future__ import annotations

import asyncio
import math

from federation.codec.bindings import binding_to_message
from federation.codec.decisions import decision_to_message, reservation_messages
from federation.codec.ranges import required
from federation.codec.strict import refuse_nul
from federation.codec.timestamps import timestamp_from_seconds
from federation.codec.violations import Violations
from federation.codec.waits import wait_to_message
from federation.model.errors import InvalidRequest, NotFound
from federation.model.placement import Binding, BindingName
from federation.rpc.batches import scheduled_batch
from federation.rpc.bindings import add_warnings, once_of, read_binding, read_off_loop
from federation.rpc.calls import Context, caller, seconds_left
from federation.rpc.history import HistoryCalls
from federation.rpc.pages import fitting, key_of, page_size_of, page_token
from federation.rpc.placing import NodePlacing, lacks_nodes
from federation.rpc.promises import released, renewed
from federation.rpc.queueing import listed, rescheduled, suspended
from federation.rpc.watching import bindings_response, bindings_seen, serve_watch
from federation.services.scheduling.bindings import Scheduling
from federation.services.scheduling.previews import Previews
from federation.services.scheduling.release import ReleaseService
from federation.services.threads import ENCODING
from federation.services.values import DecisionRecord, IdempotencyKey, Scheduled
from federation.services.waiting.steering import Queueing
from federation.services.watching.watches import Watches
from federation.v1 import resource_pb2
from federation.v1 import scheduling_pb2 as messages
from federation.v1.scheduling_pb2_grpc import SchedulingServicer as Servicer

MAX_NODE_SECONDS = 60.0
# A trace over fewer is written in less than 5 ms: not worth a thread.
CLUSTERS_PER_THREAD = 300
# Left of a caller's deadline for the answer to travel.
ANSWER_SECONDS = 0.25


class SchedulingServicer(Servicer):
    """Implements federation.v1.Scheduling."""

    def __init__(
        self,
        scheduling: Scheduling,
        previews: Previews,
        placing: NodePlacing,
        releases: ReleaseService,
        watches: Watches[BindingName, messages.BindingEvent],
        queueing: Queueing,
        history: HistoryCalls,
    ) -> None:
        self._scheduling = scheduling
        self._previews = previews
        self._placing = placing
        self._releases = releases
        self._watches = watches
        self._queueing = queueing
        self._history = history

    async def Schedule(
        self, request: messages.ScheduleRequest, context: Context
    ) -> messages.ScheduleResponse:
        node_seconds, once = _node_seconds(request), _once(request)
        if request.preview:
            return await self._preview(request)
        scheduled = await self._scheduled(request, once)
        record, binding = scheduled.record, scheduled.binding
        if binding is not None and lacks_nodes(scheduled):
            record = await self._with_nodes(scheduled, binding, node_seconds, context)
        response = messages.ScheduleResponse(
            decision=decision_to_message(record),
            queued=scheduled.queued,
            binding=self._written(binding) if binding else None,
        )
        add_warnings(request.binding, response.decision)
        return response

    async def ScheduleBatch(
        self, request: messages.ScheduleBatchRequest, context: Context
    ) -> messages.ScheduleBatchResponse:
        return await scheduled_batch(request, self._scheduling, self._placing)

    async def GetBinding(
        self, request: messages.GetBindingRequest, context: Context
    ) -> messages.GetBindingResponse:
        found = Violations()
        required(request.name, "name", found)
        refuse_nul(request, "", found)
        found.check()
        view = await self._scheduling.get_binding(request.namespace, request.name)
        expires_at = view.lease_expires_at
        return messages.GetBindingResponse(
            binding=self._written(view.binding),
            decision=decision_to_message(view.record) if view.record else None,
            reservations=reservation_messages(view.held),
            lease_expire_time=None if expires_at is None else timestamp_from_seconds(expires_at),
            wait=wait_to_message(view.wait, view.position) if view.wait else None,
        )

    async def ListQueue(
        self, request: messages.ListQueueRequest, context: Context
    ) -> messages.ListQueueResponse:
        return await listed(request, self._queueing, self._watches.resource_version)

    async def SuspendBinding(
        self, request: messages.SuspendBindingRequest, context: Context
    ) -> messages.SuspendBindingResponse:
        return await suspended(request, self._queueing)

    async def RescheduleBinding(
        self, request: messages.RescheduleBindingRequest, context: Context
    ) -> messages.RescheduleBindingResponse:
        return await rescheduled(request, self._queueing, self._placing, self._written)

    async def ListBindings(
        self, request: messages.ListBindingsRequest, context: Context
    ) -> messages.ListBindingsResponse:
        found = Violations()
        refuse_nul(request, "", found)
        found.check()
        key = key_of(request.page_token, 3)
        after = (key[1], key[2]) if key else None
        limit = page_size_of(request.page_size)
        page = await self._scheduling.list_bindings(
            request.namespace, after, limit, among=caller().scope.namespaces
        )
        bindings = await ENCODING.run(fitting, map(self._written, page.bindings))
        next_after = page.next_after
        if len(bindings) < len(page.bindings):
            last = page.bindings[len(bindings) - 1]
            next_after = (last.namespace, last.name)
        # All pages have the first one's: what it misses, the later ones do not tell.
        version = key[0] if key else self._watches.resource_version(page.position)
        return messages.ListBindingsResponse(
            bindings=bindings,
            next_page_token=page_token((version, *next_after)) if next_after else "",
            resource_version=version,
        )

    async def WatchBindings(  # type: ignore[override]  # the stub knows generators, not writers
        self, request: messages.WatchBindingsRequest, context: Context
    ) -> None:
        found = Violations()
        refuse_nul(request, "", found)
        found.check()
        asked = (request.namespace, request.resource_version)
        seen = bindings_seen(caller().scope)
        await serve_watch(self._watches, asked, context, bindings_response, seen)

    async def ReleaseReservation(
        self, request: messages.ReleaseReservationRequest, context: Context
    ) -> messages.ReleaseReservationResponse:
        return await released(request, self._releases)

    async def RenewLease(
        self, request: messages.RenewLeaseRequest, context: Context
    ) -> messages.RenewLeaseResponse:
        return await renewed(request, self._releases)

    async def DeleteBinding(
        self, request: messages.DeleteBindingRequest, context: Context
    ) -> messages.DeleteBindingResponse:
        found = Violations()
        required(request.name, "name", found)
        refuse_nul(request, "", found)
        found.check()
        await self._releases.delete(request.namespace, request.name, request.uid)
        return messages.DeleteBindingResponse()

    async def GetDecision(
        self, request: messages.GetDecisionRequest, context: Context
    ) -> messages.GetDecisionResponse:
        found = Violations()
        required(request.id, "id", found)
        refuse_nul(request, "", found)
        found.check()
        scope, record = caller().scope, await self._seen_decision(request.id)
        # What is said of clusters that the caller may not see stands among the rest.
        decision = (
            await _with_trace(record) if scope.sees_all_clusters else decision_to_message(record)
        )
        return messages.GetDecisionResponse(decision=decision)

    async def ListDecisions(
        self, request: messages.ListDecisionsRequest, context: Context
    ) -> messages.ListDecisionsResponse:
        return await self._history.list_decisions(request)

    async def ExportTrace(
        self, request: messages.ExportTraceRequest, context: Context
    ) -> messages.ExportTraceResponse:
        return await self._history.export_trace(request)

    async def ReplayDecision(
        self, request: messages.ReplayDecisionRequest, context: Context
    ) -> messages.ReplayDecisionResponse:
        if request.id and caller().scope.namespaces:
            await self._seen_decision(request.id)
        return await self._history.replay_decision(request, context)

    async def _seen_decision(self, decision_id: str) -> DecisionRecord:
        """Raises NotFound, also for one that the caller may not see."""
        record = await self._scheduling.get_decision(decision_id)
        if not caller().scope.sees_namespace(record.namespace):
            raise NotFound(f"There is no decision {decision_id!r}.")
        return record

    async def _preview(self, request: messages.ScheduleRequest) -> messages.ScheduleResponse:
        if request.preview_token:
            raise InvalidRequest.of("previewToken", "cannot be combined with preview")
        previewed = await self._previews.preview(
            await read_off_loop(request.binding, read_binding),
            adopt=request.adopt,
            wait=_wait(request),
        )
        expires_at = previewed.expires_at
        response = messages.ScheduleResponse(
            decision=await _with_trace(previewed.record),
            preview_token=previewed.token,
            preview_expire_time=(
                None if expires_at is None else timestamp_from_seconds(expires_at)
            ),
        )
        add_warnings(request.binding, response.decision)
        return response

    def _written(self, binding: Binding) -> resource_pb2.ResourceBinding:
        """A stored binding, with its version in the history of the database that is known."""
        return binding_to_message(binding, self._watches.history)

    async def _scheduled(
        self, request: messages.ScheduleRequest, once: IdempotencyKey | None
    ) -> Scheduled:
        if request.preview_token:
            given = request.HasField("binding")
            binding = await read_off_loop(request.binding, read_binding) if given else None
            return await self._previews.commit(request.preview_token, binding, caller().scope)
        return await self._scheduling.schedule(
            await read_off_loop(request.binding, read_binding),
            adopt=request.adopt,
            wait=_wait(request),
            once=once,
        )

    async def _with_nodes(
        self, scheduled: Scheduled, binding: Binding, node_seconds: float, context: Context
    ) -> DecisionRecord:
        """Ask the agents: for this answer when the caller waits, else for later readers."""
        if not node_seconds:
            self._placing.start_behind([scheduled])
            return scheduled.record
        self._placing.start_behind(scheduled.others)
        left = seconds_left(context)
        limit = node_seconds if left is None else min(node_seconds, left - ANSWER_SECONDS)
        # Once asked, the agents' answers are kept even when the caller does not wait any more.
        placed = self._placing.start(scheduled.record, binding, max(limit, 0.0))
        return await asyncio.shield(placed)


def _once(request: messages.ScheduleRequest) -> IdempotencyKey | None:
    found = Violations()
    once = once_of(request, caller().credential_id, found)
    if once is not None and (request.preview or request.preview_token):
        found.add("idempotencyKey", "cannot be combined with previews: their tokens are repeatable")
    found.check()
    return once


def _wait(request: messages.ScheduleRequest) -> bool:
    return request.wait if request.HasField("wait") else True


def _node_seconds(request: messages.ScheduleRequest) -> float:
    seconds = request.node_timeout_seconds
    if not (math.isfinite(seconds) and 0 <= seconds <= MAX_NODE_SECONDS):
        rule = f"must be from 0 to {MAX_NODE_SECONDS:g}, not {seconds:g}"
        raise InvalidRequest.of("nodeTimeoutSeconds", rule)
    return seconds


async def _with_trace(record: DecisionRecord) -> messages.Decision:
    if len(record.decision.trace.clusters) < CLUSTERS_PER_THREAD:
        return decision_to_message(record, trace=True)
    return await ENCODING.run(decision_to_message, record, trace=True)
