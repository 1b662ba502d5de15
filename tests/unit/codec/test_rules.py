"""Rules of the protos: ours say what protovalidate says, about messages that are nearly right."""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import StrEnum
from typing import Any

import protovalidate
import pytest
from google.protobuf import message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from hypothesis import given, settings
from hypothesis import strategies as st

from federation.codec.cross_field_rules import CROSS_FIELD_RULES
from federation.codec.descriptors import inner_message, map_values
from federation.codec.rights import FILES
from federation.codec.rules import SEPARATE, check_rules, has_rules, rules_of
from federation.codec.violations import Violations
from federation.model.cluster import TaintEffect
from federation.model.errors import InvalidRequest
from federation.model.placement import (
    Certificate,
    DivisionPreference,
    OnClusterLoss,
    OnClusterReturn,
    PreemptionPolicy,
    PurgeMode,
    SchedulingType,
    SpreadField,
    TieBreak,
)
from federation.model.workload import TolerationOperator
from federation.services.agent_values import Placer
from federation.v1 import resource_pb2, validate_pb2

VALIDATOR = protovalidate.Validator()
# Characters that forms treat apart, and words that closed sets hold.
TEXTS = st.one_of(
    st.text("aZ0-_./ \x1f", max_size=6),
    st.sampled_from(["", "a" * 48, "a" * 49, "a" * 64, "a" * 254, "A" * 64, "x/" + "a" * 63]),
    st.sampled_from(["Exists", "Equal", "NoExecute", "cluster", "Divided", "careful", "é"]),
    st.builds("{}/a".format, st.text("ab.", min_size=250, max_size=256)),
)
NUMBERS = st.sampled_from([-(2**31), -1, 0, 1, 2, 64, 1000, 1001, 2**31 - 1])


def messages_with_rules() -> Iterator[Descriptor]:
    seen = set[str]()

    def within(descriptor: Descriptor) -> Iterator[Descriptor]:
        if descriptor.full_name in seen:
            return
        seen.add(descriptor.full_name)
        yield descriptor
        for field in descriptor.fields:
            inner = inner_message(field)
            if inner is not None:
                yield from within(inner)

    for file in (*FILES, resource_pb2.DESCRIPTOR):
        for descriptor in file.message_types_by_name.values():
            yield from within(descriptor)


RULED = [
    descriptor
    for descriptor in messages_with_rules()
    if has_rules(descriptor) and (rules_of(descriptor).fields or rules_of(descriptor).cross_field)
]


def scalars(field: FieldDescriptor) -> st.SearchStrategy[Any]:
    if field.enum_type is not None:
        return st.sampled_from([0, 1, 2, 99])
    return {
        FieldDescriptor.CPPTYPE_STRING: TEXTS.map(
            lambda text: text.encode() if field.type == FieldDescriptor.TYPE_BYTES else text
        ),
        FieldDescriptor.CPPTYPE_BOOL: st.booleans(),
        FieldDescriptor.CPPTYPE_DOUBLE: st.sampled_from([-1.0, 0.0, 0.5, 1e12, float("nan")]),
    }.get(field.cpp_type, NUMBERS)


@st.composite
def messages(draw: st.DrawFn, descriptor: Descriptor, depth: int = 1) -> Message:
    message = message_factory.GetMessageClass(descriptor)()
    for field in descriptor.fields:
        if not draw(st.booleans()):
            continue
        inner, values = inner_message(field), map_values(field)
        if values is not None:
            if values.message_type is None:
                entries = st.dictionaries(TEXTS, scalars(values), max_size=2)
                getattr(message, field.name).update(draw(entries))
        elif inner is not None:
            if depth and field.is_repeated:
                items = draw(st.lists(messages(inner, depth - 1), max_size=2))
                getattr(message, field.name).extend(items)
            elif depth:
                getattr(message, field.name).CopyFrom(draw(messages(inner, depth - 1)))
        elif field.message_type is None and field.is_repeated:
            getattr(message, field.name).extend(draw(st.lists(scalars(field), max_size=2)))
        elif field.message_type is None:
            setattr(message, field.name, draw(scalars(field)))
    return message


def ours(message: Message) -> set[str]:
    violations = Violations()
    check_rules(message, "", violations)
    try:
        violations.check()
    except InvalidRequest as error:
        return {violation.field for violation in error.violations}
    return set()


def theirs(message: Message) -> set[str]:
    """Return the paths of protovalidate in our form, but for messages that are read apart."""
    paths = set()
    for violation in VALIDATOR.collect_violations(message):
        descriptor: Any = message.DESCRIPTOR
        path, is_separate = "", False
        elements = violation.proto.field.elements if violation.proto.field else ()
        for element in elements:
            is_separate = is_separate or (path != "" and descriptor.full_name in SEPARATE)
            field = descriptor.fields_by_name[element.field_name]
            path = f"{path}.{field.json_name}" if path else field.json_name
            if element.subscript is not None:
                path += f"[{element.subscript.value}]"
            descriptor = field.message_type
        if descriptor is not None and violation.proto.rule_id in CROSS_FIELD_RULES:
            is_separate = is_separate or (path != "" and descriptor.full_name in SEPARATE)
            for name in violation.proto.rule_id.split(".")[1:]:
                field = descriptor.fields_by_name[name]
                path = f"{path}.{field.json_name}" if path else field.json_name
                descriptor = field.message_type
        if not is_separate:
            paths.add(path)
    return paths


def fields_in(paths: set[str]) -> set[str]:
    """Return the paths without the item: one that is there twice is told under item or list."""
    return {re.sub(r"\[[^]]*\]$", "", path) for path in paths}


@pytest.mark.parametrize("descriptor", RULED, ids=lambda descriptor: str(descriptor.name))
@settings(max_examples=25)
@given(data=st.data())
def test_ours_find_what_protovalidate_finds(descriptor: Descriptor, data: st.DataObject) -> None:
    message = data.draw(messages(descriptor))
    assert fields_in(ours(message)) == fields_in(theirs(message))


def test_every_rule_of_the_protos_is_known() -> None:
    assert {"ResourceBindingSpec", "Placement", "Report"} <= {
        message_type.name for message_type in RULED
    }
    for descriptor in RULED:
        assert rules_of(descriptor)


@pytest.mark.parametrize(
    ("message", "field", "choices"),
    [
        ("ResourceBindingSpec", "certificate", Certificate),
        ("ResourceBindingSpec", "preemption_policy", PreemptionPolicy),
        ("ResourceBindingSpec", "on_cluster_loss", OnClusterLoss),
        ("ResourceBindingSpec", "on_cluster_return", OnClusterReturn),
        ("GracefulEvictionTask", "purge_mode", PurgeMode),
        ("Placement", "tie_break", TieBreak),
        ("SpreadConstraint", "spread_by_field", SpreadField),
        ("ReplicaSchedulingStrategy", "replica_scheduling_type", SchedulingType),
        ("ReplicaSchedulingStrategy", "replica_division_preference", DivisionPreference),
        ("Toleration", "operator", TolerationOperator),
        ("Toleration", "effect", TaintEffect),
        ("Taint", "effect", TaintEffect),
        ("Hello", "placer", Placer),
    ],
)
def test_words_of_the_protos_are_those_of_the_model(
    message: str, field: str, choices: type[StrEnum]
) -> None:
    (descriptor,) = (message_type for message_type in RULED if message_type.name == message)
    declared = descriptor.fields_by_name[field].GetOptions().Extensions[validate_pb2.field]
    words = set(getattr(declared.string, "in"))
    assert words - {""} == {choice.value for choice in choices}
