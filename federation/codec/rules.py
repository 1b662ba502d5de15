"""Rules of the protos (buf.validate), compiled for each message and evaluated with our paths.

Must not know a message of fedsched: rules between fields are looked up by their ids.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any, Final, NamedTuple

from google.protobuf import message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from federation.codec.cross_field_rules import CROSS_FIELD_RULES
from federation.codec.descriptors import fields_of, inner_message
from federation.codec.value_rules import ValueRule, shown, value_rules
from federation.codec.violations import Violations, joined
from federation.v1 import validate_pb2

# A list or a map with more wrong entries would only repeat what is wrong.
MAX_FOUND: Final = 100
MAX_FOUND_IN_MAP: Final = 16
# Readers of these messages check them: one that was read before is not looked at again, and what no
# rule can say is found in the same answer.
SEPARATE: Final = frozenset(
    f"federation.v1.{name}"
    for name in (
        *("Cluster", "Component", "EstimateComponentSetsRequest", "EstimateReplicasRequest"),
        *("NodePools", "PackableCapacity", "Placement", "Quota"),
        *("ReplicaRequirements", "ResourceBinding", "Sight"),
    )
)


class FieldCheck(NamedTuple):
    """The rules of one field; ``find`` is called for a value that does not pass."""

    name: str
    json_name: str
    has_presence: bool
    is_required: bool
    passes: Callable[[Any], bool]
    find: Callable[[Any, str, Violations], None]


class RuledPart(NamedTuple):
    """A field with messages that have rules themselves."""

    name: str
    json_name: str
    is_list: bool
    max_items: int
    message: Descriptor


class CrossFieldRule(NamedTuple):
    """A rule between the fields of a message, told under the field that it names."""

    passes: Callable[[Any], bool]
    path: str
    sentence: str


class MessageRules(NamedTuple):
    """The rules of a message; ``passes`` tells whether all hold, without a path."""

    passes: Callable[[Any], bool]
    fields: tuple[FieldCheck, ...]
    parts: tuple[RuledPart, ...]
    cross_field: tuple[CrossFieldRule, ...]


def check_rules(message: Message, path: str, violations: Violations) -> None:
    """Find the broken rules of a message and of all in it, but for messages of SEPARATE."""
    rules = rules_of(message.DESCRIPTOR)
    if not rules.passes(message):
        _check(message, rules, path, violations)


def _check(message: Any, rules: MessageRules, path: str, violations: Violations) -> None:
    for check in rules.fields:
        if check.has_presence and not message.HasField(check.name):
            if check.is_required:
                violations.add(joined(path, check.json_name), "is required")
            continue
        value = getattr(message, check.name)
        if not check.passes(value):
            check.find(value, joined(path, check.json_name), violations)
    for part in rules.parts:
        if part.is_list:
            values = getattr(message, part.name)
            if values and len(values) <= part.max_items:
                _check_list(values, part, joined(path, part.json_name), violations)
        elif message.HasField(part.name):
            inner = rules_of(part.message)
            _check(getattr(message, part.name), inner, joined(path, part.json_name), violations)
    for rule in rules.cross_field:
        if not rule.passes(message):
            violations.add(joined(path, rule.path), rule.sentence)


def _check_list(values: Iterable[Any], part: RuledPart, path: str, violations: Violations) -> None:
    rules, count_before = rules_of(part.message), len(violations)
    for position, value in enumerate(values):
        _check(value, rules, f"{path}[{position}]", violations)
        if len(violations) >= count_before + MAX_FOUND:
            return


@cache
def rules_of(descriptor: Descriptor) -> MessageRules:
    """Return the compiled rules of a message. Raises ValueError for a rule that is not known."""
    declared = descriptor.GetOptions().Extensions[validate_pb2.message]
    fields = fields_of(descriptor)
    checks = tuple(filter(None, map(_field_check, fields)))
    parts = tuple(filter(None, map(_part, fields)))
    cross_field = tuple(_cross_field(rule, descriptor) for rule in declared.cel)
    passes = _compiled(checks, parts, cross_field, descriptor)
    return MessageRules(passes, checks, parts, cross_field)


def _compiled(
    checks: Iterable[FieldCheck],
    parts: Iterable[RuledPart],
    cross_field: Iterable[CrossFieldRule],
    descriptor: Descriptor,
) -> Callable[[Any], bool]:
    """Return one function of all rules: nearly all messages pass, and most fields are not set."""
    names: dict[str, Any] = {}
    terms = []
    zero = message_factory.GetMessageClass(descriptor)()
    for check in checks:
        names[f"check_{check.name}"] = check.passes
        value, test = f"m.{check.name}", f"check_{check.name}"
        if check.has_presence:
            terms.append(
                f"({test}({value}) if m.HasField('{check.name}') else {not check.is_required})"
            )
        elif check.passes(getattr(zero, check.name)):
            terms.append(f"(not (v := {value}) or {test}(v))")
        else:
            terms.append(f"{test}({value})")
    for part in parts:
        names[f"part_{part.name}"] = rules_of(part.message).passes
        value, test = f"m.{part.name}", f"part_{part.name}"
        if part.is_list:
            terms.append(f"(not (v := {value}) or all(map({test}, v)))")
        else:
            terms.append(f"(not m.HasField('{part.name}') or {test}({value}))")
    for position, rule in enumerate(cross_field):
        names[f"rule_{position}"] = rule.passes
        terms.append(f"rule_{position}(m)")
    source = f"def passes(m):\n    return {' and '.join(terms) or True}\n"
    exec(source, names)  # noqa: S102 - the source holds names of fields, and nothing else
    passes: Callable[[Any], bool] = names["passes"]
    return passes


def has_rules(descriptor: Descriptor, seen: frozenset[str] = frozenset()) -> bool:
    """Tell whether a message or one in it has a rule."""
    if descriptor.full_name in seen:
        return False
    if descriptor.GetOptions().Extensions[validate_pb2.message].cel:
        return True
    within = seen | {descriptor.full_name}
    return any(
        _declared(field).ByteSize()
        or ((inner := inner_message(field)) is not None and has_rules(inner, within))
        for field in fields_of(descriptor)
    )


def _declared(field: FieldDescriptor) -> validate_pb2.FieldRules:
    declared: validate_pb2.FieldRules = field.GetOptions().Extensions[validate_pb2.field]
    return declared


def _part(field: FieldDescriptor) -> RuledPart | None:
    inner = inner_message(field)
    if inner is None or inner.full_name in SEPARATE or not has_rules(inner):
        return None
    max_items = _declared(field).repeated.max_items or sys.maxsize
    return RuledPart(field.name, field.json_name, field.is_repeated, max_items, inner)


def _cross_field(rule: validate_pb2.Rule, descriptor: Descriptor) -> CrossFieldRule:
    """A rule's id ends with the path of the field under which it is told."""
    place = ""
    message: Descriptor | None = descriptor
    for name in rule.id.split(".")[1:]:
        if message is None:
            raise ValueError(f"{rule.id} names no field of {descriptor.full_name}")
        field = message.fields_by_name[name]
        place, message = joined(place, field.json_name), field.message_type
    return CrossFieldRule(CROSS_FIELD_RULES[rule.id], place, rule.message)


def _field_check(field: FieldDescriptor) -> FieldCheck | None:
    declared = _declared(field)
    kind = declared.WhichOneof("type")
    if kind is None and not declared.required:
        return None
    is_message = field.message_type is not None and not field.is_repeated
    if kind == "repeated":
        passes, find = _list_check(declared.repeated)
    elif kind == "map":
        passes, find = _map_check(declared.map)
    else:
        passes, find = _single_check(() if kind is None else value_rules(declared, field))
    if declared.ignore == validate_pb2.IGNORE_IF_ZERO_VALUE:
        passes = _or_zero(passes)
    elif declared.required and not field.has_presence:
        passes, find = _and_not_zero(passes, find)
    return FieldCheck(
        name=field.name,
        json_name=field.json_name,
        has_presence=field.has_presence,
        is_required=declared.required,
        passes=(lambda _: True) if is_message else passes,
        find=find,
    )


_Check = tuple[Callable[[Any], bool], Callable[[Any, str, Violations], None]]


def _or_zero(passes: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: not value or passes(value)


def _and_not_zero(
    passes: Callable[[Any], bool], find: Callable[[Any, str, Violations], None]
) -> _Check:
    def find_required(value: Any, path: str, violations: Violations) -> None:
        if value:
            find(value, path, violations)
        else:
            violations.add(path, "is required")

    return lambda value: bool(value) and passes(value), find_required


def _single_check(rules: Iterable[ValueRule]) -> _Check:
    tests = tuple(rules)

    def find(value: Any, path: str, violations: Violations) -> None:
        for rule in tests:
            if not rule.passes(value):
                violations.add(path, rule.sentence(value))

    if len(tests) == 1:
        return tests[0].passes, find
    return lambda value: all(rule.passes(value) for rule in tests), find


def _list_check(declared: validate_pb2.RepeatedRules) -> _Check:
    lengths, is_unique = tuple(_length_rules(declared)), declared.unique
    items = tuple(value_rules(declared.items, None))
    is_fine, find_item = _single_check(items)
    if declared.items.ignore == validate_pb2.IGNORE_IF_ZERO_VALUE:
        is_fine = _or_zero(is_fine)

    has_length, _ = _single_check(lengths)

    def passes(values: Any) -> bool:
        return (
            has_length(values)
            and all(map(is_fine, values))
            and not (is_unique and len(set(values)) < len(values))
        )

    def find(values: Any, path: str, violations: Violations) -> None:
        for rule in lengths:
            if not rule.passes(values):
                violations.add(path, rule.sentence(values))
                return
        earlier = set()
        for position, value in enumerate(values):
            if items and not is_fine(value):
                find_item(value, f"{path}[{position}]", violations)
            elif is_unique and value in earlier:
                violations.add(f"{path}[{position}]", f"{value!r} is there already")
            earlier.add(value)

    return (passes if items or is_unique else has_length), find


def _map_check(declared: validate_pb2.MapRules) -> _Check:
    lengths = tuple(_length_rules(declared))
    key_passes, find_key = _single_check(value_rules(declared.keys, None))
    value_passes, find_value = _single_check(value_rules(declared.values, None))

    has_length, _ = _single_check(lengths)
    has_entry_rules = declared.HasField("keys") or declared.HasField("values")

    def passes(entries: Mapping[str, Any]) -> bool:
        return has_length(entries) and all(
            key_passes(key) and value_passes(value) for key, value in entries.items()
        )

    def find(entries: Mapping[str, Any], path: str, violations: Violations) -> None:
        for rule in lengths:
            if not rule.passes(entries):
                violations.add(path, rule.sentence(entries))
                return
        count_before = len(violations)
        for key, value in entries.items():
            find_key(key, f"{path}[{shown(key)}]", violations)
            find_value(value, f"{path}[{shown(key)}]", violations)
            if len(violations) >= count_before + MAX_FOUND_IN_MAP:
                return

    return (passes if has_entry_rules else has_length), find


def _length_rules(declared: Any) -> Iterable[ValueRule]:
    for rule, limit in declared.ListFields():
        if rule.name in {"max_items", "max_pairs"}:
            yield ValueRule(*_at_most(limit))
        elif rule.name in {"min_items", "min_pairs"}:
            yield ValueRule(*_at_least(limit))
        elif rule.name not in {"items", "keys", "values", "unique"}:
            raise ValueError(f"{rule.full_name} is not known here")


def _at_most(limit: int) -> tuple[Callable[[Any], bool], Callable[[Any], str]]:
    return (
        lambda values: len(values) <= limit,
        lambda values: f"holds {len(values)}: at most {limit} are looked at",
    )


def _at_least(limit: int) -> tuple[Callable[[Any], bool], Callable[[Any], str]]:
    return (
        lambda values: len(values) >= limit,
        lambda values: f"must hold at least {limit}, not {len(values)}",
    )
