"""The components of a workload, from messages and back.

Must not know bindings: questions about sets of components have none.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from federation.codec import ranges
from federation.codec.remembered import Remembered
from federation.codec.requirements import read_requirements, requirements_to_message
from federation.codec.violations import Violations
from federation.model.workload import Component
from federation.v1 import resource_pb2


def read_components(
    messages: Sequence[resource_pb2.Component], path: str, found: Violations
) -> tuple[Component, ...]:
    """The components; each needs a name of its own."""
    if not messages:
        return ()
    components = tuple(
        _REMEMBERED.read(message, f"{path}[{position}]", found)
        for position, message in enumerate(messages)
    )
    ranges.distinct((each.name for each in components), path, found, field=".name")
    return components


def _read(message: resource_pb2.Component, path: str, found: Violations) -> Component:
    return Component(
        name=ranges.required(message.name, f"{path}.name", found),
        replicas=ranges.replicas(message.replicas, f"{path}.replicas", found),
        requirements=read_requirements(
            message.replica_requirements, f"{path}.replicaRequirements", found
        ),
    )


_REMEMBERED: Final = Remembered(_read)


def component_messages(components: Iterable[Component]) -> list[resource_pb2.Component]:
    return [
        resource_pb2.Component(
            name=component.name,
            replicas=component.replicas,
            replica_requirements=requirements_to_message(component.requirements),
        )
        for component in components
    ]
