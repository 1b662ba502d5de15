"""Operations on failover: its state, and the brake.

Must not decide anything: the use case does.
"""

from __future__ import annotations

from typing import Final

from federation.codec.bindings import eviction_message
from federation.codec.selectors import taint_messages
from federation.codec.timestamps import timestamp_from_seconds
from federation.codec.violations import Violations
from federation.failover.breaker import FreezeScope, ScopeKind
from federation.operations.table import OperationCall, operation
from federation.services.failover.control import FailoverStatus
from federation.v1 import failover_pb2 as messages

# Where people name what is frozen: a control plane's clusters only freeze by themselves.
_PATHS: Final = {
    ScopeKind.REGION: "region",
    ScopeKind.PROVIDER: "provider",
    ScopeKind.CONTROL_PLANE: "controlPlane",
}


def _place(
    request: messages.FreezeFailoverRequest | messages.ResumeFailoverRequest, violations: Violations
) -> FreezeScope | None:
    """Return the part of the fleet that is meant; None: all of it."""
    places = [
        FreezeScope(kind=kind, name=name)
        for kind in _PATHS
        if kind in request.DESCRIPTOR.fields_by_name and (name := getattr(request, kind))
    ]
    for place in places[1:]:
        beside = _PATHS[places[0].kind]
        violations.add(
            _PATHS[place.kind], f"must not be set beside {beside}: a freeze is of one place"
        )
    return places[0] if places else None


def _freeze_of(
    request: messages.FreezeFailoverRequest, violations: Violations
) -> tuple[str, FreezeScope | None]:
    return request.reason, _place(request, violations)


@operation("Failover/GetFailover")
async def get_failover(
    call: OperationCall, _: messages.GetFailoverRequest
) -> messages.GetFailoverResponse:
    status = await call.services.failover.get(call.scope)
    return messages.GetFailoverResponse(status=_message(status))


@operation("Failover/FreezeFailover", read=_freeze_of)
async def freeze_failover(
    call: OperationCall, freeze: tuple[str, FreezeScope | None]
) -> messages.FreezeFailoverResponse:
    reason, place = freeze
    status = await call.services.failover.freeze(str(call.caller), reason, place, call.scope)
    return messages.FreezeFailoverResponse(status=_message(status))


@operation("Failover/ResumeFailover", read=_place)
async def resume_failover(
    call: OperationCall, place: FreezeScope | None
) -> messages.ResumeFailoverResponse:
    status = await call.services.failover.resume(str(call.caller), place, call.scope)
    return messages.ResumeFailoverResponse(status=_message(status))


def _message(status: FailoverStatus) -> messages.FailoverStatus:
    moment = timestamp_from_seconds
    message = messages.FailoverStatus(
        enabled=status.enabled,
        eviction_count=status.eviction_count,
        replicas_per_minute=status.replicas_per_minute,
        time=moment(status.now),
    )
    if (freeze := status.freeze) is not None:
        message.freeze.by, message.freeze.reason = freeze.by, freeze.reason
        message.freeze.since.CopyFrom(moment(freeze.since))
    for frozen in status.places:
        place = message.places.add(**{frozen.place.kind.value: frozen.place.name})
        place.freeze.by, place.freeze.reason = frozen.freeze.by, frozen.freeze.reason
        place.freeze.since.CopyFrom(moment(frozen.freeze.since))
    for cluster in status.silent:
        silent = message.silent.add(name=cluster.name, since=moment(cluster.since))
        if cluster.lost_since is None:
            silent.lost_at.CopyFrom(moment(cluster.lost_at))
        else:
            silent.lost_since.CopyFrom(moment(cluster.lost_since))
    for held in status.evacuated:
        message.evacuated.add(
            name=held.name,
            taints=taint_messages(held.taints),
            bindings=held.bindings,
            replicas=held.replicas,
        )
    for going_on in status.evictions:
        namespace, name = going_on.binding
        message.evictions.add(
            namespace=namespace,
            name=name,
            task=eviction_message(going_on.task),
            deadline=None if going_on.deadline is None else moment(going_on.deadline),
        )
    return message
