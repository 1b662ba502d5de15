"""Row structs have the fields of their models, and keys that do not change."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import msgspec
import pytest

from federation.history import trace_rows
from federation.history.bodies import NewerBody, UnknownKey
from federation.history.report_rows import OutstandingRow
from federation.history.rows import Documents, Rows, plain_reason
from federation.model.placement import Binding
from federation.model.reservations import Outstanding
from federation.scheduler.decision import Decision
from tests.rows.filled_values import defaults_of, filled, is_named_tuple
from tests.rows.row_structs import ROWS

# Fields of the model that the table's columns hold.
IN_COLUMNS: Mapping[str, frozenset[str]] = {
    "BindingSpecRow": frozenset(
        [
            "namespace",
            "name",
            "uid",
            "generation",
            "resource_version",
            "clusters",
            "fresh",
            "last_scheduled_time",
            "observed_affinity",
            "stored_id",
            "expected_version",
        ]
    ),
    "ClusterSpecRow": frozenset(
        ["name", "uid", "generation", "resource_version", "api_enablements", "ready"]
    ),
}
# Specs are read together with the columns.
WHOLE: Mapping[str, Rows[Any, Any]] = {
    "BindingSpecRow": ROWS["BindingRow"],
    "ClusterSpecRow": ROWS["KeptClusterRow"],
}
# Traces hold arrays, which are compared and encoded otherwise.
TRACED: Mapping[str, Rows[Any, Any]] = {"DecisionRow": trace_rows.DECISIONS}
KEYS = Path(__file__).parents[2] / "rows" / "stored_keys.json"
BINDINGS: Any = ROWS["BindingRow"]
all_rows = pytest.mark.parametrize("rows", ROWS.values(), ids=ROWS)


def pairs(model: Any, row: Any, at: str) -> Iterator[tuple[Any, Any]]:
    """Yield each model type with its row struct, and refuse fields of other types."""
    if isinstance(row, type) and issubclass(row, msgspec.Struct):
        assert is_dataclass(model), f"{at}: {row.__name__} stands for {model}"
        yield model, row
        model_hints, row_hints = get_type_hints(model), get_type_hints(row)
        for name in (name for name in model_hints if name in row_hints):
            yield from pairs(model_hints[name], row_hints[name], f"{row.__name__}.{name}")
        return
    if is_named_tuple(model):
        # It is stored as an array: its fields have no names there.
        model = tuple[tuple(get_type_hints(model).values())]  # type: ignore[misc]  # made of hints
    assert not is_dataclass(model), f"{at}: {model} is stored by the names of its own fields"
    origin, arguments = get_origin(model), get_args(model)
    row_origin, row_arguments = get_origin(row), get_args(row)
    if origin in (Union, UnionType):
        assert row_origin in (Union, UnionType), f"{at}: {row}"
    elif isinstance(origin, type) and issubclass(origin, Mapping):
        assert row_origin is dict, f"{at}: {row}"
    else:
        assert row_origin is origin, f"{at}: {row}"
    if not arguments:
        assert row is model, f"{at}: {row} stands for {model}"
    for model_part, row_part in zip(arguments, row_arguments, strict=True):
        if model_part not in (NoneType, Ellipsis):
            yield from pairs(model_part, row_part, at)


PAIRS = {
    row: model
    for rows in (*ROWS.values(), *TRACED.values())
    for model, row in pairs(rows.model, rows.row, rows.row.__name__)
}


@pytest.mark.parametrize("row", PAIRS, ids=lambda row: row.__name__)
def test_a_row_struct_has_all_fields_of_its_model(row: type[msgspec.Struct]) -> None:
    names = {field.name for field in fields(PAIRS[row])} - IN_COLUMNS.get(row.__name__, frozenset())
    assert set(row.__struct_fields__) - {"v"} == names


def test_an_array_has_the_fields_of_its_named_tuple_in_their_order() -> None:
    assert OutstandingRow.__struct_fields__ == Outstanding._fields


def default_of(row: type[msgspec.Struct], name: str) -> object:
    (field,) = (field for field in msgspec.structs.fields(row) if field.name == name)
    if field.default is not msgspec.NODEFAULT:
        return field.default
    if field.default_factory is not msgspec.NODEFAULT:
        return field.default_factory()
    return MISSING


def written_when(row: type[msgspec.Struct], field: msgspec.structs.FieldInfo) -> str:
    """Say when a key is written: always, or only when the field is not at its default."""
    if field.required:
        return "required"
    default = default_of(row, field.name)
    is_omitted = field.default_factory in (dict, list) or (
        field.default is not msgspec.NODEFAULT
        and (
            default in (None, "", ())
            or isinstance(default, bool | Enum)
            or (type(default) is int and -5 <= default <= 256)
        )
    )
    return "unless default" if is_omitted else "always"


def test_stored_keys_stay_as_they_are() -> None:
    """A key is only added, and a new one is written only when its field is not at its default."""
    written = {
        row.__name__: {
            field.encode_name: written_when(row, field) for field in msgspec.structs.fields(row)
        }
        for row in sorted(PAIRS, key=lambda row: row.__name__)
    }
    stored = json.loads(KEYS.read_text(encoding="utf-8"))
    for name, keys in stored.items():
        assert written[name].items() >= keys.items()
    for name, keys in written.items():
        new = {key: when for key, when in keys.items() if key not in stored.get(name, {})}
        if name in stored:
            assert set(new.values()) <= {"unless default"}, f"releases before refuse {name} {new}"
    assert stored == written, f"add the new keys to {KEYS}: {json.dumps(written, indent=1)}"


@pytest.mark.parametrize("row", PAIRS, ids=lambda row: row.__name__)
def test_a_field_at_its_default_is_not_written(row: type[msgspec.Struct]) -> None:
    value = filled(PAIRS[row], only_required=True)
    packed = Rows(PAIRS[row], row, "values").pack(value)
    written = msgspec.json.encode(packed, enc_hook=trace_rows.plain_part_of)
    assert json.loads(written).keys() - set(required(PAIRS[row])) == {
        field.encode_name
        for field in msgspec.structs.fields(row)
        if written_when(row, field) != "unless default" and field.name not in required(PAIRS[row])
    }


def required(model: type) -> Iterator[str]:
    return (name for name, default in defaults_of(model).items() if default is MISSING)


def stored_value(rows: Rows[Any, Any], value: object) -> Any:
    """Return a value as builtins, with the columns of its table among the keys."""
    whole = WHOLE.get(rows.row.__name__)
    columns = msgspec.to_builtins(whole.pack(value)) if whole else {}
    return {**columns, **msgspec.to_builtins(rows.pack(value), enc_hook=plain_reason)}


@all_rows
def test_a_value_comes_back_as_it_was(rows: Rows[Any, Any]) -> None:
    value = filled(rows.model)
    reader = WHOLE.get(rows.row.__name__, rows)
    assert reader.read(stored_value(rows, value)) == value
    keys = {field.encode_name for field in msgspec.structs.fields(rows.row)}
    assert json.loads(rows.json(value)).keys() == keys
    (again,) = reader.read_all([stored_value(rows, value)])
    assert again == value


def test_a_decision_comes_back_as_it_was() -> None:
    decision = filled(Decision)
    packed = msgspec.json.encode(
        trace_rows.DECISIONS.pack(decision), enc_hook=trace_rows.plain_part_of
    )
    row = msgspec.json.decode(packed, type=trace_rows.DecisionRow, dec_hook=trace_rows.part_of)
    assert trace_rows.DECISIONS.unpack(row).to_plain() == decision.to_plain()


def edited_decision(name: str, part: object) -> Decision:
    """Return the decision that is read where one part of its stored trace is another one."""
    packed = msgspec.to_builtins(
        trace_rows.DECISIONS.pack(filled(Decision)), enc_hook=trace_rows.plain_part_of
    )
    *outer, last = name.split(".")
    holder = packed["trace"]
    for key in outer:
        holder = holder[key]
    if part is MISSING:
        del holder[last]
    else:
        holder[last] = part
    return trace_rows.DECISIONS.unpack(
        msgspec.convert(packed, trace_rows.DecisionRow, dec_hook=trace_rows.part_of)
    )


@pytest.mark.parametrize("part", [1, {"a": 1}, {"a": [2]}, "a", ["a"], [1 << 70], [[1], [2]]])
@pytest.mark.parametrize("name", ["inputs.available_c", "scoring.scores", "scoring", "trials"])
def test_a_damaged_part_of_a_trace_is_refused(name: str, part: object) -> None:
    if (name, part) == ("scoring.scores", {"a": [2]}):
        return
    with pytest.raises(msgspec.ValidationError):
        edited_decision(name, part)


def test_traces_of_before_lack_triggers_and_limits() -> None:
    assert edited_decision("triggers", MISSING).trace.triggers == ()
    assert edited_decision("division.limit_k", MISSING).trace.division.limit_c[0] == 0


def is_map(stored: dict[Any, Any]) -> bool:
    """Say whether keys are values themselves: those of filled maps are numbers, or `key`."""
    return stored.keys() == {"key"} or any(isinstance(key, int) for key in stored)


def places(stored: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield all objects that row structs stand for, and where they are; maps are none."""
    if isinstance(stored, list | tuple):
        for number, part in enumerate(stored):
            yield from places(part, f"{path}[{number}]")
    elif isinstance(stored, dict) and not is_map(stored):
        yield path, stored
        for name, part in stored.items():
            yield from places(part, f"{path}.{name}" if path else name)


@all_rows
def test_an_unknown_key_is_refused_wherever_it_is(rows: Rows[Any, Any]) -> None:
    value = filled(rows.model)
    reader = WHOLE.get(rows.row.__name__, rows)
    for path, _ in places(stored_value(rows, value)):
        stored = stored_value(rows, value)
        dict(places(stored))[path]["colour"] = {"deep": [1]}
        key = f"{path}.colour" if path else "colour"
        with pytest.raises(
            UnknownKey, match=re.escape(f"{rows.kind} with the key {key!r}")
        ) as error:
            reader.read(stored)
        assert error.value.reason == "SCHEMA_AHEAD"


def test_an_unknown_word_is_refused_by_name() -> None:
    stored = json.loads(BINDINGS.json(filled(Binding)))
    stored["placement"]["tie_break"] = "coin"
    with pytest.raises(
        UnknownKey, match=r"binding 'a/b' with the value 'coin' of 'placement.tie_break'"
    ):
        BINDINGS.read(stored, "binding 'a/b'")


def test_what_is_damaged_is_of_no_newer_release() -> None:
    with pytest.raises(msgspec.ValidationError, match="replicas"):
        BINDINGS.read({"name": "a", "replicas": "four"})


@all_rows
def test_a_newer_version_is_refused(rows: Rows[Any, Any]) -> None:
    if not isinstance(rows, Documents):
        return
    stored = {"v": rows.row.newest + 1, "replicas": ["of another type"]}
    with pytest.raises(NewerBody, match=f"{rows.kind} of version 2, .* version 1 and older"):
        rows.read(stored)


def test_a_document_is_written_in_the_newest_version() -> None:
    class NewRow(BINDINGS.row, frozen=True):
        newest = 2

    new = Documents(Binding, NewRow, "bindings")
    packed = new.builtins(filled(Binding))
    assert packed["v"] == 2
    assert new.read(packed) == filled(Binding)
    assert new.read({**packed, "v": 1}) == filled(Binding)
    with pytest.raises(NewerBody):
        BINDINGS.read(packed)
