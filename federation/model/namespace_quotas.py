"""Namespace quotas: limits on what all bindings of a namespace may hold promised together.

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
    """The limits of a namespace; a resource without an entry has no limit."""

    namespace: str
    limits: Mapping[str, int] = field(default_factory=dict)


def held_amounts(parts: Iterable[tuple[int, ReplicaRequirements]]) -> dict[str, int]:
    """Return the amounts that all parts, (replicas, requirements), hold together."""
    amounts = Counter[str]()
    for replicas, requirements in parts:
        if replicas > 0:
            amounts[REPLICAS] += replicas
            for name, amount in requirements.request.items():
                amounts[name] += replicas * amount
    return dict(amounts)


def moved_amounts(
    used: Mapping[str, int], prior: Mapping[str, int], after: Mapping[str, int]
) -> dict[str, int]:
    """Return the sum of a namespace after one binding changed from ``prior`` to ``after``."""
    names = used.keys() | prior.keys() | after.keys()
    return {name: used.get(name, 0) - prior.get(name, 0) + after.get(name, 0) for name in names}


def beyond_quota(
    quota: NamespaceQuota,
    used: Mapping[str, int],
    prior: Mapping[str, int],
    after: Mapping[str, int],
) -> Reason:
    """Return the limits that a binding would exceed if it held ``after``; NO_REASON: none.

    ``used`` is the sum of the namespace with ``prior``. An amount that does not grow exceeds no
    limit.
    """
    then = moved_amounts(used, prior, after)
    passed = tuple(
        (Word(name), Amount(then[name]), Amount(limit))
        for name, limit in sorted(quota.limits.items())
        if after.get(name, 0) > prior.get(name, 0) and then[name] > limit
    )
    if not passed:
        return NO_REASON
    exceeded = Reason.of(ReasonCode.QUOTA_EXCEEDED, Word(quota.namespace), passed)
    return Reason.of(ReasonCode.SHORT_OF, exceeded)
