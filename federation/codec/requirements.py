"""What one replica asks for, and the components of a workload, from messages and back.

Must not read pod templates: ``federation.codec.pods`` does. Must not know bindings: questions about
sets of components have none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from federation.codec import ranges, selectors
from federation.codec.remembered import Remembered
from federation.codec.rules import check_rules
from federation.codec.violations import Violations, joined
from federation.model.errors import InvalidRequest
from federation.model.resources import amounts_of, format_amount
from federation.model.workload import Component, NodeClaim, ReplicaRequirements, shared_request
from federation.v1 import resource_pb2


def requirements_from_message(
    message: resource_pb2.ReplicaRequirements, path: str = "replicaRequirements"
) -> ReplicaRequirements:
    """The requirements; raises InvalidRequest with every broken rule, under ``path``."""
    found = Violations()
    requirements = read_requirements(message, path, found)
    found.check()
    return requirements


def read_requirements(
    message: resource_pb2.ReplicaRequirements, path: str, found: Violations
) -> ReplicaRequirements:
    """The requirements; one and the same value for equal messages."""
    return _REMEMBERED.read(message, path, found)


def _read(
    message: resource_pb2.ReplicaRequirements, path: str, found: Violations
) -> ReplicaRequirements:
    check_rules(message, path, found)
    amounts = {}
    # A rule refuses more of them.
    if len(message.resource_request) <= ranges.MAX_RESOURCES:
        amounts = read_amounts(message.resource_request, joined(path, "resourceRequest"), found)
    return ReplicaRequirements(
        request=shared_request(amounts),
        node_claim=_node_claim(message.node_claim, joined(path, "nodeClaim"), found)
        if message.HasField("node_claim")
        else None,
        namespace=message.namespace,
        priority_class_name=message.priority_class_name,
    )


_REMEMBERED: Final = Remembered(_read)


def read_amounts(quantities: Mapping[str, str], path: str, found: Violations) -> dict[str, int]:
    """Quantities as amounts in base units, rounded up; nothing when one of them is wrong."""
    try:
        return amounts_of(quantities, field=path)
    except InvalidRequest as error:
        found.extend(error.violations)
        return {}


def requirements_to_message(
    requirements: ReplicaRequirements,
) -> resource_pb2.ReplicaRequirements:
    claim = requirements.node_claim
    return resource_pb2.ReplicaRequirements(
        resource_request=quantities_of(requirements.request),
        node_claim=_node_claim_message(claim) if claim is not None else None,
        namespace=requirements.namespace,
        priority_class_name=requirements.priority_class_name,
    )


def quantities_of(amounts: Mapping[str, int]) -> dict[str, str]:
    """Amounts in base units as quantity texts."""
    return {name: format_amount(name, amount) for name, amount in amounts.items()}


def _node_claim(message: resource_pb2.NodeClaim, path: str, found: Violations) -> NodeClaim:
    terms = None
    if message.HasField("hard_node_affinity"):
        terms = selectors.node_terms(message.hard_node_affinity, f"{path}.hardNodeAffinity", found)
    return NodeClaim(
        node_selector=dict(message.node_selector),
        required_terms=terms,
        tolerations=selectors.tolerations(message.tolerations),
    )


def _node_claim_message(claim: NodeClaim) -> resource_pb2.NodeClaim:
    message = resource_pb2.NodeClaim(
        node_selector=claim.node_selector,
        tolerations=selectors.toleration_messages(claim.tolerations),
    )
    if claim.required_terms is not None:
        message.hard_node_affinity.SetInParent()
        for term in claim.required_terms:
            message.hard_node_affinity.node_selector_terms.add(
                match_expressions=selectors.requirement_messages(term.match_expressions),
                match_fields=selectors.requirement_messages(term.match_fields),
            )
    return message


def read_components(
    messages: Sequence[resource_pb2.Component], path: str, found: Violations
) -> tuple[Component, ...]:
    """The components; each needs a name of its own."""
    if not messages:
        return ()
    components = tuple(
        _COMPONENTS.read(message, f"{path}[{position}]", found)
        for position, message in enumerate(messages)
    )
    ranges.distinct((each.name for each in components), path, found, field=".name")
    return components


def _read_component(message: resource_pb2.Component, path: str, found: Violations) -> Component:
    check_rules(message, path, found)
    return Component(
        name=message.name,
        replicas=message.replicas,
        requirements=read_requirements(
            message.replica_requirements, f"{path}.replicaRequirements", found
        ),
    )


_COMPONENTS: Final = Remembered(_read_component)


def component_messages(components: Iterable[Component]) -> list[resource_pb2.Component]:
    return [
        resource_pb2.Component(
            name=component.name,
            replicas=component.replicas,
            replica_requirements=requirements_to_message(component.requirements),
        )
        for component in components
    ]
