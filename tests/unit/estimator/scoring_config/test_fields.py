"""The strict decoder's readers."""

from __future__ import annotations

from typing import Any

import pytest

from estimator.scoring_config.fields import (
    Faults,
    Reader,
    boolean,
    duration,
    go_duration,
    int32,
    int64,
    list_of,
    number,
    string,
    struct,
)


def read(reader: Reader, value: object) -> tuple[Any, list[str]]:
    faults: Faults = []
    return reader(value, "at", faults), [fault.field for fault in faults]


@pytest.mark.parametrize(
    ("reader", "value", "expected"),
    [
        (string, "a", "a"),
        (boolean, True, True),
        (number, 1.5, 1.5),
        (int32, 2**31 - 1, 2**31 - 1),
        (int32, 3.0, 3),
        (int64, -(2**63), -(2**63)),
        (duration, "1m30s", 90_000_000_000),
        (list_of(int32), [1, 2], [1, 2]),
        (struct({"a": int32, "b": string}), {"a": 1, "b": None}, {"a": 1}),
    ],
)
def test_a_value_of_the_right_type_is_taken(reader: Reader, value: object, expected: Any) -> None:
    assert read(reader, value) == (expected, [])


@pytest.mark.parametrize(
    ("reader", "zero"),
    [
        (string, ""),
        (boolean, False),
        (number, 0.0),
        (int32, 0),
        (duration, 0),
        (list_of(int32), []),
        (struct({}), {}),
    ],
)
def test_null_is_the_zero_of_the_type(reader: Reader, zero: object) -> None:
    assert read(reader, None) == (zero, [])


@pytest.mark.parametrize(
    ("reader", "value", "path"),
    [
        (string, 1, "at"),
        (boolean, "true", "at"),
        (number, True, "at"),
        (int32, 2**31, "at"),
        (int32, "3", "at"),
        (int32, 1.5, "at"),
        (int32, float("inf"), "at"),
        (int64, True, "at"),
        (duration, 2, "at"),
        (duration, "2 s", "at"),
        (list_of(int32), {}, "at"),
        (list_of(int32), [1, "x"], "at[1]"),
        (struct({"a": int32}), [], "at"),
        (struct({"a": int32}), {"A": 1}, "at.A"),
        (struct({"a": struct({"b": int32})}), {"a": {"b": "x"}}, "at.a.b"),
    ],
)
def test_a_value_of_another_type_is_named(reader: Reader, value: object, path: str) -> None:
    assert read(reader, value)[1] == [path]


@pytest.mark.parametrize(
    ("text", "nanos"),
    [
        ("0", 0),
        ("-1.5h", -5_400_000_000_000),
        ("+3ms2us1ns", 3_002_001),
        (".5s", 500_000_000),
        ("7µs", 7_000),
        ("", None),
        ("1", None),
        ("s", None),
        ("1d", None),
        ("1s ", None),
    ],
)
def test_durations_are_written_as_in_go(text: str, nanos: int | None) -> None:
    assert go_duration(text) == nanos
