"""The queue over the wire.

Must not decide anything: reads the message, calls the use case, writes the answer.
"""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite

from federation.codec.decisions import decision_to_message
from federation.codec.ranges import required, whole
from federation.codec.strict import refuse_nul
from federation.codec.violations import Violations
from federation.codec.waits import queued_to_message, wait_to_message
from federation.model.errors import InvalidRequest
from federation.model.placement import Binding
from federation.rpc.calls import caller
from federation.rpc.pages import fitting, key_of, page_size_of, page_token
from federation.rpc.placing import NodePlacing
from federation.services.binding_ports import QueuedBinding, QueuePlace
from federation.services.journal import Position
from federation.services.threads import ENCODING
from federation.services.waiting.steering import Queueing
from federation.v1 import resource_pb2
from federation.v1 import scheduling_pb2 as messages

# The list's version, priority, since, namespace, name, entry.
TOKEN_PARTS = 6
LEAST_PRIORITY, MOST_PRIORITY = -(2**31), 2**31 - 1
# Far beyond any time that a database keeps.
MOST_SECONDS = 1e11


async def suspended(
    request: messages.SuspendBindingRequest, queueing: Queueing
) -> messages.SuspendBindingResponse:
    """Suspended, or resumed. Raises InvalidRequest, and what ``Queueing`` raises."""
    _check_named(request)
    change = queueing.resume if request.resume else queueing.suspend
    wait = await change(request.namespace, request.name, request.uid)
    return messages.SuspendBindingResponse(wait=wait_to_message(wait) if wait else None)


async def rescheduled(
    request: messages.RescheduleBindingRequest,
    queueing: Queueing,
    placing: NodePlacing,
    written: Callable[[Binding], resource_pb2.ResourceBinding],
) -> messages.RescheduleBindingResponse:
    """Nodes are asked for behind it; ``written`` makes the message of a stored binding. Raises
    InvalidRequest, and what ``Queueing`` raises.
    """
    _check_named(request)
    scheduled = await queueing.reschedule(request.namespace, request.name, request.uid)
    placing.start_behind([scheduled])
    return messages.RescheduleBindingResponse(
        decision=decision_to_message(scheduled.record),
        queued=scheduled.queued,
        binding=written(scheduled.binding) if scheduled.binding else None,
    )


async def listed(
    request: messages.ListQueueRequest, queueing: Queueing, version_of: Callable[[Position], str]
) -> messages.ListQueueResponse:
    """Raises InvalidRequest."""
    found = Violations()
    refuse_nul(request, "", found)
    priority = None
    if request.HasField("priority"):
        priority = whole(
            request.priority, "priority", found, least=LEAST_PRIORITY, most=MOST_PRIORITY
        )
    found.check()
    key = key_of(request.page_token, TOKEN_PARTS)
    after = _place_of(key) if key else None
    limit = page_size_of(request.page_size)
    among = caller().scope.namespaces
    page = await queueing.list(request.namespace, priority, after, limit, among=among)
    bindings = await ENCODING.run(fitting, map(queued_to_message, page.bindings))
    is_last = page.is_last and len(bindings) == len(page.bindings)
    # All pages have the first one's: what it misses, the later ones do not tell.
    version = key[0] if key else version_of(page.position)
    return messages.ListQueueResponse(
        bindings=bindings,
        next_page_token="" if is_last else _token(version, page.bindings[len(bindings) - 1]),
        resource_version=version,
    )


def _check_named(
    request: messages.SuspendBindingRequest | messages.RescheduleBindingRequest,
) -> None:
    found = Violations()
    required(request.name, "name", found)
    refuse_nul(request, "", found)
    found.check()


def _token(version: str, last: QueuedBinding) -> str:
    place = str(last.priority), repr(last.wait.place_at), last.namespace, last.name
    return page_token((version, *place, last.wait.entry))


def _place_of(key: tuple[str, ...]) -> QueuePlace:
    _, priority, since, namespace, name, entry = key
    try:
        place = QueuePlace(int(priority), float(since), namespace, name, entry)
    except ValueError:
        place = QueuePlace(0, float("nan"), "", "")
    is_place = isfinite(place.since) and 0 <= place.since < MOST_SECONDS
    if not is_place or not LEAST_PRIORITY <= place.priority <= MOST_PRIORITY:
        raise InvalidRequest.of("pageToken", "is not one that a list answered")
    return place
