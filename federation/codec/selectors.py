"""Label, field and node selectors, tolerations and taints, from messages and back.

Must not match anything: ``federation.model.selectors`` does.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from federation.codec import ranges
from federation.codec.timestamps import timestamp_from_seconds
from federation.codec.violations import Violations
from federation.model.cluster import Taint, TaintEffect
from federation.model.workload import (
    NodeSelectorTerm,
    Operator,
    Requirement,
    Toleration,
    TolerationOperator,
)
from federation.v1 import resource_pb2

_INTEGER: Final = re.compile(r"[-+]?[0-9]{1,19}", re.ASCII)

_LABEL_OPERATORS: Final = (
    Operator.IN,
    Operator.NOT_IN,
    Operator.EXISTS,
    Operator.DOES_NOT_EXIST,
)
_SET_OPERATORS: Final = (Operator.IN, Operator.NOT_IN)
CLUSTER_FIELDS: Final = ("provider", "region", "zone")
_NODE_FIELDS: Final = ("metadata.name",)

_Requirements = Iterable[resource_pb2.SelectorRequirement]


def label_requirements(
    messages: _Requirements, path: str, found: Violations
) -> tuple[Requirement, ...]:
    """Expressions over labels of objects and clusters."""
    return _requirements(messages, path, found, operators=_LABEL_OPERATORS)


def cluster_field_requirements(
    messages: _Requirements, path: str, found: Violations
) -> tuple[Requirement, ...]:
    """Expressions over a cluster's provider, region and zone."""
    return _requirements(messages, path, found, operators=_SET_OPERATORS, keys=CLUSTER_FIELDS)


def node_terms(
    selector: resource_pb2.NodeSelector, path: str, found: Violations
) -> tuple[NodeSelectorTerm, ...]:
    """The terms of a required node affinity."""
    terms = []
    for position, term in enumerate(selector.node_selector_terms):
        here = f"{path}.nodeSelectorTerms[{position}]"
        expressions = _requirements(
            term.match_expressions, f"{here}.matchExpressions", found, operators=tuple(Operator)
        )
        fields = _requirements(
            term.match_fields,
            f"{here}.matchFields",
            found,
            operators=_SET_OPERATORS,
            keys=_NODE_FIELDS,
        )
        terms.append(NodeSelectorTerm(match_expressions=expressions, match_fields=fields))
    return tuple(terms)


def tolerations(messages: Iterable[resource_pb2.Toleration]) -> tuple[Toleration, ...]:
    return tuple(map(_toleration, messages))


def taints(
    messages: Iterable[resource_pb2.Taint], path: str, found: Violations
) -> tuple[Taint, ...]:
    """Taints whose rules were checked; two of one key and effect are refused here."""
    read = tuple(
        Taint(
            key=message.key,
            value=message.value,
            effect=ranges.choice(message.effect, TaintEffect, default=TaintEffect.NO_SCHEDULE),
            time_added=ranges.optional_seconds(
                message, "time_added", f"{path}[{position}].timeAdded", found
            ),
        )
        for position, message in enumerate(messages)
    )
    ranges.distinct((f"{taint.key}:{taint.effect}" for taint in read), path, found)
    return read


def requirement_messages(
    requirements: Iterable[Requirement],
) -> list[resource_pb2.SelectorRequirement]:
    return [
        resource_pb2.SelectorRequirement(
            key=each.key, operator=each.operator.value, values=each.values
        )
        for each in requirements
    ]


def toleration_messages(read: Iterable[Toleration]) -> list[resource_pb2.Toleration]:
    return [
        resource_pb2.Toleration(
            key=each.key,
            operator=each.operator.value,
            value=each.value,
            effect=each.effect or "",
            toleration_seconds=each.toleration_seconds,
        )
        for each in read
    ]


def taint_messages(read: Iterable[Taint]) -> list[resource_pb2.Taint]:
    return [
        resource_pb2.Taint(
            key=each.key,
            value=each.value,
            effect=each.effect.value,
            time_added=None if each.time_added is None else timestamp_from_seconds(each.time_added),
        )
        for each in read
    ]


def label_selector_message(
    labels: Mapping[str, str], expressions: Iterable[Requirement]
) -> resource_pb2.LabelSelector | None:
    """The selector, or None when it says nothing."""
    written = requirement_messages(expressions)
    if not labels and not written:
        return None
    return resource_pb2.LabelSelector(match_labels=labels, match_expressions=written)


def _requirements(
    messages: _Requirements,
    path: str,
    found: Violations,
    *,
    operators: tuple[Operator, ...],
    keys: tuple[str, ...] = (),
) -> tuple[Requirement, ...]:
    """Requirements whose operator is one of ``operators`` and, if given, whose key of ``keys``."""
    read = []
    for position, message in enumerate(messages):
        here = f"{path}[{position}]"
        operator = next((each for each in operators if each == message.operator), None)
        if operator is None:
            choices = ", ".join(operators)
            found.add(f"{here}.operator", f"must be one of {choices}, not {message.operator!r}")
            continue
        ranges.required(message.key, f"{here}.key", found)
        if message.key and keys and message.key not in keys:
            found.add(f"{here}.key", f"must be one of {', '.join(keys)}, not {message.key!r}")
        values = tuple(message.values)
        _check_values(operator, values, f"{here}.values", found)
        read.append(Requirement(key=message.key, operator=operator, values=values))
    return tuple(read)


def _check_values(
    operator: Operator, values: tuple[str, ...], path: str, found: Violations
) -> None:
    if operator in _SET_OPERATORS and not values:
        found.add(path, f"{operator} needs at least one value")
    elif operator in (Operator.EXISTS, Operator.DOES_NOT_EXIST) and values:
        found.add(path, f"{operator} takes no values")
    elif operator in (Operator.GT, Operator.LT) and not (
        len(values) == 1 and _INTEGER.fullmatch(values[0])
    ):
        found.add(path, f"{operator} takes exactly one whole number")


def _toleration(message: resource_pb2.Toleration) -> Toleration:
    return Toleration(
        key=message.key,
        operator=ranges.choice(
            message.operator, TolerationOperator, default=TolerationOperator.EQUAL
        ),
        value=message.value,
        effect=ranges.optional_choice(message.effect, TaintEffect),
        toleration_seconds=message.toleration_seconds
        if message.HasField("toleration_seconds")
        else None,
    )
