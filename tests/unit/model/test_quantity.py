"""Quantities: what is read, what is refused, how sizes are rounded and written."""

from __future__ import annotations

import pytest

from federation.model.quantity import QuantityError, parse_quantity


@pytest.mark.parametrize(
    "text",
    [
        "", " ", "1 Gi", "1gi", "1KI", "1K", "1mi", "1,5", "1e", "1e1.5", "1Gi3", "--1", "1..2",
        "∞", "\N{ARABIC-INDIC DIGIT ONE}", "1\n", "1" * 257,
    ],
)  # fmt: skip
def test_what_is_no_quantity_is_refused(text: str) -> None:
    with pytest.raises(QuantityError, match="is not a quantity: write digits"):
        parse_quantity(text)


def test_a_refusal_quotes_the_rule_and_a_line_of_the_text() -> None:
    with pytest.raises(QuantityError, match=r"^'1 Gi' is not a quantity: .*\"Gi\""):
        parse_quantity("1 Gi")
    with pytest.raises(QuantityError) as refusal:
        parse_quantity("x" * 100_000)
    assert len(str(refusal.value)) < 400


def test_an_absurd_exponent_costs_nothing() -> None:
    assert parse_quantity("1e999999999999").whole() > 2**63
