"""The amounts that the ResourceQuotas of a namespace still allow.

Pure. Must not look at nodes. Counts what is requested: limits that pods must have are not known.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from federation.model.estimate import MAX_REPLICAS
from federation.model.resources import PODS
from federation.model.selectors import matches_requirements
from federation.model.workload import Component, ReplicaRequirements, Requirement

# The one scope that can be told from what a replica asks for.
PRIORITY_CLASS = "PriorityClass"


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """A ResourceQuota: ``left`` is hard minus used by resource, at least 0, ``pods`` among them.

    It counts pods that meet all ``scopes``, whose keys are scope names.
    """

    namespace: str
    name: str
    left: Mapping[str, int]
    scopes: tuple[Requirement, ...] = ()

    def counts(self, requirements: ReplicaRequirements) -> bool:
        """Whether it counts such pods; never, when a scope cannot be told from a request."""
        if requirements.namespace != self.namespace:
            return False
        if any(scope.key != PRIORITY_CLASS for scope in self.scopes):
            return False
        name = requirements.priority_class_name
        return matches_requirements(self.scopes, {PRIORITY_CLASS: name} if name else {})


def sets_allowed(
    quotas: Iterable[Quota],
    workload: Sequence[Component],
    assumed: Sequence[Sequence[Component]] = (),
) -> int:
    """Sets that the tightest quota allows beside one set of each ``assumed`` workload."""
    max_sets = MAX_REPLICAS
    for quota in quotas:
        demanded = _demanded(quota, workload)
        if not demanded:
            continue
        held = _demanded(quota, [component for components in assumed for component in components])
        for name, amount in demanded.items():
            max_sets = min(max_sets, max(0, quota.left[name] - held[name]) // amount)
    return max_sets


def _demanded(quota: Quota, workload: Sequence[Component]) -> Counter[str]:
    """Return the amounts that one set takes of the quota, positive ones only."""
    demanded: Counter[str] = Counter()
    for component in workload:
        if component.replicas and quota.counts(component.requirements):
            for name, amount in {**component.requirements.request, PODS: 1}.items():
                if name in quota.left and amount > 0:
                    demanded[name] += amount * component.replicas
    return demanded
