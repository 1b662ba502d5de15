"""The operation on a batch of bindings: items read one by one, decided together, answered in order.

Must not let one wrong item spoil the others, nor an answer grow beyond what clients take.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from functools import partial
from typing import TypeVar

from federation.codec.decisions import put_decision
from federation.codec.violations import Violations
from federation.model.errors import FederationError, InvalidRequest, NotPlacedTogether, PluginFailed
from federation.operations.table import OperationCall, operation
from federation.rpc.bindings import add_warnings, once_of, read_binding, read_off_loop
from federation.rpc.status import shortened
from federation.services.scheduling.bindings import BatchItem
from federation.services.scheduling.bindings import schedule_batch as decide_batch
from federation.services.threads import RESTS
from federation.services.troubles import tell_plugin_failure
from federation.services.values import Scheduled
from federation.v1 import scheduling_pb2 as messages

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
