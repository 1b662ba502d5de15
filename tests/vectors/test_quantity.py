"""Quantities as Kubernetes reads and prints them."""

from __future__ import annotations

from typing import Any

import pytest

from federation.model.quantity import QuantityError, parse_quantity
from federation.model.resources import MAX_AMOUNT
from tests.vectors.loading import for_each, read_lines

LINES = read_lines("quantity")

# Kubernetes converts negative numbers wrongly beside its fast path: it rounds towards zero and then
# adds one, or loses the high bits. Ours stay true, and no amount may be negative anyway.
MISREAD_NEGATIVES = {
    "-9223372036854775808",
    "-327402532429Ki",
    "-679046065104Mi",
    "-632498878224Ei",
    "-0.346177Gi",
    "-0.850049Pi",
    "-42.680Pi",
    "-24.16Ki",
}


def fits_int64(amount: int) -> bool:
    """Go's conversion wraps around beyond int64; ours keeps the true number, and refuses it."""
    return -MAX_AMOUNT - 1 <= amount <= MAX_AMOUNT


@for_each(LINES)
def test_quantity(line: dict[str, Any]) -> None:
    if not line["ok"]:
        with pytest.raises(QuantityError, match="is not a quantity"):
            parse_quantity(line["in"])
        return
    quantity = parse_quantity(line["in"])
    assert (quantity.nanos > 0) - (quantity.nanos < 0) == line["sign"]
    assert quantity.canonical() == line["canonical"]
    for ours, theirs in ((quantity.milli(), line["milli"]), (quantity.whole(), line["value"])):
        if fits_int64(ours) and line["in"] not in MISREAD_NEGATIVES:
            assert ours == theirs


def test_every_excuse_is_needed() -> None:
    for line in LINES:
        if line["in"] in MISREAD_NEGATIVES:
            quantity = parse_quantity(line["in"])
            assert (quantity.milli(), quantity.whole()) != (line["milli"], line["value"])
