"""Operations on bindings: decide them, read and delete them, release what they hold.

Must not decide anything: the use cases do.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Iterable
from functools import partial
from typing import TypeVar

from federation.codec.bindings import binding_to_message
from federation.codec.decisions import decision_to_message, put_decision, reservation_messages
from federation.codec.timestamps import timestamp_from_seconds
from federation.codec.violations import Violations
from federation.codec.waits import wait_to_message
from federation.model.errors import FederationError, InvalidRequest, NotPlacedTogether, PluginFailed
from federation.model.placement import Binding
from federation.operations.decisions import with_trace
from federation.operations.table import OperationCall, operation
from federation.rpc.bindings import add_warnings, once_of, read_binding, read_off_loop
from federation.rpc.pages import fitting, key_of, page_size_of, page_token
from federation.rpc.placing import lacks_nodes
from federation.rpc.status import shortened
from federation.services.scheduling.bindings import BatchItem
from federation.services.scheduling.bindings import schedule_batch as decide_batch
from federation.services.threads import ENCODING, RESTS
from federation.services.troubles import tell_plugin_failure
from federation.services.values import DecisionRecord, IdempotencyKey, Scheduled
from federation.v1 import resource_pb2
from federation.v1 import scheduling_pb2 as messages

MAX_NODE_SECONDS = 60.0
# The part of a caller's deadline in which the answer travels.
ANSWER_SECONDS = 0.25
MAX_ITEMS = 1000
# Of answers for all of 100 clusters: these take a few milliseconds.
WRITTEN_AT_ONCE = 20
# Results beyond these are trimmed to at most about 1,500 bytes, so that clients' 4 MiB suffice.
FULL_BYTES = 2_500_000
REASON_BYTES = 400
VIOLATION_BYTES = 200
MAX_VIOLATIONS = 100
TRIMMED_VIOLATIONS = 2

Item = TypeVar("Item")


@operation("Scheduling/Schedule", checked=False)
async def schedule(
    call: OperationCall, request: messages.ScheduleRequest
) -> messages.ScheduleResponse:
    node_seconds, once = _node_seconds(request), _once(request, call)
    if request.preview:
        return await _preview(call, request)
    scheduled = await _scheduled(call, request, once)
    record, binding = scheduled.record, scheduled.binding
    if binding is not None and lacks_nodes(scheduled):
        record = await _with_nodes(call, scheduled, binding, node_seconds)
    response = messages.ScheduleResponse(
        decision=decision_to_message(record),
        queued=scheduled.queued,
        binding=_written(call, binding) if binding else None,
    )
    add_warnings(request.binding, response.decision)
    return response


@operation("Scheduling/GetBinding")
async def get_binding(
    call: OperationCall, request: messages.GetBindingRequest
) -> messages.GetBindingResponse:
    view = await call.services.scheduling.get_binding(request.namespace, request.name)
    expires_at = view.lease_expires_at
    return messages.GetBindingResponse(
        binding=_written(call, view.binding),
        decision=decision_to_message(view.record) if view.record else None,
        reservations=reservation_messages(view.held),
        lease_expire_time=None if expires_at is None else timestamp_from_seconds(expires_at),
        wait=wait_to_message(view.wait, view.position) if view.wait else None,
    )


@operation("Scheduling/ListBindings")
async def list_bindings(
    call: OperationCall, request: messages.ListBindingsRequest
) -> messages.ListBindingsResponse:
    key = key_of(request.page_token, 3)
    after = (key[1], key[2]) if key else None
    limit = page_size_of(request.page_size)
    page = await call.services.scheduling.list_bindings(
        request.namespace, after, limit, among=call.scope.namespaces
    )
    bindings = await ENCODING.run(fitting, map(partial(_written, call), page.bindings))
    next_after = page.next_after
    if len(bindings) < len(page.bindings):
        last = page.bindings[len(bindings) - 1]
        next_after = (last.namespace, last.name)
    # All pages have the version of the first one: what it misses, the later ones do not show.
    version = key[0] if key else call.services.binding_watches.resource_version(page.position)
    return messages.ListBindingsResponse(
        bindings=bindings,
        next_page_token=page_token((version, *next_after)) if next_after else "",
        resource_version=version,
    )


@operation("Scheduling/ReleaseReservation")
async def release_reservation(
    call: OperationCall, request: messages.ReleaseReservationRequest
) -> messages.ReleaseReservationResponse:
    """Release reservations. Raises what ``ReleaseService.release`` raises."""
    held = await call.services.releases.release(
        request.namespace, request.name, request.uid, tuple(request.clusters)
    )
    return messages.ReleaseReservationResponse(released=reservation_messages(held))


@operation("Scheduling/RenewLease")
async def renew_lease(
    call: OperationCall, request: messages.RenewLeaseRequest
) -> messages.RenewLeaseResponse:
    """Renew a lease. Raises what ``ReleaseService.renew`` raises."""
    seconds = request.lease_seconds if request.HasField("lease_seconds") else None
    expires_at = await call.services.releases.renew(
        request.namespace, request.name, request.uid, seconds
    )
    return messages.RenewLeaseResponse(lease_expire_time=timestamp_from_seconds(expires_at))


@operation("Scheduling/DeleteBinding")
async def delete_binding(
    call: OperationCall, request: messages.DeleteBindingRequest
) -> messages.DeleteBindingResponse:
    await call.services.releases.delete(request.namespace, request.name, request.uid)
    return messages.DeleteBindingResponse()


async def _preview(
    call: OperationCall, request: messages.ScheduleRequest
) -> messages.ScheduleResponse:
    if request.preview_token:
        raise InvalidRequest.of("previewToken", "cannot be combined with preview")
    previewed = await call.services.previews.preview(
        await read_off_loop(request.binding, read_binding),
        adopt=request.adopt,
        wait=_wait(request),
    )
    expires_at = previewed.expires_at
    response = messages.ScheduleResponse(
        decision=await with_trace(previewed.record),
        preview_token=previewed.token,
        preview_expire_time=None if expires_at is None else timestamp_from_seconds(expires_at),
    )
    add_warnings(request.binding, response.decision)
    return response


def _written(call: OperationCall, binding: Binding) -> resource_pb2.ResourceBinding:
    """Write a stored binding, with its version in the current history of the database."""
    return binding_to_message(binding, call.services.binding_watches.history)


async def _scheduled(
    call: OperationCall, request: messages.ScheduleRequest, once: IdempotencyKey | None
) -> Scheduled:
    has_binding = request.HasField("binding")
    if request.preview_token:
        binding = await read_off_loop(request.binding, read_binding) if has_binding else None
        return await call.services.previews.commit(request.preview_token, binding, call.scope)
    return await call.services.scheduling.schedule(
        await read_off_loop(request.binding, read_binding),
        adopt=request.adopt,
        wait=_wait(request),
        once=once,
    )


async def _with_nodes(
    call: OperationCall, scheduled: Scheduled, binding: Binding, node_seconds: float
) -> DecisionRecord:
    """Ask the agents: for this answer when the caller waits, else for later readers."""
    placing = call.services.placing
    if not node_seconds:
        placing.start_behind([scheduled])
        return scheduled.record
    placing.start_behind(scheduled.others)
    seconds = call.seconds_left
    limit = node_seconds if seconds is None else min(node_seconds, seconds - ANSWER_SECONDS)
    # Once asked, the agents' answers are stored even when the caller does not wait any longer.
    placed = placing.start(scheduled.record, binding, max(limit, 0.0))
    return await asyncio.shield(placed)


def _once(request: messages.ScheduleRequest, call: OperationCall) -> IdempotencyKey | None:
    violations = Violations()
    once = once_of(request, call.caller.credential_id, violations)
    if once is not None and (request.preview or request.preview_token):
        rule = "cannot be combined with previews: their tokens are repeatable"
        violations.add("idempotencyKey", rule)
    violations.check()
    return once


def _wait(request: messages.ScheduleRequest) -> bool:
    return request.wait if request.HasField("wait") else True


def _node_seconds(request: messages.ScheduleRequest) -> float:
    seconds = request.node_timeout_seconds
    if not (math.isfinite(seconds) and 0 <= seconds <= MAX_NODE_SECONDS):
        rule = f"must be from 0 to {MAX_NODE_SECONDS:g}, not {seconds:g}"
        raise InvalidRequest.of("nodeTimeoutSeconds", rule)
    return seconds


@operation("Scheduling/ScheduleBatch", checked=False)
async def schedule_batch(
    call: OperationCall, request: messages.ScheduleBatchRequest
) -> messages.ScheduleBatchResponse:
    """Answer every item; agents choose nodes afterwards. Raises InvalidRequest for the whole."""
    if not 1 <= len(request.items) <= MAX_ITEMS:
        raise InvalidRequest.of("items", f"must be 1 to {MAX_ITEMS}, not {len(request.items)}")
    read = await read_off_loop(request.items, partial(_read_all, call.caller.credential_id))
    decided = await decide_batch(call.services.scheduling, read, atomic=request.atomic)
    # Nothing is awaited in between: agents are asked even when the caller leaves now.
    call.services.placing.start_behind(
        answer for answer in decided if isinstance(answer, Scheduled)
    )
    response, room = messages.ScheduleBatchResponse(), FULL_BYTES
    async for item, answer in _in_turns(zip(request.items, decided, strict=True)):
        result = response.results.add()
        if isinstance(answer, FederationError):
            _put_undecided(item, answer, result)
        else:
            put_decision(answer.record, result.decision)
            add_warnings(item.binding, result.decision)
            result.queued = answer.queued
        size_bytes = result.ByteSize()
        if size_bytes > room:
            _trim(result)
            size_bytes = result.ByteSize()
        room -= size_bytes
    return response


async def _in_turns(items: Iterable[Item]) -> AsyncIterator[Item]:
    """Yield the items; after some of them other calls have a turn on the event loop."""
    for number, item in enumerate(items, start=1):
        yield item
        if not number % WRITTEN_AT_ONCE:
            await asyncio.sleep(0)


def _read_all(
    credential_id: str, items: Iterable[messages.ScheduleBatchItem]
) -> list[BatchItem | InvalidRequest]:
    return [_read(credential_id, item) for item in items]


def _read(credential_id: str, item: messages.ScheduleBatchItem) -> BatchItem | InvalidRequest:
    RESTS.take()
    violations = Violations()
    once = once_of(item, credential_id, violations)
    try:
        binding = read_binding(item.binding)
        violations.check()
    except InvalidRequest as error:
        return error
    wait = item.wait if item.HasField("wait") else True
    return BatchItem(binding=binding, adopt=item.adopt, wait=wait, once=once)


def _put_undecided(
    item: messages.ScheduleBatchItem,
    error: FederationError,
    result: messages.ScheduleBatchResult,
) -> None:
    if isinstance(error, PluginFailed):
        tell_plugin_failure(error)
    decision = result.decision
    decision.namespace = shortened(item.binding.metadata.namespace, VIOLATION_BYTES)
    decision.name = shortened(item.binding.metadata.name, VIOLATION_BYTES)
    decision.outcome = messages.OUTCOME_INVALID
    if isinstance(error, NotPlacedTogether):
        decision.outcome = messages.OUTCOME_UNSCHEDULABLE
    decision.reason = shortened(error.message, REASON_BYTES)
    broken = error.violations if isinstance(error, InvalidRequest) else ()
    for violation in broken[:MAX_VIOLATIONS]:
        result.violations.add(
            field=shortened(violation.field, VIOLATION_BYTES),
            rule=shortened(violation.rule, VIOLATION_BYTES),
        )
    result.error_reason = error.reason


def _trim(result: messages.ScheduleBatchResult) -> None:
    """Leave out the clusters, which GetDecision has, and all but a few violations."""
    result.clusters_omitted = bool(result.decision.clusters)
    del result.decision.clusters[:]
    del result.violations[TRIMMED_VIOLATIONS:]
    result.decision.reason = shortened(result.decision.reason, REASON_BYTES)
    del result.decision.warnings[:]
