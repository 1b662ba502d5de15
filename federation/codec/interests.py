"""What agents are to look for, from messages and back.

Must not match pods: ``federation.model.echoes`` does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from federation.codec.requirements import read_requirements, requirements_to_message
from federation.codec.rules import check_rules
from federation.codec.violations import Violations
from federation.model.echoes import Interest, InterestUpdate, Owner, SoughtShape
from federation.model.reservations import PromiseCertificate, Share
from federation.model.shapes import request_shape
from federation.v1 import agents_pb2, resource_pb2

# A message may have 4 MiB.
PART_BYTES: Final = 1024 * 1024


def interest_messages(update: InterestUpdate, known: int) -> Iterator[agents_pb2.InterestUpdate]:
    """The update, in as many messages as it takes.

    Only the last one has its version: until then the agent answers ``known``, what it was told
    before, or 0 when it is told everything anew.
    """
    before = 0 if update.whole else known
    part = agents_pb2.InterestUpdate(whole=update.whole, removed=update.removed)
    size = 0
    for interest in update.interests:
        if size > PART_BYTES:
            part.version = before
            yield part
            part, size = agents_pb2.InterestUpdate(), 0
        message = _interest_message(interest)
        part.bindings.append(message)
        size += message.ByteSize()
    part.version = update.version
    yield part


def interests_from_message(message: agents_pb2.InterestUpdate) -> InterestUpdate:
    """Raises InvalidRequest."""
    found = Violations()
    check_rules(message, "interest", found)
    update = InterestUpdate(
        version=message.version,
        whole=message.whole,
        interests=tuple(_interests(message.bindings, found)),
        removed=tuple(message.removed),
    )
    found.check()
    return update


def _interests(
    messages: Iterable[agents_pb2.BindingInterest], found: Violations
) -> Iterator[Interest]:
    for position, message in enumerate(messages):
        path = f"interest.bindings[{position}]"
        owner = message.owner
        yield Interest(
            binding=message.binding,
            uid=message.uid,
            owner=Owner(owner.api_version, owner.kind, owner.namespace, owner.name)
            if message.HasField("owner")
            else None,
            shapes=tuple(
                _sought(shape, f"{path}.shapes[{number}]", found)
                for number, shape in enumerate(message.shapes)
            ),
        )


def _sought(message: agents_pb2.SoughtShape, path: str, found: Violations) -> SoughtShape:
    planned = None
    if message.HasField("planned"):
        planned = Share(
            component=message.component,
            requirements=read_requirements(
                message.planned.replica_requirements, f"{path}.planned.replicaRequirements", found
            ),
            replicas=message.planned.replicas,
            certificate=PromiseCertificate.PLANNED,
        )
    return SoughtShape(
        component=message.component,
        shape=request_shape(message.request),
        decisions=tuple(message.decisions),
        planned=planned,
        echoed=message.echoed,
        promised=message.promised if message.HasField("promised") else None,
    )


def _interest_message(interest: Interest) -> agents_pb2.BindingInterest:
    message = agents_pb2.BindingInterest(
        binding=interest.binding,
        uid=interest.uid,
        shapes=[_sought_message(shape) for shape in interest.shapes],
    )
    if interest.owner is not None:
        api_version, kind, namespace, name = interest.owner
        message.owner.CopyFrom(
            resource_pb2.ObjectReference(
                api_version=api_version, kind=kind, namespace=namespace, name=name
            )
        )
    return message


def _sought_message(sought: SoughtShape) -> agents_pb2.SoughtShape:
    planned = None
    if sought.planned is not None:
        planned = agents_pb2.Share(
            component=sought.component,
            replicas=sought.planned.replicas,
            replica_requirements=requirements_to_message(sought.planned.requirements),
        )
    return agents_pb2.SoughtShape(
        component=sought.component,
        request=dict(sought.shape),
        decisions=sought.decisions,
        planned=planned,
        echoed=sought.echoed,
        promised=sought.promised,
    )
