"""Rules between the fields of one message, by the ids that the protos give them.

Each says what its expression in the proto says; a test compares the two. Must not name a path.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final


def _has_no_value(toleration: Any) -> bool:
    return toleration.operator != "Exists" or not toleration.value


def _has_key(toleration: Any) -> bool:
    return bool(toleration.operator == "Exists" or toleration.key)


def _ends_by_effect(toleration: Any) -> bool:
    return not toleration.HasField("toleration_seconds") or toleration.effect == "NoExecute"


def _has_ordered_groups(constraint: Any) -> bool:
    return not 0 < constraint.max_groups < constraint.min_groups


def _has_ordered_limits(limit: Any) -> bool:
    return not (limit.HasField("max") and 0 <= limit.max < limit.min)


def _has_one_affinity(placement: Any) -> bool:
    return not (placement.HasField("cluster_affinity") and placement.cluster_affinities)


def _has_placement(binding: Any) -> bool:
    return bool(binding.spec.HasField("placement"))


CROSS_FIELD_RULES: Final[Mapping[str, Callable[[Any], bool]]] = {
    "toleration.value": _has_no_value,
    "toleration.operator": _has_key,
    "toleration.effect": _ends_by_effect,
    "spread_constraint.max_groups": _has_ordered_groups,
    "cluster_limit.max": _has_ordered_limits,
    "resource_binding.spec.placement": _has_placement,
    "placement.cluster_affinities": _has_one_affinity,
}
