"""Failover over the wire: how it stands, and the brake.

Must not decide anything: reads the message, calls the use case, writes the answer.
"""

from __future__ import annotations

from typing import Final

from federation.codec import texts
from federation.codec.bindings import eviction_message
from federation.codec.ranges import required
from federation.codec.selectors import taint_messages
from federation.codec.strict import refuse_nul
from federation.codec.timestamps import timestamp_from_seconds
from federation.codec.violations import Violations
from federation.failover.breaker import FreezeScope, ScopeKind
from federation.rpc.calls import Context, caller
from federation.services.failover.control import FailoverControl, FailoverStatus
from federation.v1 import failover_pb2 as messages
from federation.v1.failover_pb2_grpc import FailoverServicer as Servicer

# Where people name what is frozen: a control plane's clusters only freeze by themselves.
_PATHS: Final = {
    ScopeKind.REGION: "region",
    ScopeKind.PROVIDER: "provider",
    ScopeKind.CONTROL_PLANE: "controlPlane",
}


class FailoverServicer(Servicer):
    """Implements federation.v1.Failover."""

    def __init__(self, control: FailoverControl) -> None:
        self._control = control

    async def GetFailover(
        self, request: messages.GetFailoverRequest, context: Context
    ) -> messages.GetFailoverResponse:
        return messages.GetFailoverResponse(
            status=_message(await self._control.get(caller().scope))
        )

    async def FreezeFailover(
        self, request: messages.FreezeFailoverRequest, context: Context
    ) -> messages.FreezeFailoverResponse:
        found = Violations()
        refuse_nul(request, "", found)
        required(request.reason, "reason", found)
        texts.word(request.reason, "reason", found)
        place = _place(request, found)
        found.check()
        status = await self._control.freeze(str(caller()), request.reason, place, caller().scope)
        return messages.FreezeFailoverResponse(status=_message(status))

    async def ResumeFailover(
        self, request: messages.ResumeFailoverRequest, context: Context
    ) -> messages.ResumeFailoverResponse:
        found = Violations()
        refuse_nul(request, "", found)
        place = _place(request, found)
        found.check()
        status = await self._control.resume(str(caller()), place, caller().scope)
        return messages.ResumeFailoverResponse(status=_message(status))


def _place(
    request: messages.FreezeFailoverRequest | messages.ResumeFailoverRequest, found: Violations
) -> FreezeScope | None:
    """What of the fleet is meant; None: all of it."""
    places = [
        FreezeScope(kind=kind, name=name)
        for kind, path in _PATHS.items()
        if kind in request.DESCRIPTOR.fields_by_name
        and (name := texts.word(getattr(request, kind), path, found))
    ]
    for each in places[1:]:
        beside = _PATHS[places[0].kind]
        found.add(_PATHS[each.kind], f"must not be set beside {beside}: a freeze is of one place")
    return places[0] if places else None


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
    for each in status.silent:
        silent = message.silent.add(name=each.name, since=moment(each.since))
        if each.lost_since is None:
            silent.lost_at.CopyFrom(moment(each.lost_at))
        else:
            silent.lost_since.CopyFrom(moment(each.lost_since))
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
