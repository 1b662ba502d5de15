"""What the descriptors of protobuf do not say directly, nor their type stubs.

Must not know any message of fedsched.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, cast

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.timestamp_pb2 import Timestamp


def fields_of(descriptor: Any) -> Sequence[FieldDescriptor]:
    """The fields of a message, in the order they are declared."""
    return cast("Sequence[FieldDescriptor]", descriptor.fields)


@cache
def map_values(field: FieldDescriptor) -> FieldDescriptor | None:
    """The field that holds the values of a map; None when the field is no map."""
    entry = field.message_type
    if entry is None or not entry.GetOptions().map_entry:
        return None
    return entry.fields_by_name["value"]


@cache
def inner_message(field: FieldDescriptor) -> Descriptor | None:
    """The message in a field, or in its items; None for scalars, maps and timestamps."""
    inner = field.message_type
    if inner is None or inner.full_name == Timestamp.DESCRIPTOR.full_name:
        return None
    return None if map_values(field) else inner
