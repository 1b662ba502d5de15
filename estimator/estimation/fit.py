"""Which nodes suit a pod, and how many replicas of one request fit on them. Exact, whole-array.

Pure. Must not know quotas.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import numpy as np

from estimator.snapshot import Interned, NodeTable, Snapshot
from federation.model.arrays import BoolArray, IntArray
from federation.model.resources import PODS
from federation.model.selectors import matches_requirement
from federation.model.tolerations import Tolerations
from federation.model.workload import (
    NodeClaim,
    NodeSelectorTerm,
    Operator,
    ReplicaRequirements,
    Requirement,
)

NAME_FIELD = "metadata.name"


def feasible_n(table: NodeTable, claim: NodeClaim | None) -> BoolArray:
    """Nodes (axis n) that a pod with this claim may run on; without one, all untainted nodes.

    Cordoned and unready nodes carry the taints that keep pods away, so tolerations reach them.
    """
    claim = claim or NodeClaim()
    covering = Tolerations(claim.tolerations)
    feasible = table.taints.where(lambda taints: covering.first_untolerated(taints) is None)
    for key, value in claim.node_selector.items():
        feasible &= table.label(key).among([value])
    if claim.required_terms is not None:
        feasible &= _any_term_n(table, claim.required_terms)
    return feasible


def _any_term_n(table: NodeTable, terms: Iterable[NodeSelectorTerm]) -> BoolArray:
    matching = np.zeros(len(table), dtype=np.bool_)
    for term in terms:
        if not term.match_expressions and not term.match_fields:
            continue
        holds = np.ones(len(table), dtype=np.bool_)
        for requirement in term.match_expressions:
            holds &= _label_n(table, requirement)
        for requirement in term.match_fields:
            holds &= _field_n(table, requirement)
        matching |= holds
    return matching


def _label_n(table: NodeTable, requirement: Requirement) -> BoolArray:
    return _meeting_n(table.label(requirement.key), requirement)


def _field_n(table: NodeTable, requirement: Requirement) -> BoolArray:
    if requirement.key != NAME_FIELD:
        return np.full(len(table), fill_value=matches_requirement(requirement, {}))
    return _meeting_n(table.names, requirement)


def _meeting_n(column: Interned[str] | Interned[str | None], requirement: Requirement) -> BoolArray:
    """Rows that meet an expression over the column's key; None stands for no value."""
    if requirement.operator is Operator.IN:
        return column.among(requirement.values)
    if requirement.operator is Operator.NOT_IN:
        return ~column.among(requirement.values)

    def holds(value: str | None) -> bool:
        labels = {} if value is None else {requirement.key: value}
        return matches_requirement(requirement, labels)

    return column.where(holds)


def replicas_n(snapshot: Snapshot, requirements: ReplicaRequirements) -> IntArray:
    """Replicas that fit on each node (axis n), 0 where the claim rules it out."""
    feasible = feasible_n(snapshot.table, requirements.node_claim)
    return room_n(snapshot.free_n, requirements.request, feasible)


def room_n(
    free_n: Callable[[str], IntArray], request: Mapping[str, int], feasible: BoolArray
) -> IntArray:
    """Floor(free / request) of the scarcest resource, free pod slots included, at least 0.

    ``free_n`` gives a resource's free amounts. A request without a positive amount takes pod
    slots alone.
    """
    room = np.where(feasible, free_n(PODS), 0)
    for name, amount in without_slots(request).items():
        np.minimum(room, free_n(name) // amount, out=room)
    return np.maximum(room, 0, out=room)


def without_slots(request: Mapping[str, int]) -> dict[str, int]:
    """The positive amounts, without pods: a replica takes one slot whatever it says."""
    return {name: amount for name, amount in request.items() if amount > 0 and name != PODS}
