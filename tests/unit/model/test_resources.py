"""Amounts by resource name: units, rounding, limits and how they are shown."""

from __future__ import annotations

import pytest

from federation.model.errors import InvalidRequest
from federation.model.quantity import QuantityError, parse_quantity
from federation.model.resources import (
    MAX_AMOUNT,
    amount_of,
    amounts_of,
    base_units_down,
    format_amount,
    is_countable,
    is_extended,
    is_qualified_name,
)


@pytest.mark.parametrize(
    ("name", "text", "amount"),
    [
        ("cpu", "500m", 500),
        ("cpu", "2", 2000),
        ("cpu", "0.0001", 1),
        ("memory", "1G", 10**9),
        ("memory", "1Gi", 2**30),
        ("memory", "107374182400m", 107_374_183),
        ("nvidia.com/gpu", "2", 2),
        ("memory", "9223372036854775807", MAX_AMOUNT),
    ],
)
def test_requests_round_up(name: str, text: str, amount: int) -> None:
    assert amount_of(name, text) == amount


def test_the_unit_follows_the_name_and_not_the_spelling() -> None:
    assert amount_of("memory", "1073741824") == amount_of("memory", "1Gi")
    assert amount_of("cpu", "1Ki") == 1024 * 1000


def test_what_is_there_rounds_down() -> None:
    assert base_units_down("memory", parse_quantity("1500m")) == 1
    assert base_units_down("cpu", parse_quantity("1999u")) == 1


@pytest.mark.parametrize(
    ("name", "text", "rule"),
    [
        ("memory", "9223372036854775808", "at most 9223372036854775807 units"),
        ("cpu", "9223372036854775807", "at most 9223372036854775807 millicores"),
        ("cpu", "-1m", "write at least 0"),
        ("cpu", "one", "is not a quantity"),
    ],
)
def test_a_refused_amount_names_the_rule(name: str, text: str, rule: str) -> None:
    with pytest.raises(QuantityError, match=rule):
        amount_of(name, text)


def test_every_violation_is_told_with_its_path() -> None:
    with pytest.raises(InvalidRequest) as refusal:
        amounts_of({"cpu": "-1", "memory": "1 Gi", "a b": "1", "pods": "3"}, field="request")
    assert [each.field for each in refusal.value.violations] == [
        "request[cpu]",
        "request[memory]",
        "request[a b]",
    ]


def test_amounts_keep_their_names() -> None:
    assert amounts_of({"cpu": "1", "pods": "3"}, field="request") == {"cpu": 1000, "pods": 3}


@pytest.mark.parametrize(
    ("name", "extended"),
    [
        ("nvidia.com/gpu", True),
        ("example.com/with_under.score", True),
        ("cpu", False),
        ("kubernetes.io/batch", False),
        ("requests.nvidia.com/gpu", False),
        ("/gpu", False),
        ("Example.com/gpu", False),
    ],
)
def test_extended_names(name: str, *, extended: bool) -> None:
    assert is_extended(name) is extended


@pytest.mark.parametrize(
    ("name", "qualified"),
    [
        ("cpu", True),
        ("a" * 63, True),
        ("a" * 64, False),
        ("", False),
        ("-a", False),
        ("a/b/c", False),
        (f"{'a.' * 126}a/x", True),
        (f"{'a.' * 127}a/x", False),
    ],
)
def test_qualified_names(name: str, *, qualified: bool) -> None:
    assert is_qualified_name(name) is qualified


def test_unprefixed_names_nobody_knows_are_not_counted() -> None:
    counted = ["cpu", "memory", "ephemeral-storage", "hugepages-2Mi", "attachable-volumes-csi",
               "nvidia.com/gpu", "batch.kubernetes.io/slots"]  # fmt: skip
    assert all(map(is_countable, counted))
    assert not any(map(is_countable, ["pods", "storage", "foo"]))


@pytest.mark.parametrize(
    ("name", "amount", "text"),
    [
        ("cpu", 500, "500m"),
        ("cpu", 2000, "2"),
        ("cpu", 0, "0"),
        ("memory", 20 << 30, "20Gi"),
        ("memory", 1536 << 20, "1536Mi"),
        ("memory", 1_000_000_001, "1000000001"),
        ("hugepages-2Mi", 1 << 30, "1Gi"),
        ("pods", 1024, "1024"),
        ("memory", -1024, "-1024"),
    ],
)
def test_amounts_are_shown_as_quantities(name: str, amount: int, text: str) -> None:
    assert format_amount(name, amount) == text
