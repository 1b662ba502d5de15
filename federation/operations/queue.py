"""Operations on the queue, and on bindings that wait in it.

Must not decide anything: the use case does.
"""

from __future__ import annotations

from math import isfinite

from federation.codec.bindings import binding_to_message
from federation.codec.decisions import decision_to_message
from federation.codec.waits import queued_to_message, wait_to_message
from federation.model.errors import InvalidRequest
from federation.operations.table import OperationCall, operation
from federation.rpc.pages import fitting, key_of, page_size_of, page_token
from federation.services.binding_ports import QueuedBinding, QueuePlace
from federation.services.threads import ENCODING
from federation.v1 import scheduling_pb2 as messages

# The list's version, priority, since, namespace, name, entry.
TOKEN_PARTS = 6
MIN_PRIORITY, MAX_PRIORITY = -(2**31), 2**31 - 1
# Far beyond any time that a database keeps.
MAX_SECONDS = 1e11


@operation("Scheduling/SuspendBinding")
async def suspend_binding(
    call: OperationCall, request: messages.SuspendBindingRequest
) -> messages.SuspendBindingResponse:
    """Suspend a binding, or resume it. Raises what ``Queueing`` raises."""
    queueing = call.services.queueing
    change = queueing.resume if request.resume else queueing.suspend
    wait = await change(request.namespace, request.name, request.uid)
    return messages.SuspendBindingResponse(wait=wait_to_message(wait) if wait else None)


@operation("Scheduling/RescheduleBinding")
async def reschedule_binding(
    call: OperationCall, request: messages.RescheduleBindingRequest
) -> messages.RescheduleBindingResponse:
    """Decide a binding again; agents choose nodes afterwards. Raises what ``Queueing`` raises."""
    services = call.services
    scheduled = await services.queueing.reschedule(request.namespace, request.name, request.uid)
    services.placing.start_behind([scheduled])
    binding = scheduled.binding
    return messages.RescheduleBindingResponse(
        decision=decision_to_message(scheduled.record),
        queued=scheduled.queued,
        binding=binding_to_message(binding, services.binding_watches.history) if binding else None,
    )


@operation("Scheduling/ListQueue")
async def list_queue(
    call: OperationCall, request: messages.ListQueueRequest
) -> messages.ListQueueResponse:
    priority = request.priority if request.HasField("priority") else None
    key = key_of(request.page_token, TOKEN_PARTS)
    after = _place_of(key) if key else None
    limit = page_size_of(request.page_size)
    page = await call.services.queueing.list(
        request.namespace, priority, after, limit, among=call.scope.namespaces
    )
    bindings = await ENCODING.run(fitting, map(queued_to_message, page.bindings))
    is_last = page.is_last and len(bindings) == len(page.bindings)
    # All pages have the version of the first one: what it misses, the later ones do not show.
    version = key[0] if key else call.services.binding_watches.resource_version(page.position)
    return messages.ListQueueResponse(
        bindings=bindings,
        next_page_token="" if is_last else _token(version, page.bindings[len(bindings) - 1]),
        resource_version=version,
    )


def _token(version: str, last: QueuedBinding) -> str:
    place = str(last.priority), repr(last.wait.place_at), last.namespace, last.name
    return page_token((version, *place, last.wait.entry))


def _place_of(key: tuple[str, ...]) -> QueuePlace:
    _, priority, since, namespace, name, entry = key
    try:
        place = QueuePlace(int(priority), float(since), namespace, name, entry)
    except ValueError:
        place = QueuePlace(0, float("nan"), "", "")
    is_place = isfinite(place.since) and 0 <= place.since < MAX_SECONDS
    if not is_place or not MIN_PRIORITY <= place.priority <= MAX_PRIORITY:
        raise InvalidRequest.of("pageToken", "is not one that a list answered")
    return place
