"""Resource names and their units: cpu in millicores, all others in whole units.

Pure. Must not know nodes, clusters or replicas; amounts are plain integers from here on.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from federation.model.errors import InvalidRequest, Violation
from federation.model.quantity import (
    NANOS_PER_MILLI,
    NANOS_PER_UNIT,
    Quantity,
    QuantityError,
    binary_text,
    divide_up,
    parse_quantity,
)

CPU: Final = "cpu"
MEMORY: Final = "memory"
PODS: Final = "pods"
STORAGE: Final = "storage"
EPHEMERAL_STORAGE: Final = "ephemeral-storage"
HUGEPAGES_PREFIX: Final = "hugepages-"

MAX_AMOUNT: Final = 2**63 - 1

_BYTES: Final = frozenset({MEMORY, STORAGE, EPHEMERAL_STORAGE})
_LABEL: Final = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_PREFIX: Final = re.compile(rf"{_LABEL}(?:\.{_LABEL})*", re.ASCII)
_NAME: Final = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?", re.ASCII)
_NAME_RULE: Final = (
    "a resource name is at most 63 letters, digits, '-', '_' and '.', starting and ending with a "
    "letter or digit, optionally after a DNS prefix and '/'"
)


def is_qualified_name(name: str) -> bool:
    """Return whether Kubernetes accepts a resource name: ``name`` or ``dns.prefix/name``."""
    prefix, slash, last = name.rpartition("/")
    if slash and not (len(prefix) <= 253 and _PREFIX.fullmatch(prefix)):
        return False
    return len(last) <= 63 and _NAME.fullmatch(last) is not None


@lru_cache(maxsize=256)
def is_extended(name: str) -> bool:
    """Return whether ``name`` is an extended resource such as nvidia.com/gpu."""
    return (
        "/" in name
        and "kubernetes.io/" not in name
        and not name.startswith("requests.")
        and is_qualified_name(name)
    )


def is_countable(name: str) -> bool:
    """Return whether kube-scheduler counts ``name`` on nodes; it ignores other unprefixed names.

    It counts cpu, memory, ephemeral-storage, hugepages, attachable volumes, and names with a
    Kubernetes or extended prefix.
    """
    return (
        name in (CPU, MEMORY, EPHEMERAL_STORAGE)
        or name.startswith((HUGEPAGES_PREFIX, "attachable-volumes-"))
        or "kubernetes.io/" in name
        or is_extended(name)
    )


def counts_bytes(name: str) -> bool:
    """Return whether the resource's unit is a byte."""
    return name in _BYTES or name.startswith(HUGEPAGES_PREFIX)


def nanos_per_base_unit(name: str) -> int:
    """Return the nanos of one base unit: of a millicore, or of one whole unit."""
    return NANOS_PER_MILLI if name == CPU else NANOS_PER_UNIT


def base_units_up(name: str, quantity: Quantity) -> int:
    """Return base units rounded away from zero: the direction of all requests."""
    return divide_up(quantity.nanos, nanos_per_base_unit(name))


def base_units_down(name: str, quantity: Quantity) -> int:
    """Return base units rounded down: the direction of all capacity."""
    return quantity.nanos // nanos_per_base_unit(name)


def amount_of(name: str, text: str) -> int:
    """Return a requested amount in base units, rounded up.

    Raises QuantityError for a text that is no quantity, is negative, or exceeds int64.
    """
    amount = base_units_up(name, parse_quantity(text))
    if amount < 0:
        raise QuantityError(f"{text!r} is negative: write at least 0")
    if amount > MAX_AMOUNT:
        unit = "millicores" if name == CPU else "units"
        raise QuantityError(f"{text!r} is too large: write at most {MAX_AMOUNT} {unit}")
    return amount


def amounts_of(quantities: Mapping[str, str], *, field: str) -> dict[str, int]:
    """Return amounts in base units by resource name, rounded up.

    Raises InvalidRequest with every violation, under paths such as ``resourceRequest[cpu]``.
    """
    amounts: dict[str, int] = {}
    violations: list[Violation] = []
    for name, text in quantities.items():
        path = f"{field}[{name}]"
        if not is_qualified_name(name):
            violations.append(Violation(field=path, rule=_NAME_RULE))
        try:
            amounts[name] = amount_of(name, text)
        except QuantityError as error:
            violations.append(Violation(field=path, rule=str(error)))
    if violations:
        raise InvalidRequest(violations)
    return amounts


def format_amount(name: str, amount: int) -> str:
    """Return base units as a quantity: cpu "500m" or "2", bytes "20Gi" where that is exact."""
    if name == CPU:
        return f"{amount}m" if amount % 1000 else str(amount // 1000)
    if amount >= 1024 and counts_bytes(name):
        return binary_text(amount)
    return str(amount)
