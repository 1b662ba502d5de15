"""Messages of any type with fields that are hard to take."""

from __future__ import annotations

import random
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

# By how a field's name ends: what it could be.
PLAUSIBLE = {
    "kind": ("Deployment", "Job"),
    "api_version": ("apps/v1", "batch/v1"),
    "operator": ("In", "NotIn", "Exists", "DoesNotExist", "Equal", "Gt", "Lt"),
    "effect": ("NoSchedule", "NoExecute", "PreferNoSchedule"),
    "replica_scheduling_type": ("Divided", "Duplicated"),
    "replica_division_preference": ("Weighted", "Aggregated"),
    "spread_by_field": ("cluster", "region", "zone", "provider"),
    "dynamic_weight": ("AvailableReplicas",),
    "scheduler_name": ("", "default-scheduler"),
    "resource_request": ("500m", "1", "1Gi", "2"),
}
NAMES = ("web", "shop", "member1", "cpu", "memory", "a-1", "1")
TEXTS = (
    *("", "-1", "1e99", "9" * 30 + "Ei", "NaN", "A" * 254, "\u00e9", "\u202e", "\x1b[31m", "a\nb"),
    *("../..", "'; --", "<script>", "%n", "*", "/", "a/b/c", "nvidia.com/gpu", "{}", "\x00"),
)
SMALL = (0, 1, 2, 3, 10)
NUMBERS = (-1, 1000, 2**31 - 1, -(2**31), 2**32, 2**63 - 1, -(2**63), 2**64 - 1)
FLOATS = (-1.0, 0.1, 1e308, float("inf"), float("-inf"), float("nan"), 5e-324)
DEPTH = 7
WIDTHS = {
    FieldDescriptor.CPPTYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.CPPTYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, 2**64 - 1),
    FieldDescriptor.CPPTYPE_ENUM: (-(2**31), 2**31 - 1),
}
REALS = (FieldDescriptor.CPPTYPE_FLOAT, FieldDescriptor.CPPTYPE_DOUBLE)


class Filler:
    """Fills messages: some with a few fields that could be, some with many that could not."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._density = chance.choice([0.05, 0.15, 0.3, 0.5])
        self._hostility = chance.choice([0.0, 0.02, 0.1, 0.5])

    def filled(self, descriptor: Descriptor, depth: int = DEPTH) -> Message:
        """A new message of a type."""
        message: Message = GetMessageClass(descriptor)()
        for field in descriptor.fields:
            if self._chance.random() < self._density and (field.message_type is None or depth):
                self._fill(message, field, depth - 1)
        return message

    def _fill(self, message: Any, field: Any, depth: int) -> None:
        inner = field.message_type
        if inner is not None and inner.GetOptions().map_entry:
            self._fill_map(getattr(message, field.name), field, depth)
        elif field.is_repeated:
            for _ in range(self._chance.choice([1, 1, 2, 7])):
                value = self._plain(field) if inner is None else self.filled(inner, depth)
                getattr(message, field.name).append(value)
        elif inner is not None:
            getattr(message, field.name).CopyFrom(self.filled(inner, depth))
        else:
            setattr(message, field.name, self._plain(field))

    def _fill_map(self, entries: Any, field: Any, depth: int) -> None:
        value = field.message_type.fields_by_name["value"]
        for _ in range(self._chance.choice([1, 2, 5])):
            key = self._plain(field.message_type.fields_by_name["key"])
            if value.message_type is None:
                entries[key] = self._plain(value, field.name)
            else:
                entries[key].CopyFrom(self.filled(value.message_type, depth))

    def _plain(self, field: Any, name: str = "") -> Any:
        chance, is_hostile = self._chance, self._chance.random() < self._hostility
        if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
            return chance.random() < 0.5
        if field.cpp_type in REALS:
            return chance.choice(FLOATS if is_hostile else (0.0, 1.0, 30.0))
        if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
            return chance.choice(TEXTS if is_hostile else PLAUSIBLE.get(name or field.name, NAMES))
        if field.type == FieldDescriptor.TYPE_BYTES:
            return chance.randbytes(chance.choice([0, 1, 16, 300]))
        if field.cpp_type == FieldDescriptor.CPPTYPE_ENUM and not is_hostile:
            return chance.choice(field.enum_type.values).number
        least, most = WIDTHS[field.cpp_type]
        numbers = NUMBERS if is_hostile else SMALL
        return chance.choice([number for number in numbers if least <= number <= most])
