"""Rules that a well-formed binding may break.

Must not check syntax: the codec refuses unknown fields, operators and quantities. Paths are those
of the YAML that people write.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, TypeVar

from federation.model.cluster import TaintEffect
from federation.model.errors import Violation
from federation.model.placement import (
    AffinityGroup,
    Binding,
    ClusterAffinity,
    ClusterLimit,
    Placement,
    ReplicaScheduling,
    SchedulingType,
    SpreadConstraint,
)
from federation.model.workload import (
    NodeClaim,
    Operator,
    ReplicaRequirements,
    Requirement,
    Toleration,
    TolerationOperator,
)
from federation.scheduler.resolved_placement import FIELDS

MAX_REPLICAS: Final = 2**31 - 1
MAX_WEIGHT: Final = 2**63 - 1

_INTEGER: Final = re.compile(r"[+-]?[0-9]+", re.ASCII)
_NO_VALUES: Final = (Operator.EXISTS, Operator.DOES_NOT_EXIST)

Item = TypeVar("Item")
Violations = Iterator[Violation]


def violations_of(binding: Binding) -> list[Violation]:
    """Return every rule that the binding breaks, in the order of its fields."""
    return [violation.under("spec") for violation in _binding(binding)]


def _binding(binding: Binding) -> Violations:
    yield from _amount("replicas", binding.replicas, maximum=MAX_REPLICAS)
    yield from _under("replicaRequirements", _requirements(binding.requirements))
    names = [component.name for component in binding.components]
    yield from _repeated("components", "name", names)
    for path, component in _items("components", binding.components):
        if not component.name:
            yield Violation(field=f"{path}.name", rule="is required")
        yield from _amount(f"{path}.replicas", component.replicas, maximum=MAX_REPLICAS)
        violations = _requirements(component.requirements)
        yield from _under(f"{path}.replicaRequirements", violations)
    yield from _repeated("clusters", "name", [target.name for target in binding.clusters])
    for path, target in _items("clusters", binding.clusters):
        yield from _amount(f"{path}.replicas", target.replicas, maximum=MAX_REPLICAS)
    yield from _under("placement", _placement(binding.placement))
    for path, task in _items("gracefulEvictionTasks", binding.eviction_tasks):
        yield from _amount(f"{path}.replicas", task.replicas, maximum=MAX_REPLICAS)
    if binding.lease_seconds is not None and binding.lease_seconds < 1:
        yield Violation(field="leaseSeconds", rule="must be at least 1")
    if binding.min_available is not None:
        yield from _under("minAvailable", _min_available(binding, binding.min_available))


def _min_available(binding: Binding, minimum: int) -> Violations:
    if binding.components:
        yield Violation(field="", rule="cannot be used with components: they go in whole sets")
    elif not binding.placement.partial:
        yield Violation(field="", rule="needs placement.partial: else all are placed, or none")
    elif binding.placement.replica_scheduling.type is SchedulingType.DUPLICATED:
        yield Violation(field="", rule="needs replicaSchedulingType Divided")
    elif not 1 <= minimum <= binding.replicas:
        rule = f"must be from 1 to replicas, which is {binding.replicas}, not {minimum}"
        yield Violation(field="", rule=rule)


def _requirements(requirements: ReplicaRequirements) -> Violations:
    for resource, amount in requirements.request.items():
        yield from _amount(f"resourceRequest[{resource}]", amount, maximum=None)
    if requirements.node_claim is not None:
        yield from _under("nodeClaim", _node_claim(requirements.node_claim))


def _node_claim(claim: NodeClaim) -> Violations:
    terms = claim.required_terms or ()
    for path, term in _items("hardNodeAffinity.nodeSelectorTerms", terms):
        yield from _in_items(f"{path}.matchExpressions", term.match_expressions, _requirement)
        yield from _in_items(f"{path}.matchFields", term.match_fields, _requirement)
    yield from _in_items("tolerations", claim.tolerations, _toleration)


def _placement(placement: Placement) -> Violations:
    if placement.affinity is not None:
        yield from _under("clusterAffinity", _affinity(placement.affinity))
        if placement.affinity_groups:
            rule = "cannot be used together with clusterAffinities"
            yield Violation(field="clusterAffinity", rule=rule)
    names = [group.name for group in placement.affinity_groups]
    yield from _repeated("clusterAffinities", "affinityName", names)
    yield from _in_items("clusterAffinities", placement.affinity_groups, _affinity_group)
    yield from _in_items("clusterTolerations", placement.tolerations, _toleration)
    fields = [constraint.by.value for constraint in placement.spread_constraints]
    yield from _repeated("spreadConstraints", "spreadByField", fields)
    yield from _in_items("spreadConstraints", placement.spread_constraints, _spread_constraint)
    overflows = any(group.overflow for group in placement.affinity_groups)
    yield from _under(
        "replicaScheduling", _replica_scheduling(placement.replica_scheduling, overflows=overflows)
    )


def _affinity_group(group: AffinityGroup) -> Violations:
    if not group.name:
        yield Violation(field="affinityName", rule="is required")
    yield from _affinity(group.affinity)
    yield from _in_items("overflowAffinities", group.overflow, _affinity)


def _affinity(affinity: ClusterAffinity) -> Violations:
    expressions = affinity.match_expressions
    yield from _in_items("labelSelector.matchExpressions", expressions, _requirement)
    for path, requirement in _items("fieldSelector.matchExpressions", affinity.match_fields):
        if requirement.key not in FIELDS:
            yield Violation(field=f"{path}.key", rule=f"must be one of {', '.join(FIELDS)}")
        yield from _under(path, _requirement(requirement))


def _requirement(requirement: Requirement) -> Violations:
    operator, values = requirement.operator, requirement.values
    if not requirement.key:
        yield Violation(field="key", rule="is required")
    if operator in _NO_VALUES and values:
        yield Violation(field="values", rule=f"must be empty for {operator}")
    elif operator in {Operator.IN, Operator.NOT_IN} and not values:
        yield Violation(field="values", rule=f"must not be empty for {operator}")
    elif operator in {Operator.GT, Operator.LT} and not (
        len(values) == 1 and _INTEGER.fullmatch(values[0])
    ):
        yield Violation(field="values", rule=f"must be one integer for {operator}")


def _toleration(toleration: Toleration) -> Violations:
    exists = toleration.operator is TolerationOperator.EXISTS
    if not toleration.key and not exists:
        yield Violation(field="operator", rule="must be Exists when key is empty")
    if exists and toleration.value:
        yield Violation(field="value", rule="must be empty for Exists")
    limited = toleration.toleration_seconds is not None
    if limited and toleration.effect is not TaintEffect.NO_EXECUTE:
        yield Violation(field="effect", rule="must be NoExecute when tolerationSeconds is set")


def _spread_constraint(constraint: SpreadConstraint) -> Violations:
    minimum, maximum = constraint.min_groups, constraint.max_groups
    yield from _amount("minGroups", minimum, maximum=None)
    if maximum is not None and maximum < 1:
        yield Violation(field="maxGroups", rule="must be at least 1, or left out for no limit")
    elif maximum is not None and minimum > maximum:
        yield Violation(field="minGroups", rule=f"must be at most maxGroups, which is {maximum}")


def _replica_scheduling(scheduling: ReplicaScheduling, *, overflows: bool) -> Violations:
    weights = scheduling.static_weights or ()
    for path, weight in _items("weightPreference.staticWeightList", weights):
        yield from _amount(f"{path}.weight", weight.weight, maximum=MAX_WEIGHT)
        yield from _under(f"{path}.targetCluster", _affinity(weight.target))
    if scheduling.limits and scheduling.type is SchedulingType.DUPLICATED:
        yield Violation(field="clusterLimits", rule="needs replicaSchedulingType Divided")
    for path, limit in _items("clusterLimits", scheduling.limits):
        yield from _under(path, _cluster_limit(limit))
        if overflows and limit.min > 0:
            rule = "cannot be kept where overflowAffinities fill one tier after the other"
            yield Violation(field=f"{path}.min", rule=rule)


def _cluster_limit(limit: ClusterLimit) -> Violations:
    yield from _under("targetCluster", _affinity(limit.target))
    yield from _amount("min", limit.min, maximum=MAX_REPLICAS)
    if limit.max is not None:
        yield from _amount("max", limit.max, maximum=MAX_REPLICAS)
        if limit.min > limit.max:
            yield Violation(field="min", rule=f"must be at most max, which is {limit.max}")


def _amount(field: str, value: int, *, maximum: int | None) -> Violations:
    if value < 0:
        yield Violation(field=field, rule="must not be negative")
    elif maximum is not None and value > maximum:
        yield Violation(field=field, rule=f"must be at most {maximum}")


def _repeated(field: str, key: str, names: Sequence[str]) -> Violations:
    """Yield a violation for each name that stands in the list a second time."""
    first: dict[str, int] = {}
    for position, name in enumerate(names):
        if first.setdefault(name, position) != position:
            rule = f"{name!r} is already used by {field}[{first[name]}]"
            yield Violation(field=f"{field}[{position}].{key}", rule=rule)


def _items(field: str, items: Iterable[Item]) -> Iterator[tuple[str, Item]]:
    """Yield the path of each item, and the item."""
    for position, item in enumerate(items):
        yield f"{field}[{position}]", item


def _in_items(field: str, items: Iterable[Item], rules: Callable[[Item], Violations]) -> Violations:
    """Yield the violations of each item under its path."""
    for path, item in _items(field, items):
        yield from _under(path, rules(item))


def _under(prefix: str, violations: Iterable[Violation]) -> Violations:
    for violation in violations:
        yield violation.under(prefix)
