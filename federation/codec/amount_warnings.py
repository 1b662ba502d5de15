"""Warnings about requests that are valid and probably mean something else.

Must not refuse anything, nor know which object holds the requests.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from federation.model.quantity import (
    NANOS_PER_UNIT,
    Quantity,
    QuantityError,
    divide_up,
    parse_quantity,
)
from federation.model.readable import counted
from federation.model.resources import CPU, PODS, counts_bytes, is_countable

_NAMES: Final = "cpu, memory, ephemeral-storage, hugepages-SIZE or a name with a prefix"


def amount_warnings(quantities: Mapping[str, str], path: str) -> Iterator[str]:
    """Yield a sentence for each fraction, and for each name that no node reports."""
    for name, text in quantities.items():
        here = f"{path}[{name}]"
        if not is_countable(name) and name != PODS:
            yield f"{here}: no node reports a resource of this name; names are {_NAMES}"
        yield from fraction_warnings(name, text, here)


def fraction_warnings(name: str, text: str, path: str) -> Iterator[str]:
    """Yield a sentence where an amount is a fraction of something that has no fractions."""
    quantity = _quantity(text)
    if name == CPU or quantity is None or not quantity.nanos % NANOS_PER_UNIT:
        return
    amount = divide_up(quantity.nanos, NANOS_PER_UNIT)
    whole = counted(amount, "byte") if counts_bytes(name) else str(amount)
    yield f"{path}: {text} is a fraction and counts as {whole}"


def _quantity(text: str) -> Quantity | None:
    try:
        return parse_quantity(text)
    except QuantityError:
        return None
