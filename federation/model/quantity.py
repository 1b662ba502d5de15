"""Kubernetes quantity strings ("500m", "1.5Gi", "2e3"), read and written exactly.

Pure integers, counted in nanos, the finest unit. Must not know resource names:
``federation.model.resources`` decides in which unit a resource is counted.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Final

NANOS_PER_UNIT: Final = 1_000_000_000
NANOS_PER_MILLI: Final = 1_000_000

_MAX_INT64: Final = 2**63 - 1
_MAX_TEXT: Final = 256
# Beyond this no exponent changes the meaning: the value is one nano, or fits no amount.
_MAX_EXPONENT: Final = 1_000

_DECIMAL_EXPONENTS: Final = {
    "n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18,
}  # fmt: skip
_DECIMAL_SUFFIXES: Final = {exponent: suffix for suffix, exponent in _DECIMAL_EXPONENTS.items()}
_BINARY_SUFFIXES: Final = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")

# The digits may be missing altogether: Kubernetes reads "m" and "-" as 0.
_SHAPE: Final = re.compile(
    r"(?P<sign>[+-]?)(?P<whole>[0-9]*)(?:\.(?P<fraction>[0-9]*))?"
    r"(?:(?P<binary>[KMGTPE]i)|[eE](?P<exponent>[+-]?[0-9]+)|(?P<decimal>[numkMGTPE]?))",
    re.ASCII,
)
_RULE: Final = (
    'write digits with an optional sign, decimal point and one suffix out of "n", "u", "m", "k", '
    '"M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei" or an exponent such as "e3"'
)


class QuantityError(ValueError):
    """The text is not a quantity, or not one that is allowed where it stands."""


class Notation(StrEnum):
    """The notation of a quantity, in which it is written back."""

    DECIMAL = "decimal"
    EXPONENT = "exponent"
    BINARY = "binary"


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """An exact number of nanos. ``spelling`` is kept where Kubernetes prints it back unchanged."""

    nanos: int
    notation: Notation = Notation.DECIMAL
    spelling: str = ""

    def milli(self) -> int:
        """Return thousandths, rounded away from zero."""
        return divide_up(self.nanos, NANOS_PER_MILLI)

    def whole(self) -> int:
        """Return whole units, rounded away from zero."""
        return divide_up(self.nanos, NANOS_PER_UNIT)

    def canonical(self) -> str:
        """Return the text that Kubernetes prints: no fraction, the largest exact suffix."""
        if self.spelling:
            return self.spelling
        if not self.nanos:
            return "0"
        units, rest = divmod(abs(self.nanos), NANOS_PER_UNIT)
        if self.notation is Notation.BINARY and not rest and units >= 1024:
            text = binary_text(units)
        else:
            text = _decimal_text(abs(self.nanos), self.notation)
        return f"-{text}" if self.nanos < 0 else text


def divide_up(dividend: int, divisor: int) -> int:
    """Return ``dividend / divisor`` rounded away from zero; ``divisor`` is positive."""
    return -(-dividend // divisor) if dividend >= 0 else dividend // divisor


def binary_text(units: int) -> str:
    """Return ``units`` (not negative) with the largest power of 1024 that divides it: 1536Mi,
    20Gi.
    """
    power = 0
    while units and units % 1024 == 0 and power < len(_BINARY_SUFFIXES) - 1:
        units //= 1024
        power += 1
    return f"{units}{_BINARY_SUFFIXES[power]}"


@lru_cache(maxsize=65_536)
def parse_quantity(text: str) -> Quantity:
    """Read what Kubernetes reads as a quantity; raise QuantityError with the rule otherwise.

    As in Kubernetes, values finer than a nano round up to one. Values with a binary suffix stop at
    the maximum of int64. Other sizes stay exact, even if no amount can hold them.
    """
    shape = _SHAPE.fullmatch(text) if 0 < len(text) <= _MAX_TEXT else None
    if shape is None:
        shown = text if len(text) <= 64 else f"{text[:61]}..."
        raise QuantityError(f"{shown!r} is not a quantity: {_RULE}")
    digits = (shape["whole"].lstrip("0") or "0") + (shape["fraction"] or "")
    decimals = len(shape["fraction"] or "")
    if shape["binary"]:
        power = _BINARY_SUFFIXES.index(shape["binary"])
        nanos = _scaled(int(digits) << (10 * power), -decimals)
        nanos, notation, spelling = min(nanos, _MAX_INT64 * NANOS_PER_UNIT), Notation.BINARY, ""
    else:
        exponent, notation = _exponent(shape["exponent"], shape["decimal"])
        exponent -= decimals
        nanos = _scaled(int(digits), exponent)
        spelling = text if _is_printed_back(digits, exponent) else ""
    return Quantity(
        nanos=-nanos if shape["sign"] == "-" else nanos, notation=notation, spelling=spelling
    )


def _exponent(written: str | None, suffix: str) -> tuple[int, Notation]:
    if written is None:
        return _DECIMAL_EXPONENTS[suffix], Notation.DECIMAL
    return max(-_MAX_EXPONENT, min(int(written), _MAX_EXPONENT)), Notation.EXPONENT


def _scaled(digits: int, exponent: int) -> int:
    """Return ``digits * 10**exponent`` in nanos, rounded up."""
    exponent += 9
    return digits * 10**exponent if exponent >= 0 else divide_up(digits, 10**-exponent)


def _is_printed_back(digits: str, exponent: int) -> bool:
    """Return whether Kubernetes keeps the spelling: "36.540" stays, "0.5" becomes "500m".

    It does for at most 18 digits at a power of a thousand not below nano. The digits must not start
    with 0 nor end in 000.
    """
    return (
        len(digits) <= 18
        and exponent >= -9
        and exponent % 3 == 0
        and not digits.startswith("0")
        and not digits.endswith("000")
    )


def _decimal_text(nanos: int, notation: Notation) -> str:
    exponent = -9
    while nanos % 1000 == 0:
        nanos //= 1000
        exponent += 3
    if notation is not Notation.EXPONENT and exponent in _DECIMAL_SUFFIXES:
        return f"{nanos}{_DECIMAL_SUFFIXES[exponent]}"
    return f"{nanos}e{exponent}" if exponent else str(nanos)
