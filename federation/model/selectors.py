"""Whether one object's labels suit a workload: selectors and requirements.

Pure, for one object at a time. Must not loop over nodes or clusters: callers do.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final, assert_never

from federation.model.cluster import Taint, TaintEffect
from federation.model.workload import Operator, Requirement

# The taint a cordoned node counts as having, whether or not it is written on the node.
UNSCHEDULABLE: Final = Taint(key="node.kubernetes.io/unschedulable", effect=TaintEffect.NO_SCHEDULE)

_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)


def matches_labels(selector: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    """Return whether all labels of a selector are present with their values; an empty one
    matches.
    """
    return all(labels.get(key) == value for key, value in selector.items())


def matches_requirement(requirement: Requirement, labels: Mapping[str, str]) -> bool:
    """Return whether labels (or fields) fulfil one expression.

    NotIn and DoesNotExist also hold where the key is missing. Gt and Lt hold only where it is
    present and both sides are 64-bit integers.
    """
    value = labels.get(requirement.key)
    match requirement.operator:
        case Operator.IN:
            return value is not None and value in requirement.values
        case Operator.NOT_IN:
            return value is None or value not in requirement.values
        case Operator.EXISTS:
            return value is not None
        case Operator.DOES_NOT_EXIST:
            return value is None
        case Operator.GT | Operator.LT:
            return _compares(requirement, value)
        case _:
            assert_never(requirement.operator)


def _compares(requirement: Requirement, value: str | None) -> bool:
    if value is None or len(requirement.values) != 1:
        return False
    ours, bound = _integer(value), _integer(requirement.values[0])
    if ours is None or bound is None:
        return False
    return ours > bound if requirement.operator is Operator.GT else ours < bound


def _integer(text: str) -> int | None:
    if not _INTEGER.fullmatch(text):
        return None
    number = int(text)
    return number if -(2**63) <= number < 2**63 else None


def matches_requirements(requirements: Iterable[Requirement], labels: Mapping[str, str]) -> bool:
    """Return whether labels fulfil every expression; without expressions they do."""
    return all(matches_requirement(requirement, labels) for requirement in requirements)
