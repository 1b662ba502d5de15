"""Namespace quotas: how much all bindings of a namespace may hold promised, together.

Pure. Amounts are by resource name, in base units, with the number of replicas under ``REPLICAS``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from federation.model.reason_codes import ReasonCode
from federation.model.reasons import NO_REASON, Amount, Reason, Word
from federation.model.workload import ReplicaRequirements

REPLICAS: Final = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespaceQuota:
    """The most that may be held; what is not named has no limit."""

    namespace: str
    limits: Mapping[str, int] = field(default_factory=dict)


def held_amounts(parts: Iterable[tuple[int, ReplicaRequirements]]) -> dict[str, int]:
    """What so many replicas of each of these hold together."""
    amounts = Counter[str]()
    for replicas, requirements in parts:
        if replicas > 0:
            amounts[REPLICAS] += replicas
            for name, each in requirements.request.items():
                amounts[name] += replicas * each
    return dict(amounts)


def moved_amounts(
    used: Mapping[str, int], before: Mapping[str, int], after: Mapping[str, int]
) -> dict[str, int]:
    """What all hold once one of them holds ``after`` in place of ``before``."""
    names = used.keys() | before.keys() | after.keys()
    return {name: used.get(name, 0) - before.get(name, 0) + after.get(name, 0) for name in names}


def beyond_quota(
    quota: NamespaceQuota,
    used: Mapping[str, int],
    before: Mapping[str, int],
    after: Mapping[str, int],
) -> Reason:
    """Which limits a binding would pass that is to hold ``after``; NO_REASON: none.

    ``used`` is what all hold with ``before``. What does not grow passes no limit.
    """
    then = moved_amounts(used, before, after)
    passed = tuple(
        (Word(name), Amount(then[name]), Amount(limit))
        for name, limit in sorted(quota.limits.items())
        if after.get(name, 0) > before.get(name, 0) and then[name] > limit
    )
    if not passed:
        return NO_REASON
    exceeded = Reason.of(ReasonCode.QUOTA_EXCEEDED, Word(quota.namespace), passed)
    return Reason.of(ReasonCode.SHORT_OF, exceeded)
