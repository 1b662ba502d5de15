"""A workload of several components as one shape: the requests of a whole set.

Pure. Must not place components one by one: totals can only answer for the sum of a set.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from federation.model.placement import Binding
from federation.model.resources import MAX_AMOUNT, PODS
from federation.model.workload import Component, ReplicaRequirements


def shape_of(binding: Binding) -> ReplicaRequirements:
    """Return the requirements of one unit of the binding: a replica, or one set of its
    components.
    """
    if not binding.components:
        return binding.requirements
    return shape_of_set(binding.components, binding.requirements.namespace)


def shape_of_set(components: Iterable[Component], namespace: str = "") -> ReplicaRequirements:
    """Return the requirements of one set, with a pod slot for each of its replicas."""
    total: Counter[str] = Counter()
    for component in components:
        for name, amount in component.requirements.request.items():
            if name != PODS:
                total[name] += component.replicas * amount
        total[PODS] += component.replicas
    return ReplicaRequirements(
        request={name: min(amount, MAX_AMOUNT) for name, amount in total.items()},
        namespace=namespace,
    )
