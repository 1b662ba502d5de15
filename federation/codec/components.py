"""The components of a workload, from messages and back.

Must not know bindings: questions about sets of components have none.
"""

from __future__ import annotations

from collections.abc import Iterable

from federation.codec import ranges
from federation.codec.requirements import read_requirements, requirements_to_message
from federation.codec.violations import Violations
from federation.model.workload import Component
from federation.v1 import resource_pb2


def read_components(
    messages: Iterable[resource_pb2.Component], path: str, found: Violations
) -> tuple[Component, ...]:
    """The components; each needs a name of its own."""
    components = []
    for position, message in enumerate(messages):
        here = f"{path}[{position}]"
        components.append(
            Component(
                name=ranges.required(message.name, f"{here}.name", found),
                replicas=ranges.replicas(message.replicas, f"{here}.replicas", found),
                requirements=read_requirements(
                    message.replica_requirements, f"{here}.replicaRequirements", found
                ),
            )
        )
    ranges.distinct((each.name for each in components), path, found, field=".name")
    return tuple(components)


def component_messages(components: Iterable[Component]) -> list[resource_pb2.Component]:
    return [
        resource_pb2.Component(
            name=component.name,
            replicas=component.replicas,
            replica_requirements=requirements_to_message(component.requirements),
        )
        for component in components
    ]
