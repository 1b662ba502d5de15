"""Resource summaries: quantities of a cluster's status as amounts in base units, and back.

Must not estimate anything.
"""

from __future__ import annotations

from collections.abc import Mapping

from federation.codec.requirements import quantities_of
from federation.codec.violations import Violations
from federation.model.cluster import ResourceSummary
from federation.model.quantity import QuantityError, divide_up, parse_quantity
from federation.model.resources import MAX_AMOUNT, nanos_per_base_unit
from federation.v1 import resource_pb2


def read_summary(
    message: resource_pb2.ResourceSummary, path: str, found: Violations
) -> ResourceSummary:
    """The summary in base units, rounded so that what is free comes out exact.

    Free is allocatable - allocated - allocating, computed on the quantities and rounded down
    once. Fractions of a unit, rare as they are, therefore all go to ``allocated``.
    """
    allocatable = _nanos(message.allocatable, f"{path}.allocatable", found)
    allocated = _nanos(message.allocated, f"{path}.allocated", found)
    allocating = _nanos(message.allocating, f"{path}.allocating", found)
    units = {name: nanos_per_base_unit(name) for name in {*allocatable, *allocated, *allocating}}
    waiting = {name: nanos // units[name] for name, nanos in allocating.items()}
    used = {name: divide_up(nanos, units[name]) for name, nanos in allocated.items()}
    there = {name: nanos // units[name] for name, nanos in allocatable.items()}
    for name, nanos in allocatable.items():
        free = nanos - allocated.get(name, 0) - allocating.get(name, 0)
        rest = there[name] - waiting.get(name, 0) - free // units[name]
        if name in used or rest:
            used[name] = rest
    return ResourceSummary(allocatable=there, allocated=used, allocating=waiting)


def summary_to_message(
    summary: ResourceSummary,
) -> resource_pb2.ResourceSummary:
    return resource_pb2.ResourceSummary(
        allocatable=quantities_of(summary.allocatable),
        allocated=quantities_of(summary.allocated),
        allocating=quantities_of(summary.allocating),
    )


def _nanos(quantities: Mapping[str, str], path: str, found: Violations) -> dict[str, int]:
    nanos: dict[str, int] = {}
    for name, text in quantities.items():
        try:
            amount = parse_quantity(text).nanos
        except QuantityError as error:
            found.add(f"{path}[{name}]", str(error))
            continue
        if 0 <= amount <= MAX_AMOUNT * nanos_per_base_unit(name):
            nanos[name] = amount
        else:
            found.add(f"{path}[{name}]", f"{text!r} must be from 0 to what 64 bits hold")
    return nanos
