"""Messages to documents, in the spelling people know from Kubernetes: integers stay numbers.

Must not leave out a number that is an answer, even when it is zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from google.protobuf.descriptor import EnumDescriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from federation.codec.descriptors import fields_of, map_values

# Fields that are written even when they are zero, by message.
_ALWAYS: Final[Mapping[str, frozenset[str]]] = {
    "AgentStatus": frozenset({"connected"}),
    "AllocatableModeling": frozenset({"grade", "count"}),
    "ClusterLimit": frozenset({"min"}),
    "ClusterTrace": frozenset(
        {
            "score",
            "availableReplicas",
            "selected",
            "previousReplicas",
            "weight",
            "quota",
            "replicas",
            "tier",
        }
    ),
    "Component": frozenset({"replicas"}),
    "Decision": frozenset({"clusters", "remainder"}),
    "GracefulEvictionTask": frozenset({"replicas"}),
    "NodePlacement": frozenset({"unplaced"}),
    "NodeSummary": frozenset({"totalNum", "readyNum"}),
    "PlacedReplicas": frozenset({"replicas", "score"}),
    "Reservation": frozenset({"replicas", "outstanding", "bound", "unbound", "finished"}),
    "ResourceBindingSpec": frozenset({"replicas"}),
    "ResourceModel": frozenset({"grade"}),
    "SchedulePriority": frozenset({"priority"}),
    "StaticClusterWeight": frozenset({"weight"}),
    "TargetCluster": frozenset({"replicas"}),
    "TargetComponent": frozenset({"replicas"}),
}
# Outcomes are written SCHEDULED; sources and bounds as the options that ask for them: models.
_UPPER_CASE: Final = frozenset({"Outcome"})


def document_from_message(message: Message) -> dict[str, Any]:
    """The document a message stands for, fields in the order of the message."""
    always = _ALWAYS.get(message.DESCRIPTOR.name, frozenset())
    document: dict[str, Any] = {}
    for field in fields_of(message.DESCRIPTOR):
        value = getattr(message, field.name)
        if _is_written(message, field, value) or field.json_name in always:
            document[field.json_name] = _written(field, value)
    return document


def enum_word(enum: EnumDescriptor, number: int) -> str:
    """The word for an enum's value, without the prefix its names share; empty when unspecified."""
    if not number:
        return ""
    value = enum.values_by_number.get(number)
    if value is None:
        return str(number)
    prefix = enum.values_by_number[0].name.removesuffix("UNSPECIFIED")
    word = value.name.removeprefix(prefix)
    return word if enum.name in _UPPER_CASE else word.lower()


def _is_written(message: Message, field: FieldDescriptor, value: Any) -> bool:
    if field.has_presence:
        return message.HasField(field.name)
    return bool(value)


def _written(field: FieldDescriptor, value: Any) -> Any:
    values = map_values(field)
    if values is not None:
        return {key: _one(values, value[key]) for key in sorted(value)}
    if field.is_repeated:
        return [_one(field, each) for each in value]
    return _one(field, value)


def _one(field: FieldDescriptor, value: Any) -> Any:
    if isinstance(value, Timestamp):
        return value.ToJsonString()
    if isinstance(value, Message):
        return document_from_message(value)
    if field.enum_type is not None:
        return enum_word(field.enum_type, value)
    if isinstance(value, bytes):
        # Hashes, as people compare them.
        return value.hex()
    return value
